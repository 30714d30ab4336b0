//! Clusters as a table in kubectl's style.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use policy::may_advertise;
use proto::admin::{Cluster, Health, Measurements, Tunnel};

use crate::print::{listed, none, or_none};

/// The space between two columns.
const GAP: &str = "   ";

const USUAL: &[&str] = &["NAME", "HEALTH", "TUNNELS", "RTT", "LOSS", "STREAMS", "AGE", "LAST SEEN"];
const WIDE: &[&str] = &[
    "NAME",
    "HEALTH",
    "AGENT",
    "VERSION",
    "KUBERNETES",
    "CARRIER",
    "ADDRESS",
    "RTT",
    "LOSS",
    "STREAMS",
    "AGE",
    "HOME",
    "ENDPOINTS",
    "ACCEPTED",
    "CERTIFICATE",
    "SERVER",
];

/// The title of the further column of the usual shape where several servers share their records.
const SERVER: &str = "SERVER";

/// The columns of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// One row for each cluster.
    Usual,
    /// One row for each tunnel, and one for each cluster without tunnels.
    Wide,
}

/// The title of the further last column for `--show-labels`, as kubectl has it.
const LABELS: &str = "LABELS";

/// A table to which rows may be added later. Its columns never become narrower.
pub(super) struct Table {
    shape: Shape,
    has_labels: bool,
    /// The usual shape has the column SERVER, which the wide one always has. The first rows decide.
    has_servers: bool,
    widths: Vec<usize>,
    has_header: bool,
}

impl Table {
    /// A table of this shape, with a further last column for labels if `has_labels` is set.
    pub(super) fn new(shape: Shape, has_labels: bool) -> Self {
        Self { shape, has_labels, has_servers: false, widths: Vec::new(), has_header: false }
    }

    /// Formats these clusters as lines; the first call begins with the header.
    pub(super) fn rows(&mut self, clusters: &[Cluster], now: SystemTime) -> Vec<String> {
        let mut rows: Vec<Vec<String>> = Vec::new();
        if !self.has_header {
            let is_shared =
                clusters.iter().flat_map(|cluster| &cluster.tunnels).any(|tunnel| !tunnel.server.is_empty());
            self.has_servers = self.shape == Shape::Usual && is_shared;
            rows.push(self.titles());
            self.widths.resize(rows[0].len(), 0);
            self.has_header = true;
        }
        for cluster in clusters {
            let begin = rows.len();
            match self.shape {
                Shape::Usual => rows.push(cluster_row(cluster, now)),
                Shape::Wide if cluster.tunnels.is_empty() => rows.push(disconnected_row(cluster)),
                Shape::Wide => {
                    rows.extend(cluster.tunnels.iter().map(|tunnel| tunnel_row(cluster, tunnel, now)))
                }
            }
            if self.has_servers {
                rows[begin..].iter_mut().for_each(|row| row.push(listed(&servers(cluster))));
            }
            if self.has_labels {
                rows[begin..].iter_mut().for_each(|row| row.push(labels(cluster)));
            }
        }
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        rows.iter().map(|row| self.line(row)).collect()
    }

    fn titles(&self) -> Vec<String> {
        let servers = self.has_servers.then_some(&SERVER);
        let titles = self.shape.header().iter().chain(servers).chain(self.has_labels.then_some(&LABELS));
        titles.map(|title| (*title).to_owned()).collect()
    }

    fn line(&self, row: &[String]) -> String {
        let cells: Vec<String> =
            row.iter().zip(&self.widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join(GAP).trim_end().to_owned()
    }
}

impl Shape {
    fn header(self) -> &'static [&'static str] {
        match self {
            Self::Usual => USUAL,
            Self::Wide => WIDE,
        }
    }
}

/// The labels of a cluster in the order of their names, as kubectl shows them.
fn labels(cluster: &Cluster) -> String {
    let labels = cluster.description.iter().flat_map(|description| &description.labels);
    let mut labels: Vec<String> = labels.map(|(name, value)| format!("{name}={value}")).collect();
    labels.sort_unstable();
    listed(&labels)
}

fn cluster_row(cluster: &Cluster, now: SystemTime) -> Vec<String> {
    let measured = || cluster.tunnels.iter().filter_map(|tunnel| tunnel.measurements);
    let (sent, lost) = measured().fold((0, 0), |(sent, lost): (u64, u64), tunnel| {
        (sent.saturating_add(tunnel.packets_sent), lost.saturating_add(tunnel.packets_lost))
    });
    let streams: u64 = measured().map(|tunnel| u64::from(tunnel.streams_open)).sum();
    let since = cluster.tunnels.iter().filter_map(|tunnel| tunnel.since).map(|since| since.seconds).min();
    let is_away = cluster.tunnels.is_empty();
    let shown = |text: String| if is_away { none() } else { text };
    vec![
        cluster.name.clone(),
        cluster_health(cluster).to_owned(),
        cluster.tunnels.len().to_string(),
        // The lowest, because that tunnel is used.
        measured().filter_map(|tunnel| round_trip(&tunnel)).min().map_or_else(none, milliseconds),
        shown(loss(sent, lost)),
        shown(streams.to_string()),
        since.map_or_else(none, |since| ago(since, now)),
        if is_away {
            time(cluster.last_seen).map_or_else(none, |seen| format!("{} ago", ago(seen, now)))
        } else {
            "now".to_owned()
        },
    ]
}

