//! Moves a silent agent's tunnel to a new UDP socket, because a NAT may keep a mapping that leads nowhere.
//!
//! The probes that wait for an answer keep such a mapping alive: a router whose uplink came back with another
//! address may map the old flow to the old address for as long as it is in use. From another port it is
//! another flow.

use std::io;
use std::time::{Duration, Instant};

use tracing::debug;

/// Silence before each new socket. quinn still receives packets on the previous one, too.
pub(crate) const REBIND_EVERY: Duration = Duration::from_secs(5);

/// Rebinds the socket of one tunnel.
pub(crate) struct Rebinding {
    rebind: Box<Rebind>,
    bound_at: Instant,
}

/// The function that binds another socket.
type Rebind = dyn Fn() -> io::Result<()> + Send + Sync;

impl Rebinding {
    pub(crate) fn new(rebind: Box<Rebind>, now: Instant) -> Self {
        Self { rebind, bound_at: now }
    }

    /// Binds another socket, if nothing was heard for long enough since the last one.
    pub(crate) fn rebind_if_silent(&mut self, now: Instant, silence: Duration) {
        let is_due = silence >= REBIND_EVERY && now >= self.bound_at + REBIND_EVERY;
        if is_due {
            self.bound_at = now;
            if let Err(error) = (self.rebind)() {
                debug!(%error, "the tunnel could not bind another UDP socket");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_socket_is_left_after_five_seconds_of_silence_and_again_every_five() {
        let (taken, now) = (Arc::new(AtomicU32::new(0)), Instant::now());
        let mut rebinding = rebinding(&taken, now);
        for second in 0..31_u32 {
            let silence = Duration::from_secs(second.into());
            rebinding.rebind_if_silent(now + silence, silence);
            assert_eq!(taken.load(Ordering::Relaxed), second / 5, "after {second} s");
        }
    }

    #[test]
    fn a_socket_on_which_something_is_heard_is_kept() {
        let (taken, now) = (Arc::new(AtomicU32::new(0)), Instant::now());
        let mut rebinding = rebinding(&taken, now);
        rebinding.rebind_if_silent(now + Duration::from_secs(60), REBIND_EVERY - Duration::from_millis(1));
        assert_eq!(taken.load(Ordering::Relaxed), 0);
    }

    fn rebinding(taken: &Arc<AtomicU32>, now: Instant) -> Rebinding {
        let taken = Arc::clone(taken);
        let rebind = move || {
            taken.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        Rebinding::new(Box::new(rebind), now)
    }
}
