//! Metrics that are read from the server's state at each scrape.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use audit::Log;
use daemon::Metrics;
use daemon::metrics::exposition::Exposition;
use daemon::metrics::links::Links;
use transport::{Buffers, Carrier};

use super::BoundServer;
use crate::clocks::Clocks;
use crate::config::{LimitsConfig, ListenerTotals};
use crate::limits::LimitUsage;
use crate::listener::{CounterValues, Counters, Listener};
use crate::metrics::{AgentVersions, ClusterConnectivity, ClusterGauges};
use crate::registry::{ClusterStatus, OwnServer, Registry, WaitQueue};

/// Registers the readings of all scrapes but those of the admin API.
pub(super) fn register(metrics: &Metrics, bound: &BoundServer, limits: LimitsConfig, links: Links) {
    metrics.on_scrape(move |lines| links.write(lines, Instant::now()));
    let (registry, gauges) = (bound.registry.clone(), ClusterGauges::default());
    let versions = AgentVersions::default();
    metrics.on_scrape(move |lines| {
        write_clusters(lines, &registry, &gauges, &versions);
        let help = "The limit on requests that are served at once.";
        lines.gauge("tombolo_server_requests_max", help).sample(&[], limits.server.requests);
    });
    let counters: Vec<_> = [Some(&bound.listener), bound.agents.as_ref()]
        .into_iter()
        .flatten()
        .map(Listener::counters)
        .collect();
    let agent_listener = bound.agent_listener.clone();
    metrics.on_scrape(move |lines| {
        let values =
            counters.iter().map(|counters| counters.values()).reduce(CounterValues::sum).unwrap_or_default();
        write_listeners(lines, &values, agent_listener.handshakes(), limits.listeners);
    });
    let queue = bound.gateway.places();
    metrics.on_scrape(move |lines| write_parking(lines, &queue));
    let gateway = bound.gateway.clone();
    let of_entry_points = bound.entry_points.usage();
    metrics.on_scrape(move |lines| {
        write_limits(lines, &gateway.uses().into_iter().chain(of_entry_points()).collect::<Vec<_>>());
    });
    let log = bound.log.clone();
    metrics.on_scrape(move |lines| write_audit(lines, &log));
    let own = bound.own_server.clone();
    metrics.on_scrape(move |lines| write_peers(lines, &own));
    let buffers = bound.endpoint.buffers();
    metrics.on_scrape(move |lines| write_buffers(lines, buffers));
}