fn tunnel_row(cluster: &Cluster, tunnel: &Tunnel, now: SystemTime) -> Vec<String> {
    let measured = tunnel.measurements.unwrap_or_default();
    vec![
        cluster.name.clone(),
        health(tunnel).to_owned(),
        tunnel.agent.clone(),
        or_none(&tunnel.version),
        or_none(&cluster.kubernetes_version),
        or_none(&tunnel.carrier),
        or_none(&tunnel.address),
        round_trip(&measured).map_or_else(none, milliseconds),
        loss(measured.packets_sent, measured.packets_lost),
        measured.streams_open.to_string(),
        time(tunnel.since).map_or_else(none, |since| ago(since, now)),
        // Another server does not tell its runtime.
        if tunnel.carrier.is_empty() { none() } else { tunnel.home.to_string() },
        listed(&tunnel.endpoints),
        listed(&accepted(cluster, tunnel)),
        listed(&certificate_names(tunnel)),
        or_none(&tunnel.server),
    ]
}

/// The endpoints of the tunnel's agent that its cluster may advertise.
pub(super) fn accepted(cluster: &Cluster, tunnel: &Tunnel) -> Vec<String> {
    let allowed =
        cluster.description.as_ref().map_or(&[][..], |description| description.advertise.as_slice());
    let may = |endpoint: &&String| {
        let endpoint = endpoint.parse();
        endpoint.is_ok_and(|endpoint| allowed.iter().any(|entry| may_advertise(entry, &endpoint)))
    };
    tunnel.endpoints.iter().filter(may).cloned().collect()
}

/// The names in the certificates of the tunnel's API servers, each once.
fn certificate_names(tunnel: &Tunnel) -> Vec<String> {
    let names = tunnel.certificates.iter().flat_map(|certificate| &certificate.names);
    let mut each_once: Vec<String> = Vec::new();
    for name in names {
        if !each_once.contains(name) {
            each_once.push(name.clone());
        }
    }
    if tunnel.certificates.iter().any(|certificate| certificate.cut) {
        each_once.push("...".to_owned());
    }
    each_once
}

/// The servers that have the cluster's tunnels, in the order of their IDs.
fn servers(cluster: &Cluster) -> Vec<String> {
    let servers: BTreeSet<&str> = cluster.tunnels.iter().map(|tunnel| tunnel.server.as_str()).collect();
    servers.into_iter().filter(|server| !server.is_empty()).map(str::to_owned).collect()
}

fn disconnected_row(cluster: &Cluster) -> Vec<String> {
    let mut row = vec![cluster.name.clone(), cluster_health(cluster).to_owned(), none(), none()];
    row.push(or_none(&cluster.kubernetes_version));
    row.resize_with(WIDE.len(), none);
    row
}

/// The health of the best tunnel, because that tunnel is used.
pub(super) fn cluster_health(cluster: &Cluster) -> &'static str {
    let best = ["Live", "Suspect", "Draining", "Lost", "Unknown"];
    let found = |wanted: &&str| cluster.tunnels.iter().any(|tunnel| health(tunnel) == *wanted);
    best.into_iter().find(found).unwrap_or("Away")
}

fn health(tunnel: &Tunnel) -> &'static str {
    match tunnel.health() {
        Health::Lost => "Lost",
        Health::Live | Health::Suspect if tunnel.draining => "Draining",
        // Somebody else uses the agent's certificate too.
        Health::Live | Health::Suspect if tunnel.key_copied => "Copied",
        Health::Live => "Live",
        Health::Suspect => "Suspect",
        Health::Unspecified => "Unknown",
    }
}

pub(super) fn round_trip(measured: &Measurements) -> Option<Duration> {
    measured.round_trip.and_then(|round_trip| round_trip.try_into().ok())
}

/// The time in whole seconds since 1970.
pub(super) fn time(time: Option<prost_types::Timestamp>) -> Option<i64> {
    time.map(|time| time.seconds)
}

fn milliseconds(round_trip: Duration) -> String {
    match round_trip.as_micros() {
        micros @ 0..10_000 => format!("{}.{}ms", micros / 1000, micros % 1000 / 100),
        micros => format!("{}ms", micros / 1000),
    }
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn loss(sent: u64, lost: u64) -> String {
    match (sent, lost) {
        (0, _) => none(),
        (_, 0) => "0%".to_owned(),
        (sent, lost) => match lost as f64 * 100.0 / sent as f64 {
            percent if percent < 0.1 => "<0.1%".to_owned(),
            percent if percent < 10.0 => format!("{percent:.1}%"),
            percent => format!("{percent:.0}%"),
        },
    }
}

/// An age in at most two units, as kubectl shows it.
fn ago(unix_seconds: i64, now: SystemTime) -> String {
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seconds = now.saturating_sub(u64::try_from(unix_seconds).unwrap_or(0));
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 if seconds % 60 > 0 => format!("{minutes}m{}s", seconds % 60),
        120..10_800 => format!("{minutes}m"),
        10_800..28_800 if minutes % 60 > 0 => format!("{hours}h{}m", minutes % 60),
        10_800..172_800 => format!("{hours}h"),
        172_800..691_200 if hours % 24 > 0 => format!("{days}d{}h", hours % 24),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests;
