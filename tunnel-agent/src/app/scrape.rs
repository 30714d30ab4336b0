//! What the agent is asked at each scrape: what merely is, and is counted by nobody.

use std::time::Instant;

use daemon::Metrics;
use daemon::metrics::lines::Lines;
use daemon::metrics::links::Links;

use crate::apiserver::{ApiServer, CONNECTIONS_MAX, PoolFigures};

/// Has `metrics` ask at each scrape.
pub(super) fn ask(metrics: &Metrics, links: &Links, api_server: &ApiServer) {
    let (links, api_server) = (links.clone(), api_server.clone());
    metrics.ask(move |lines| {
        links.tell(lines, Instant::now());
        tell_pool(lines, &api_server.pool_figures());
    });
}

fn tell_pool(lines: &mut Lines, pool: &PoolFigures) {
    let help =
        "Connections to the API server that are open or being dialed now, those for upgrades included.";
    lines.gauge("tombolo_agent_apiserver_connections", help).is(&[], pool.connections);
    let help = "Most connections to the API server.";
    lines.gauge("tombolo_agent_apiserver_connections_max", help).is(&[], CONNECTIONS_MAX);
    let help = "Requests that run on HTTP/2 connections to the API server now.";
    lines.gauge("tombolo_agent_apiserver_streams_active", help).is(&[], pool.streams);
    let help = "Requests that wait now for a place on a connection to the API server.";
    lines.gauge("tombolo_agent_apiserver_requests_waiting", help).is(&[], pool.waiting);
}
