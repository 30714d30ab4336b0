//! What the server is asked at each scrape: what merely is, and is counted by nobody.

use std::sync::Arc;
use std::time::Instant;

use audit::Log;
use daemon::Metrics;
use daemon::metrics::lines::Lines;
use daemon::metrics::links::Links;
use transport::{Buffers, Carrier};

use super::Bound;
use crate::config::ListenerTotals;
use crate::directory;
use crate::listener::{Counts, Listener, Tally};
use crate::metrics::{Census, Known};
use crate::registry::{Listed, Places, Registry, TUNNELS_MAX};
use crate::shares::{EXCHANGES_MAX, Use};

/// Has `metrics` ask at each scrape.
pub(super) fn ask(metrics: &Metrics, bound: &Bound, at_doors: ListenerTotals, links: Links) {
    metrics.ask(move |lines| links.tell(lines, Instant::now()));
    let (registry, census) = (bound.registry.clone(), Census::default());
    metrics.ask(move |lines| tell_clusters(lines, &registry, &census));
    let counts: Vec<_> =
        [Some(&bound.listener), bound.agents.as_ref()].into_iter().flatten().map(Listener::counts).collect();
    let reception = bound.reception.clone();
    metrics.ask(move |lines| {
        let tally = counts.iter().map(|counts| counts.now()).reduce(Tally::with).unwrap_or_default();
        tell_doors(lines, &tally, reception.handshakes(), at_doors);
    });
    let places = bound.gateway.places();
    metrics.ask(move |lines| tell_parking(lines, &places));
    let gateway = bound.gateway.clone();
    let of_ways_in = bound.ways_in.uses();
    metrics.ask(move |lines| {
        tell_limits(lines, &gateway.uses().into_iter().chain(of_ways_in()).collect::<Vec<_>>());
    });
    let log = bound.log.clone();
    metrics.ask(move |lines| tell_audit(lines, &log));
    let buffers = bound.endpoint.buffers();
    metrics.ask(move |lines| tell_buffers(lines, buffers));
}

/// Has `metrics` ask the admin API's door to other machines at each scrape, if there is one.
pub(super) fn ask_admins(metrics: &Metrics, counts: Option<Arc<Counts>>) {
    metrics.ask(move |lines| {
        let tally = counts.as_ref().map(|counts| counts.now()).unwrap_or_default();
        let help = "Connections to the admin API from other machines, by what became of them.";
        tell_connections(lines, "tombolo_server_admin_connections_total", help, &tally);
        let help = "Connections to the admin API from other machines that are open now.";
        lines.gauge("tombolo_server_admin_connections_active", help).is(&[], tally.connections_open);
    });
}

fn tell_connections(lines: &mut Lines, name: &str, help: &str, tally: &Tally) {
    lines
        .counter(name, help)
        .is(&[("outcome", "accepted")], tally.accepted)
        .is(&[("outcome", "turned_away")], tally.turned_away)
        .is(&[("outcome", "handshake_failed")], tally.handshake_failed)
        .is(&[("outcome", "accept_failed")], tally.accept_failed)
        .is(&[("outcome", "source_limited")], tally.source_limited);
}

fn tell_clusters(lines: &mut Lines, registry: &Registry, census: &Census) {
    let listed = registry.list(|_, _| true);
    census.tell(lines, &listed.iter().map(known).collect::<Vec<_>>(), Instant::now());
    let mut tunnels =
        lines.gauge("tombolo_server_tunnels", "Tunnels of all clusters that are open now, by carrier.");
    for carrier in [Carrier::Quic, Carrier::Http2] {
        let carried =
            listed.iter().flat_map(|listed| &listed.tunnels).filter(|tunnel| tunnel.carrier == carrier);
        tunnels.is(&[("carrier", carrier.as_str())], carried.count());
    }
    lines.gauge("tombolo_server_tunnels_max", "Most tunnels of all clusters.").is(&[], TUNNELS_MAX);
    let help = "Clusters that this server knows, made or met.";
    lines.gauge("tombolo_server_clusters", help).is(&[], listed.len());
    let help = "Most clusters that are known.";
    lines.gauge("tombolo_server_clusters_max", help).is(&[], directory::CLUSTERS_MAX);
    let help = "Most requests that are served at once.";
    lines.gauge("tombolo_server_exchanges_max", help).is(&[], EXCHANGES_MAX);
}

fn known(listed: &Listed) -> Known {
    let mut agents: Vec<&str> = listed.tunnels.iter().map(|tunnel| tunnel.agent.instance()).collect();
    agents.sort_unstable();
    agents.dedup();
    Known { cluster: listed.cluster.clone(), connected: listed.is_reachable(), agents: agents.len() }
}