/// Registers the readings of listeners beside the gateway's, by name. Those of a listener that is not configured are zero.
pub(super) fn register_listeners(metrics: &Metrics, listeners: Vec<(&'static str, Option<Arc<Counters>>)>) {
    metrics.on_scrape(move |lines| {
        let help = "Connections at the listeners beside the gateway's, by listener and outcome.";
        let mut samples = lines.counter("tombolo_server_listener_connections_total", help);
        for (name, counters) in &listeners {
            let values = counters.as_ref().map(|counters| counters.values()).unwrap_or_default();
            for (outcome, count) in outcomes(&values) {
                samples.sample(&[("listener", name), ("outcome", outcome)], count);
            }
        }
    });
}

/// Registers the reading of the other servers' clocks, and returns them.
pub(super) fn register_clocks(metrics: &Metrics, clocks: Clocks) -> Clocks {
    let read = clocks.clone();
    metrics.on_scrape(move |lines| {
        let help = "The largest difference between this server's clock and that of another one, in seconds.";
        let difference = read.difference().as_secs_f64();
        lines.gauge("tombolo_server_clock_difference_seconds", help).sample(&[], difference);
        let help = "1 while this server issues no certificate, because its clock may be wrong, otherwise 0.";
        let is_apart = u64::from(read.agree().is_err());
        lines.gauge("tombolo_server_certificates_withheld", help).sample(&[], is_apart);
    });
    clocks
}

/// Registers the readings of the admin API's remote listener, if there is one.
pub(super) fn register_admin(metrics: &Metrics, counters: Option<Arc<Counters>>) {
    metrics.on_scrape(move |lines| {
        let values = counters.as_ref().map(|counters| counters.values()).unwrap_or_default();
        let help = "Connections to the admin API from other machines, by outcome.";
        write_connections(lines, "tombolo_server_admin_connections_total", help, &values);
        let help = "Connections to the admin API from other machines that are open now.";
        lines.gauge("tombolo_server_admin_connections_active", help).sample(&[], values.connections_open);
    });
}

fn write_connections(lines: &mut Exposition, name: &str, help: &str, values: &CounterValues) {
    let mut samples = lines.counter(name, help);
    for (outcome, count) in outcomes(values) {
        samples.sample(&[("outcome", outcome)], count);
    }
}

/// The connections of a listener, by outcome.
fn outcomes(values: &CounterValues) -> [(&'static str, u64); 6] {
    [
        ("accepted", values.accepted),
        ("turned_away", values.turned_away),
        ("handshake_failed", values.handshake_failed),
        ("accept_failed", values.accept_failed),
        ("source_limited", values.source_limited),
        ("certificate_limited", values.certificate_limited),
    ]
}

fn write_clusters(
    lines: &mut Exposition,
    registry: &Registry,
    gauges: &ClusterGauges,
    versions: &AgentVersions,
) {
    let (listed, now) = (registry.list(|_, _| true), Instant::now());
    gauges.write(lines, &listed.iter().map(connectivity).collect::<Vec<_>>(), now);
    let mut by_version: BTreeMap<&str, usize> = BTreeMap::new();
    for version in listed.iter().flat_map(|listed| listed.agent_versions().into_values()) {
        *by_version.entry(version).or_default() += 1;
    }
    versions.write(lines, &by_version, now);
    let mut tunnels =
        lines.gauge("tombolo_server_tunnels", "Tunnels of all clusters that are open now, by carrier.");
    for carrier in [Carrier::Quic, Carrier::Http2] {
        let carried =
            listed.iter().flat_map(|listed| &listed.tunnels).filter(|tunnel| tunnel.carrier == carrier);
        tunnels.sample(&[("carrier", carrier.as_str())], carried.count());
    }
    lines
        .gauge("tombolo_server_tunnels_max", "The limit on tunnels of all clusters.")
        .sample(&[], registry.tunnels_max());
    let help = "Clusters that this server knows, created or seen.";
    lines.gauge("tombolo_server_clusters", help).sample(&[], listed.len());
    let help = "The limit on known clusters.";
    lines.gauge("tombolo_server_clusters_max", help).sample(&[], registry.directory().clusters_max());
    let help = "Time since which changes by other servers may be unknown here.";
    let age = registry.directory().age().as_secs_f64();
    lines.gauge("tombolo_server_directory_age_seconds", help).sample(&[], age);
}

fn write_peers(lines: &mut Exposition, own: &OwnServer) {
    let (reach, differences) = (own.reach(), own.differences());
    let help = "Other servers that are registered and take sessions, by the state of the session that each has with this one.";
    lines
        .gauge("tombolo_server_peers", help)
        .sample(&[("state", "connected")], reach.connected)
        .sample(&[("state", "silent")], reach.silent)
        .sample(&[("state", "missing")], reach.missing);
    let help = "Other servers whose policy in force or trust bundle is not the one of this server, by file.";
    lines
        .gauge("tombolo_server_peers_differing", help)
        .sample(&[("file", "policy")], differences.policy)
        .sample(&[("file", "trust_bundle")], differences.trust_bundle);
}

fn connectivity(listed: &ClusterStatus) -> ClusterConnectivity {
    ClusterConnectivity {
        cluster: listed.cluster.clone(),
        connected: listed.is_reachable(),
        agents: listed.agent_versions().len(),
    }
}

fn write_listeners(
    lines: &mut Exposition,
    callers: &CounterValues,
    agents_shaking: usize,
    most: ListenerTotals,
) {
    let help = "Connections at the TCP listeners, by outcome: accepted, turned_away (limit reached), \
                handshake_failed, accept_failed (error of the system), source_limited (too many of one source without a \
                certificate), or certificate_limited (too many with one certificate).";
    write_connections(lines, "tombolo_server_connections_total", help, callers);
    let help = "Connections without a certificate, of the source that has most of them.";
    lines.gauge("tombolo_server_connections_of_source", help).sample(&[], callers.busiest_source);
    let help = "Connections of callers that are open now, including all TCP handshakes in progress.";
    lines.gauge("tombolo_server_connections_active", help).sample(&[], callers.connections_open);
    let help = "The limit on connections to one TCP listener.";
    lines.gauge("tombolo_server_connections_max", help).sample(&[], most.gateway.connections);
    let help = "The limit on handshakes in progress, by listener.";
    lines
        .gauge("tombolo_server_handshakes_max", help)
        .sample(&[("listener", "callers")], most.gateway.handshakes)
        .sample(&[("listener", "agents")], most.agents.handshakes);
    let help = "Handshakes in progress now, by listener; an agent's greeting is part of its handshake.";
    lines
        .gauge("tombolo_server_handshakes_active", help)
        .sample(&[("listener", "callers")], callers.handshakes_open)
        .sample(&[("listener", "agents")], agents_shaking);
}

fn write_limits(lines: &mut Exposition, usage: &[LimitUsage]) {
    let help = "The value of each limit on callers and clusters, by limit.";
    let mut most = lines.gauge("tombolo_server_limit", help);
    for LimitUsage { limit, max, .. } in usage {
        most.sample(&[("limit", limit)], *max);
    }
    let help = "The highest use of each limit by any caller or cluster, by limit.";
    let mut used = lines.gauge("tombolo_server_limit_used", help);
    for LimitUsage { limit, most, .. } in usage {
        used.sample(&[("limit", limit)], *most);
    }
}

fn write_parking(lines: &mut Exposition, queue: &WaitQueue) {
    let help = "Requests that wait for a cluster that is away.";
    lines.gauge("tombolo_server_requests_parked", help).sample(&[], queue.waiting());
    let help = "The limit on waiting requests of all clusters.";
    lines.gauge("tombolo_server_requests_parked_max", help).sample(&[], queue.capacity());
    let outcomes = queue.outcomes();
    lines
        .counter(
            "tombolo_server_requests_parked_total",
            "Requests that waited for a cluster that was away, by outcome: served when it came back, gave_up at \
             their limit, hung_up by their callers, or turned_away because the queue was full.",
        )
        .sample(&[("outcome", "served")], outcomes.served)
        .sample(&[("outcome", "gave_up")], outcomes.gave_up)
        .sample(&[("outcome", "hung_up")], outcomes.hung_up)
        .sample(&[("outcome", "turned_away")], outcomes.turned_away);
}

/// Writes nothing if the audit log is off.
fn write_audit(lines: &mut Exposition, log: &Log) {
    let Some(figures) = log.figures() else { return };
    let mut count = |name: &str, help: &str, count: u64| {
        lines.counter(name, help).sample(&[], count);
    };
    count("tombolo_server_audit_lines_total", "Lines that were written to the audit log.", figures.lines);
    count("tombolo_server_audit_bytes_total", "Bytes that were written to the audit log.", figures.bytes);
    let help = "Requests that were not served because the audit log could not be written.";
    count("tombolo_server_audit_refused_total", help, figures.refused);
    let help = "Times that the audit log became unwritable.";
    count("tombolo_server_audit_failures_total", help, figures.failures);
    count(
        "tombolo_server_audit_checkpoints_total",
        "Checkpoints of the audit log that were signed.",
        figures.checkpoints,
    );
    count("tombolo_server_audit_files_total", "Files of the audit log that were started.", figures.files);
    let help = "Requests of unauthenticated clients, which the audit log counts together.";
    count("tombolo_server_audit_unauthenticated_total", help, figures.unauthenticated);
    let help = "1 if the audit log cannot be written and nothing new is served, else 0.";
    lines.gauge("tombolo_server_audit_failing", help).sample(&[], usize::from(figures.is_failing));
    let help = "Lines of the audit log that wait to be written.";
    lines.gauge("tombolo_server_audit_waiting", help).sample(&[], figures.waiting);
    let help = "Requests whose intent is in the audit log and whose completion is not there yet.";
    lines.gauge("tombolo_server_audit_open", help).sample(&[], figures.open);
}

fn write_buffers(lines: &mut Exposition, buffers: Buffers) {
    lines
        .gauge(
            "tombolo_server_udp_buffer_bytes",
            "The UDP socket's buffer as the kernel granted it, by direction; below a megabyte bulk transfers suffer.",
        )
        .sample(&[("direction", "receive")], buffers.receive)
        .sample(&[("direction", "send")], buffers.send);
}
