//! What the links to each peer have carried and lost, over the tunnels that live and those that ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::lines::Lines;

/// Most peers that are told of; a tunnel to another one is counted nowhere here.
pub const PEERS_MAX: usize = 10_000;

/// How long a peer is told of after its last tunnel ended: long enough for several scrapes to find the last figures, and
/// for a short absence not to set counters back.
pub const KEPT: Duration = Duration::from_secs(300);

/// The links of all peers. Clones are the same.
#[derive(Clone)]
pub struct Links(Arc<Inner>);

struct Inner {
    names: Names,
    label: &'static str,
    peers: Mutex<BTreeMap<String, Peer>>,
}

/// Figures of one tunnel since it was opened, or of many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Current estimate of the round trip; of many, the shortest.
    pub round_trip: Duration,
    /// Streams that are open now.
    pub streams_open: u64,
    /// Packets that this side has sent.
    pub packets_sent: u64,
    /// Those of them that are taken for lost.
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

/// Counts a tunnel for as long as it is held.
#[must_use = "the tunnel counts as ended when this is dropped"]
pub struct OpenLink {
    links: Links,
    peer: String,
    number: u64,
}

/// Asks a tunnel for its figures.
type Read = Box<dyn Fn() -> Figures + Send + Sync>;

#[derive(Default)]
struct Peer {
    open: BTreeMap<u64, (&'static str, Read)>,
    /// What has carried a tunnel to it since it is told of.
    carriers: BTreeSet<&'static str>,
    opened: u64,
    /// Sums over the tunnels that ended.
    ended: Figures,
    last_ended: Option<Instant>,
}

impl Links {
    /// Links whose names begin with `prefix` and whose peer is named by `label`.
    #[must_use]
    pub fn new(prefix: &str, label: &'static str) -> Self {
        Self(Arc::new(Inner { names: Names::of(prefix), label, peers: Mutex::default() }))
    }

    /// Counts a tunnel to `peer` over `carrier`. `read` gives the tunnel's figures, also for a moment after it has ended.
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
            // Where nobody scrapes, nobody else forgets.
            peers.retain(|_, peer| !peer.is_forgotten(now));
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

    /// Forgets whom nothing was heard of for [`KEPT`], and tells of the others.
    pub fn tell(&self, lines: &mut Lines, now: Instant) {
        let Inner { names, label, .. } = &*self.0;
        names.tell(lines, label, &self.told(now));
    }

    fn told(&self, now: Instant) -> Vec<Told> {
        let mut peers = self.peers();
        peers.retain(|_, peer| !peer.is_forgotten(now));
        let told = peers.iter().map(|(name, peer)| Told {
            peer: name.clone(),
            opened: peer.opened,
            open: peer.open.len(),
            open_by: peer.open_by(),
            figures: peer.figures(),
        });
        told.collect()
    }

    fn peers(&self) -> MutexGuard<'_, BTreeMap<String, Peer>> {
        self.0.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer {
    fn is_forgotten(&self, now: Instant) -> bool {
        self.open.is_empty()
            && self.last_ended.is_none_or(|ended| now.saturating_duration_since(ended) >= KEPT)
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
    /// With another tunnel's counts added; what only a living tunnel has is nobody's.
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

/// What is told of a peer.
struct Told {
    peer: String,
    opened: u64,
    open: usize,
    /// The same by carrier.
    open_by: Vec<(&'static str, usize)>,
    figures: Figures,
}

/// The names of what is told of each peer.
struct Names {
    tunnels: String,
    opened: String,
    streams: String,
    round_trip: String,
    packets_sent: String,
    packets_lost: String,
    wire_bytes: String,
    stream_bytes: String,
}

impl Names {
    fn of(prefix: &str) -> Self {
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

    fn tell(&self, lines: &mut Lines, label: &str, peers: &[Told]) {
        let mut tunnels = lines.gauge(&self.tunnels, "Tunnels that are open now, by carrier.");
        for told in peers {
            for (carrier, open) in &told.open_by {
                tunnels.is(&[(label, &told.peer), ("carrier", carrier)], *open);
            }
        }
        let mut opened = lines.counter(&self.opened, "Tunnels that were opened.");
        for told in peers {
            opened.is(&[(label, &told.peer)], told.opened);
        }
        let help = "Streams that are open in the tunnels now, one for each exchange.";
        let mut streams = lines.gauge(&self.streams, help);
        for told in peers {
            streams.is(&[(label, &told.peer)], told.figures.streams_open);
        }
        let help = "Current estimate of the round trip, of the nearest tunnel; absent without one.";
        let mut round_trip = lines.gauge(&self.round_trip, help);
        for told in peers.iter().filter(|told| told.open > 0) {
            round_trip.is(&[(label, &told.peer)], told.figures.round_trip.as_secs_f64());
        }
        let mut sent = lines.counter(&self.packets_sent, "QUIC packets that this side has sent.");
        for told in peers {
            sent.is(&[(label, &told.peer)], told.figures.packets_sent);
        }
        let help = "QUIC packets of this side that are taken for lost; by those sent it is the loss.";
        let mut lost = lines.counter(&self.packets_lost, help);
        for told in peers {
            lost.is(&[(label, &told.peer)], told.figures.packets_lost);
        }
        let help = "Bytes of UDP payload by direction, sent or received by this side, all of QUIC included; of tunnels over TCP those of \
                    HTTP/2.";
        let mut wire = lines.counter(&self.wire_bytes, help);
        for Told { peer, figures, .. } in peers {
            wire.is(&[(label, peer), ("direction", "sent")], figures.wire_bytes_sent);
            wire.is(&[(label, peer), ("direction", "received")], figures.wire_bytes_received);
        }
        let help =
            "Bytes of streams by direction, sent or received by this side: heads and bodies of exchanges.";
        let mut streamed = lines.counter(&self.stream_bytes, help);
        for Told { peer, figures, .. } in peers {
            streamed.is(&[(label, peer), ("direction", "sent")], figures.stream_bytes_sent);
            streamed.is(&[(label, peer), ("direction", "received")], figures.stream_bytes_received);
        }
    }
}

#[cfg(test)]
mod tests;
