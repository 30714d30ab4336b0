//! Metrics of the links to each peer: bytes and losses, summed over open and ended tunnels.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::exposition::Exposition;

/// Most peers with series; tunnels to further ones are not counted here.
pub const PEERS_MAX: usize = 10_000;

/// The time for which a peer's series remain after its last tunnel: several scrapes find the last figures,
/// and a short absence does not reset counters.
pub const RETENTION: Duration = Duration::from_secs(300);

/// The links of all peers. Clones share them.
#[derive(Clone)]
pub struct Links(Arc<SharedLinks>);

struct SharedLinks {
    names: MetricNames,
    label: &'static str,
    peers: Mutex<BTreeMap<String, Peer>>,
}

/// Figures of one tunnel since it was opened, or sums of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Current estimate of the round trip; of several tunnels the shortest.
    pub round_trip: Duration,
    /// Streams that are open now.
    pub streams_open: u64,
    /// Packets that this side has sent.
    pub packets_sent: u64,
    /// Sent packets that are considered lost.
    pub packets_lost: u64,
    /// Bytes of UDP payload that this side has sent.
    pub wire_bytes_sent: u64,
    /// Bytes of UDP payload that this side has received.
    pub wire_bytes_received: u64,
    /// Bytes of streams that this side has sent.
    pub stream_bytes_sent: u64,
    /// Bytes of streams that this side has received.
    pub stream_bytes_received: u64,
}

/// Counts a tunnel as open until this is dropped.
#[must_use = "the tunnel counts as ended when this is dropped"]
pub struct OpenLink {
    links: Links,
    peer: String,
    number: u64,
}

/// Reads the current figures of a tunnel.
type ReadFigures = Box<dyn Fn() -> Figures + Send + Sync>;

#[derive(Default)]
struct Peer {
    open: BTreeMap<u64, (&'static str, ReadFigures)>,
    /// The carriers of all its tunnels since its series began.
    carriers: BTreeSet<&'static str>,
    opened: u64,
    /// Sums over the ended tunnels.
    ended: Figures,
    last_ended: Option<Instant>,
}

impl Links {
    /// Links with metric names that begin with `prefix`, and the peer in the label `label`.
    #[must_use]
    pub fn new(prefix: &str, label: &'static str) -> Self {
        Self(Arc::new(SharedLinks { names: MetricNames::new(prefix), label, peers: Mutex::default() }))
    }

    /// Counts a tunnel to `peer` over `carrier`. `read` returns the tunnel's figures, also shortly after its
    /// end.
    pub fn open(
        &self,
        peer: &str,
        carrier: &'static str,
        read: impl Fn() -> Figures + Send + Sync + 'static,
    ) -> OpenLink {
        self.open_at(peer, carrier, read, Instant::now())
    }

    fn open_at(
        &self,
        peer: &str,
        carrier: &'static str,
        read: impl Fn() -> Figures + Send + Sync + 'static,
        now: Instant,
    ) -> OpenLink {
        let mut peers = self.peers();
        if peers.len() >= PEERS_MAX {
            // Without scrapes nothing else removes expired peers.
            peers.retain(|_, peer| !peer.is_expired(now));
        }
        let mut number = 0;
        if peers.len() < PEERS_MAX || peers.contains_key(peer) {
            let known = peers.entry(peer.to_owned()).or_default();
            known.opened += 1;
            number = known.opened;
            known.open.insert(number, (carrier, Box::new(read)));
            known.carriers.insert(carrier);
        }
        OpenLink { links: self.clone(), peer: peer.to_owned(), number }
    }

    /// Writes the series of all peers, and removes peers without a tunnel for [`RETENTION`].
    pub fn write(&self, text: &mut Exposition, now: Instant) {
        let SharedLinks { names, label, .. } = &*self.0;
        names.write(text, label, &self.reports(now));
    }

    fn reports(&self, now: Instant) -> Vec<PeerReport> {
        let mut peers = self.peers();
        peers.retain(|_, peer| !peer.is_expired(now));
        let reports = peers.iter().map(|(name, peer)| PeerReport {
            peer: name.clone(),
            opened: peer.opened,
            open: peer.open.len(),
            open_by: peer.open_by(),
            figures: peer.figures(),
        });
        reports.collect()
    }