fn tell_doors(lines: &mut Lines, callers: &Tally, agents_shaking: usize, most: ListenerTotals) {
    let help = "Connections at the TCP doors by what became of them: accepted, turned_away for want of a place, \
                handshake_failed, accept_failed in the system, or source_limited for too many of its source and no \
                certificate.";
    tell_connections(lines, "tombolo_server_connections_total", help, callers);
    let help = "Connections without a certificate of the source that has most of them.";
    lines.gauge("tombolo_server_connections_of_source", help).is(&[], callers.source_most);
    let help = "Connections of callers that are open now, all that shake hands by TCP included.";
    lines.gauge("tombolo_server_connections_active", help).is(&[], callers.connections_open);
    let help = "Most connections to one TCP door at once.";
    lines.gauge("tombolo_server_connections_max", help).is(&[], most.gateway.connections);
    let help = "Most handshakes in progress at once, by door.";
    lines
        .gauge("tombolo_server_handshakes_max", help)
        .is(&[("door", "callers")], most.gateway.handshakes)
        .is(&[("door", "agents")], most.agents.handshakes);
    let help = "Handshakes in progress now, by door; an agent's greeting is part of it.";
    lines
        .gauge("tombolo_server_handshakes_active", help)
        .is(&[("door", "callers")], callers.handshakes_open)
        .is(&[("door", "agents")], agents_shaking);
}

fn tell_limits(lines: &mut Lines, uses: &[Use]) {
    let help = "What one caller or one cluster may have at most, by limit.";
    let mut most = lines.gauge("tombolo_server_limit", help);
    for Use { limit, max, .. } in uses {
        most.is(&[("limit", limit)], *max);
    }
    let help = "What the caller, or the cluster, has that has most, by limit.";
    let mut used = lines.gauge("tombolo_server_limit_used", help);
    for Use { limit, most, .. } in uses {
        used.is(&[("limit", limit)], *most);
    }
}

fn tell_parking(lines: &mut Lines, places: &Places) {
    let help = "Requests that wait now for a cluster that is away.";
    lines.gauge("tombolo_server_requests_parked", help).is(&[], places.taken());
    let help = "Most requests that wait at once, of all clusters.";
    lines.gauge("tombolo_server_requests_parked_max", help).is(&[], places.most());
    let ended = places.ended();
    lines
        .counter(
            "tombolo_server_requests_parked_total",
            "Requests that waited for a cluster that was away, by how that ended: served when it came back, gave_up at \
             their limit, hung_up by their callers, or turned_away because no place was left.",
        )
        .is(&[("outcome", "served")], ended.served)
        .is(&[("outcome", "gave_up")], ended.gave_up)
        .is(&[("outcome", "hung_up")], ended.hung_up)
        .is(&[("outcome", "turned_away")], ended.turned_away);
}

/// Nothing where nothing is recorded.
fn tell_audit(lines: &mut Lines, log: &Log) {
    let Some(figures) = log.figures() else { return };
    let mut count = |name: &str, help: &str, count: u64| {
        lines.counter(name, help).is(&[], count);
    };
    count("tombolo_server_audit_lines_total", "Lines of the audit log that were written.", figures.lines);
    count("tombolo_server_audit_bytes_total", "Their bytes.", figures.bytes);
    let help = "Requests that were not served because the audit log could not be written.";
    count("tombolo_server_audit_refused_total", help, figures.refused);
    let help = "How often the audit log could no longer be written.";
    count("tombolo_server_audit_failures_total", help, figures.failures);
    count("tombolo_server_audit_checkpoints_total", "Checkpoints that were signed.", figures.checkpoints);
    count("tombolo_server_audit_files_total", "Files of the audit log that were begun.", figures.files);
    let help = "Requests of callers who did not prove who they are, told of together.";
    count("tombolo_server_audit_strangers_total", help, figures.strangers);
    let help = "Whether the audit log cannot be written now, and nothing new is served.";
    lines.gauge("tombolo_server_audit_failing", help).is(&[], usize::from(figures.is_failing));
    let help = "Lines that wait to be written.";
    lines.gauge("tombolo_server_audit_waiting", help).is(&[], figures.waiting);
    let help = "Exchanges whose intent is in the audit log and whose completion is not yet.";
    lines.gauge("tombolo_server_audit_open", help).is(&[], figures.open);
}

fn tell_buffers(lines: &mut Lines, buffers: Buffers) {
    lines
        .gauge(
            "tombolo_server_udp_buffer_bytes",
            "What the kernel gave the UDP socket for each direction; below a megabyte bulk transfers suffer.",
        )
        .is(&[("direction", "receive")], buffers.receive)
        .is(&[("direction", "send")], buffers.send);
}
