//! Counters of a tunnel's link: packets and bytes, sent, received and lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters of a tunnel since it was opened, and its round trip. Every count only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkStats {
    /// Current estimate of the path's round trip.
    pub round_trip: Duration,
    /// Packets that this side has sent, probes of the path's MTU not counted. Zero on HTTP/2: its packets are
    /// the kernel's.
    pub packets_sent: u64,
    /// Sent packets that are declared lost; zero on HTTP/2. Only the peer knows about its own packets.
    pub packets_lost: u64,
    /// Bytes of UDP payload sent, with everything that QUIC adds; on HTTP/2 its bytes before TLS.
    pub wire_bytes_sent: u64,
    /// Bytes of UDP payload received; on HTTP/2 its bytes behind TLS.
    pub wire_bytes_received: u64,
    /// Bytes of streams that were handed to the carrier.
    pub stream_bytes_sent: u64,
    /// Bytes of streams that were read off the carrier.
    pub stream_bytes_received: u64,
}

/// Bytes of all streams of a tunnel, ended ones included.
#[derive(Debug, Default)]
pub(crate) struct StreamBytes {
    sent: AtomicU64,
    received: AtomicU64,
}

impl StreamBytes {
    /// Bytes that were handed to the carrier so far.
    pub(crate) fn sent_so_far(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl LinkStats {
    /// The counters of a carrier that does not know its packets.
    pub(crate) fn without_packets(
        round_trip: Duration,
        wire_bytes_sent: u64,
        wire_bytes_received: u64,
        streams: &StreamBytes,
    ) -> Self {
        Self {
            round_trip,
            packets_sent: 0,
            packets_lost: 0,
            wire_bytes_sent,
            wire_bytes_received,
            stream_bytes_sent: streams.sent.load(Ordering::Relaxed),
            stream_bytes_received: streams.received.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn from_quic(stats: &quinn::ConnectionStats, streams: &StreamBytes) -> Self {
        let path = &stats.path;
        Self {
            round_trip: path.rtt,
            // Losing a probe says that the path is narrower than the probe, not that it loses packets.
            packets_sent: path.sent_packets.saturating_sub(path.sent_plpmtud_probes),
            packets_lost: path.lost_packets,
            wire_bytes_sent: stats.udp_tx.bytes,
            wire_bytes_received: stats.udp_rx.bytes,
            stream_bytes_sent: streams.sent.load(Ordering::Relaxed),
            stream_bytes_received: streams.received.load(Ordering::Relaxed),
        }
    }
}