    fn peers(&self) -> MutexGuard<'_, BTreeMap<String, Peer>> {
        self.0.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer {
    fn is_expired(&self, now: Instant) -> bool {
        self.open.is_empty()
            && self.last_ended.is_none_or(|ended| now.saturating_duration_since(ended) >= RETENTION)
    }

    fn open_by(&self) -> Vec<(&'static str, usize)> {
        let open = |carrier| self.open.values().filter(|(over, _)| *over == carrier).count();
        self.carriers.iter().map(|carrier| (*carrier, open(*carrier))).collect()
    }

    fn figures(&self) -> Figures {
        let open: Vec<Figures> = self.open.values().map(|(_, read)| read()).collect();
        let mut all = open.iter().fold(self.ended, Figures::with_counts_of);
        all.streams_open = open.iter().map(|figures| figures.streams_open).sum();
        all.round_trip = open.iter().map(|figures| figures.round_trip).min().unwrap_or_default();
        all
    }
}

impl Figures {
    /// Adds the counts of another tunnel. Figures that only an open tunnel has become zero.
    fn with_counts_of(self, other: &Self) -> Self {
        Self {
            round_trip: Duration::ZERO,
            streams_open: 0,
            packets_sent: self.packets_sent + other.packets_sent,
            packets_lost: self.packets_lost + other.packets_lost,
            wire_bytes_sent: self.wire_bytes_sent + other.wire_bytes_sent,
            wire_bytes_received: self.wire_bytes_received + other.wire_bytes_received,
            stream_bytes_sent: self.stream_bytes_sent + other.stream_bytes_sent,
            stream_bytes_received: self.stream_bytes_received + other.stream_bytes_received,
        }
    }
}

impl Drop for OpenLink {
    fn drop(&mut self) {
        let mut peers = self.links.peers();
        let Some(peer) = peers.get_mut(&self.peer) else {
            return;
        };
        if let Some((_, read)) = peer.open.remove(&self.number) {
            peer.ended = peer.ended.with_counts_of(&read());
            peer.last_ended = Some(Instant::now());
        }
    }
}

/// The values of one peer at a scrape.
struct PeerReport {
    peer: String,
    opened: u64,
    open: usize,
    /// The number of open tunnels by carrier.
    open_by: Vec<(&'static str, usize)>,
    figures: Figures,
}

/// The names of the metrics of each peer.
struct MetricNames {
    tunnels: String,
    opened: String,
    streams: String,
    round_trip: String,
    packets_sent: String,
    packets_lost: String,
    wire_bytes: String,
    stream_bytes: String,
}

impl MetricNames {
    fn new(prefix: &str) -> Self {
        Self {
            tunnels: format!("{prefix}_tunnels"),
            opened: format!("{prefix}_tunnels_opened_total"),
            streams: format!("{prefix}_streams_active"),
            round_trip: format!("{prefix}_round_trip_seconds"),
            packets_sent: format!("{prefix}_packets_sent_total"),
            packets_lost: format!("{prefix}_packets_lost_total"),
            wire_bytes: format!("{prefix}_udp_bytes_total"),
            stream_bytes: format!("{prefix}_stream_bytes_total"),
        }
    }

    fn write(&self, text: &mut Exposition, label: &str, peers: &[PeerReport]) {
        let mut tunnels = text.gauge(&self.tunnels, "Tunnels that are open now, by carrier.");
        for report in peers {
            for (carrier, open) in &report.open_by {
                tunnels.sample(&[(label, &report.peer), ("carrier", carrier)], *open);
            }
        }
        let mut opened = text.counter(&self.opened, "Tunnels that were opened.");
        for report in peers {
            opened.sample(&[(label, &report.peer)], report.opened);
        }
        let help = "Streams that are open in the tunnels now, one for each request.";
        let mut streams = text.gauge(&self.streams, help);
        for report in peers {
            streams.sample(&[(label, &report.peer)], report.figures.streams_open);
        }
        let help = "Current estimate of the round trip, of the tunnel with the shortest one; absent without a tunnel.";
        let mut round_trip = text.gauge(&self.round_trip, help);
        for report in peers.iter().filter(|report| report.open > 0) {
            round_trip.sample(&[(label, &report.peer)], report.figures.round_trip.as_secs_f64());
        }
        let mut sent = text.counter(&self.packets_sent, "QUIC packets that this side has sent.");
        for report in peers {
            sent.sample(&[(label, &report.peer)], report.figures.packets_sent);
        }
        let help =
            "QUIC packets of this side that are considered lost; divided by those sent it is the loss rate.";
        let mut lost = text.counter(&self.packets_lost, help);
        for report in peers {
            lost.sample(&[(label, &report.peer)], report.figures.packets_lost);
        }
        let help = "Bytes of UDP payload by direction, sent or received by this side, all of QUIC included; of tunnels over TCP those of \
                    HTTP/2.";
        let mut wire = text.counter(&self.wire_bytes, help);
        for PeerReport { peer, figures, .. } in peers {
            wire.sample(&[(label, peer), ("direction", "sent")], figures.wire_bytes_sent);
            wire.sample(&[(label, peer), ("direction", "received")], figures.wire_bytes_received);
        }
        let help =
            "Bytes of streams by direction, sent or received by this side: heads and bodies of requests.";
        let mut streamed = text.counter(&self.stream_bytes, help);
        for PeerReport { peer, figures, .. } in peers {
            streamed.sample(&[(label, peer), ("direction", "sent")], figures.stream_bytes_sent);
            streamed.sample(&[(label, peer), ("direction", "received")], figures.stream_bytes_received);
        }
    }
}

#[cfg(test)]
mod tests;
