//! The full-size packets of a connection that were acknowledged: probes and data alike.

use std::time::Instant;

use crate::path_mtu::FULL_SIZE_BYTES_MIN;

/// The full-size packets that this side has sent. quinn reports batches of packets as they are sent, and single
/// packets as they are acknowledged, so a batch counts as one full-size packet.
#[derive(Debug, Default)]
pub(super) struct FullSizePackets {
    /// The time of the oldest one since the last that was acknowledged.
    unanswered_since: Option<Instant>,
    /// The time at which the latest was sent that the peer has received.
    arrived: Option<Instant>,
    /// The driver awaits the answer to a probe that was sent then.
    awaited_since: Option<Instant>,
}

/// The full-size packets that one ACK frame acknowledges. It has no lock, because quinn reports every packet.
#[derive(Debug, Default)]
pub(super) struct AckedFullSize {
    /// The time at which the latest of them was sent.
    latest: Option<Instant>,
}

impl AckedFullSize {
    /// Adds an acknowledged packet, if it is a full-size one.
    pub(super) fn add(&mut self, sent: Instant, bytes: u64) {
        if bytes >= FULL_SIZE_BYTES_MIN {
            self.latest = self.latest.max(Some(sent));
        }
    }

    /// Takes the time at which the latest of them was sent, so that the next frame begins with none.
    pub(super) fn take(&mut self) -> Option<Instant> {
        self.latest.take()
    }
}

impl FullSizePackets {
    pub(super) fn unanswered_since(&self) -> Option<Instant> {
        self.unanswered_since
    }

    pub(super) fn arrived(&self) -> Option<Instant> {
        self.arrived
    }

    pub(super) fn expect(&mut self, now: Instant) {
        self.awaited_since = Some(now);
    }

    pub(super) fn sent(&mut self, now: Instant, bytes: u64) {
        if bytes >= FULL_SIZE_BYTES_MIN {
            self.unanswered_since.get_or_insert(now);
        }
    }

    /// Notes that full-size packets were acknowledged, the latest of which was `sent` then. Returns true if
    /// it answers a probe that is awaited.
    pub(super) fn acknowledged(&mut self, sent: Instant) -> bool {
        self.arrived = self.arrived.max(Some(sent));
        self.unanswered_since.take_if(|since| sent >= *since);
        self.awaited_since.take_if(|since| sent >= *since).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const FULL: u64 = FULL_SIZE_BYTES_MIN;
    const STEP: Duration = Duration::from_millis(100);

    #[test]
    fn only_a_full_size_packet_that_is_no_older_answers_a_probe() {
        let (mut packets, began) = (FullSizePackets::default(), Instant::now());
        packets.expect(began + STEP);
        assert!(!acknowledged(&mut packets, &[(began + STEP, FULL - 1)]), "it is smaller");
        assert!(!acknowledged(&mut packets, &[(began, FULL)]), "it is older");
        assert!(acknowledged(&mut packets, &[(began + STEP, FULL)]));
        assert!(!acknowledged(&mut packets, &[(began + STEP, FULL)]), "it is answered already");
        assert_eq!(packets.arrived(), Some(began + STEP));
    }

    #[test]
    fn data_is_unanswered_until_a_packet_as_young_has_arrived() {
        let (mut packets, began) = (FullSizePackets::default(), Instant::now());
        packets.sent(began, FULL - 1);
        assert_eq!(packets.unanswered_since(), None);
        packets.sent(began + STEP, FULL * 10);
        packets.sent(began + STEP * 2, FULL);
        acknowledged(&mut packets, &[(began, FULL), (began + STEP * 2, FULL - 1)]);
        assert_eq!(packets.unanswered_since(), Some(began + STEP));

        acknowledged(&mut packets, &[(began + STEP, FULL)]);

        assert_eq!(packets.unanswered_since(), None);
    }

    #[test]
    fn of_several_packets_the_latest_counts_whatever_their_order() {
        let (mut packets, began) = (FullSizePackets::default(), Instant::now());
        packets.expect(began + STEP);
        assert!(acknowledged(&mut packets, &[(began, FULL), (began + STEP, FULL), (began, FULL)]));
        assert_eq!(packets.arrived(), Some(began + STEP));
    }

    /// Acknowledges these packets by one frame; true if they answer a probe.
    fn acknowledged(packets: &mut FullSizePackets, by_one_frame: &[(Instant, u64)]) -> bool {
        let mut acked = AckedFullSize::default();
        by_one_frame.iter().for_each(|(sent, bytes)| acked.add(*sent, *bytes));
        acked.take().is_some_and(|sent| packets.acknowledged(sent))
    }
}
