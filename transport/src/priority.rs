//! Decides which streams of a tunnel send first: those that carry little beside the others.
//!
//! `kubectl cp` is an exec as a shell is, so no request says which of both a stream is; the number of bytes
//! that it carries does. A stream is *light* until it has sent [`LIGHT_BYTES`]; then it is *bulk*, until
//! others have carried [`SHARE`] times as much without it. There is no clock in it: a stream is measured by
//! the bytes of its tunnel, so the same constants fit a slow link and a fast one. On an idle tunnel nothing
//! changes, where it would not matter.
//!
//! Many light streams never starve bulk: together they may be ahead of it by [`LIGHT_CREDIT_BYTES`], and from
//! there on by as much as bulk has sent, which leaves it half of the link. Beyond that they take their turns
//! with bulk.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that a stream may send before it is bulk: a screenful, a list, the head of a request; no file.
const LIGHT_BYTES: u64 = 64 * 1024;

/// A stream earns one byte back for every this many bytes that the tunnel's others have sent. With more equal
/// streams than this, each earns what it spends.
const SHARE: u64 = 32;

/// Bytes by which all light streams together may be ahead of bulk.
const LIGHT_CREDIT_BYTES: u64 = 4 * LIGHT_BYTES;

/// The order in which bytes leave. Streams of one priority take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    Bulk,
    Light,
    /// Frames of the session, before all others.
    Control,
}

/// The budget of one direction of a stream, which decides whether it is light or bulk.
#[derive(Debug)]
pub(crate) struct SendBudget {
    is_bulk: bool,
    /// Bytes that it may still send as a light stream.
    left: u64,
    /// Bytes of the whole tunnel that are accounted for: its own, and those of others that were credited to
    /// it.
    seen: u64,
}

/// Bytes that the light streams of a tunnel may still send ahead of bulk.
#[derive(Debug)]
pub(crate) struct LightCredit(AtomicU64);

impl SendBudget {
    /// The budget of a new stream, on a tunnel that has `carried` this many bytes.
    pub(crate) fn new(carried: u64) -> Self {
        Self { is_bulk: false, left: LIGHT_BYTES, seen: carried }
    }

    /// The priority of the next `bytes` of the stream, on a tunnel that has `carried` this many so far.
    pub(crate) fn priority(&mut self, carried: u64, bytes: u64, credit: &LightCredit) -> Priority {
        let earned = carried.saturating_sub(self.seen) / SHARE;
        self.seen += earned * SHARE;
        self.left = LIGHT_BYTES.min(self.left.saturating_add(earned));
        // Only once it has earned all of it back, or the rest of its bulk would be sent as light.
        self.is_bulk &= self.left < LIGHT_BYTES;
        self.is_bulk |= self.left < bytes;
        if self.is_bulk || !credit.covers(bytes) { Priority::Bulk } else { Priority::Light }
    }

    /// Notes that the carrier took this many bytes, at this priority.
    pub(crate) fn sent(&mut self, bytes: u64, priority: Priority, credit: &LightCredit) {
        self.seen += bytes;
        self.left = self.left.saturating_sub(bytes);
        if self.is_bulk {
            credit.earn(bytes);
        } else if priority == Priority::Light {
            credit.spend(bytes);
        }
    }
}

impl LightCredit {
    fn covers(&self, bytes: u64) -> bool {
        self.0.load(Ordering::Relaxed) >= bytes
    }

    fn earn(&self, bytes: u64) {
        self.change(|left| LIGHT_CREDIT_BYTES.min(left.saturating_add(bytes)));
    }

    fn spend(&self, bytes: u64) {
        self.change(|left| left.saturating_sub(bytes));
    }

    fn change(&self, to: impl Fn(u64) -> u64) {
        // Never fails: there is always another value.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(to(left)));
    }
}

impl Default for LightCredit {
    fn default() -> Self {
        Self(AtomicU64::new(LIGHT_CREDIT_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of one read from a file or a socket.
    const CHUNK: u64 = 16 * 1024;
    const KEYSTROKE: u64 = 50;

    /// The byte count and the credit of a tunnel.
    #[derive(Default)]
    struct TestTunnel {
        carried: u64,
        credit: LightCredit,
    }

    impl TestTunnel {
        fn stream(&self) -> SendBudget {
            SendBudget::new(self.carried)
        }

        fn send(&mut self, stream: &mut SendBudget, bytes: u64) -> Priority {
            let priority = stream.priority(self.carried, bytes, &self.credit);
            stream.sent(bytes, priority, &self.credit);
            self.carried += bytes;
            priority
        }
    }

    #[test]
    fn a_copy_is_bulk_after_64_kib_and_a_shell_beside_it_stays_light() {
        let mut tunnel = TestTunnel::default();
        let (mut copy, mut shell) = (tunnel.stream(), tunnel.stream());
        for kibibytes in (0..100_000).step_by(16) {
            let expected = if kibibytes < 64 { Priority::Light } else { Priority::Bulk };
            assert_eq!(tunnel.send(&mut copy, CHUNK), expected, "after {kibibytes} KiB");
            // A keystroke for each twentieth of a megabyte: more than a hundred of them a second on a link of
            // 50 Mbit/s.
            if kibibytes % 48 == 0 {
                assert_eq!(tunnel.send(&mut shell, KEYSTROKE), Priority::Light, "after {kibibytes} KiB");
            }
        }
    }

    #[test]
    fn one_write_of_more_than_a_light_budget_is_bulk() {
        let mut tunnel = TestTunnel::default();
        let mut stream = tunnel.stream();
        assert_eq!(tunnel.send(&mut stream, LIGHT_BYTES + 1), Priority::Bulk);
        let mut stream = tunnel.stream();
        assert_eq!(tunnel.send(&mut stream, LIGHT_BYTES), Priority::Light);
    }

    #[test]
    fn a_small_write_does_not_make_a_copy_light() {
        let mut tunnel = TestTunnel::default();
        let (mut copy, mut other) = (tunnel.stream(), tunnel.stream());
        tunnel.send(&mut copy, LIGHT_BYTES + 1);
        for _ in 0..1000 {
            tunnel.send(&mut other, CHUNK);
            // Like the header before a WebSocket message.
            assert_eq!(tunnel.send(&mut copy, 4), Priority::Bulk);
            assert_eq!(tunnel.send(&mut copy, CHUNK), Priority::Bulk);
        }
    }

    #[test]
    fn a_bulk_stream_is_light_again_once_others_have_sent_32_budgets() {
        let mut tunnel = TestTunnel::default();
        let (mut shell, mut copy) = (tunnel.stream(), tunnel.stream());
        // Somebody printed a file in it.
        tunnel.send(&mut shell, LIGHT_BYTES + 1);
        let chunks = LIGHT_BYTES * SHARE / CHUNK;
        for chunk in 0..chunks {
            assert_eq!(
                shell.priority(tunnel.carried, KEYSTROKE, &tunnel.credit),
                Priority::Bulk,
                "after {chunk}"
            );
            tunnel.send(&mut copy, CHUNK);
        }
        assert_eq!(tunnel.send(&mut shell, KEYSTROKE), Priority::Light);
    }

    #[test]
    fn a_stream_earns_nothing_by_what_it_sends_itself() {
        let mut tunnel = TestTunnel::default();
        let mut copy = tunnel.stream();
        tunnel.send(&mut copy, LIGHT_BYTES * SHARE * 4);
        assert_eq!(tunnel.send(&mut copy, KEYSTROKE), Priority::Bulk);
    }

    /// They may be ahead by the credit, and by as much as bulk has sent.
    #[test]
    fn many_light_streams_are_ahead_of_bulk_by_their_credit() {
        let mut tunnel = TestTunnel::default();
        let mut copy = tunnel.stream();
        tunnel.send(&mut copy, LIGHT_BYTES + 1);
        let (mut ahead, mut in_turn, mut copied) = (0, 0, 0);
        for _ in 0..1000 {
            // Many new requests, each small, for each chunk of the copy.
            for _ in 0..20 {
                let mut request = tunnel.stream();
                match tunnel.send(&mut request, 2000) {
                    Priority::Light => ahead += 2000,
                    Priority::Bulk => in_turn += 2000,
                    Priority::Control => panic!("a request is no frame of the session"),
                }
            }
            assert!(ahead <= LIGHT_CREDIT_BYTES + copied, "{ahead} ahead of {copied}");
            assert_eq!(tunnel.send(&mut copy, CHUNK), Priority::Bulk);
            copied += CHUNK;
        }
        assert!(ahead > copied / 2 && in_turn > copied, "{ahead} ahead, {in_turn} in turn");
    }
}
