//! Gauges that are computed at each scrape: pools, queues and links as they are then.

use std::time::Instant;

use daemon::Metrics;
use daemon::metrics::exposition::Exposition;
use daemon::metrics::links::Links;

use crate::apiserver::{ApiServer, CONNECTIONS_MAX, PoolFigures};
use crate::config::Limits;
use crate::forward::FairQueue;

/// Registers the gauges of links, and of the connection pools of these API servers.
pub(super) fn observe<'a>(
    metrics: &Metrics,
    links: &Links,
    api_servers: impl Iterator<Item = &'a ApiServer>,
) {
    let (links, api_servers) = (links.clone(), api_servers.cloned().collect::<Vec<_>>());
    metrics.on_scrape(move |lines| {
        links.write(lines, Instant::now());
        let pools: Vec<PoolFigures> = api_servers.iter().map(ApiServer::pool_figures).collect();
        report_pools(lines, &pools);
    });
}

/// Registers the gauges of the queue for seats at the API server.
pub(super) fn observe_queue(metrics: &Metrics, queue: &FairQueue, limits: Limits) {
    let queue = queue.clone();
    metrics.on_scrape(move |lines| {
        let figures = queue.figures();
        let help = "Requests at the API server now, without long-running ones that have begun.";
        lines.gauge("tombolo_agent_seats_taken", help).sample(&[], figures.taken);
        let help = "Most requests at the API server at a time.";
        lines.gauge("tombolo_agent_seats_max", help).sample(&[], limits.requests);
        let help = "Requests that wait now for a seat at the API server.";
        lines.gauge("tombolo_agent_seats_waiting", help).sample(&[], figures.waiting);
        let help = "Most requests that wait for a seat.";
        lines.gauge("tombolo_agent_seats_waiting_max", help).sample(&[], limits.queue);
    });
}

fn report_pools(lines: &mut Exposition, pools: &[PoolFigures]) {
    let all = |figure: fn(&PoolFigures) -> usize| pools.iter().map(figure).sum::<usize>();
    let help =
        "Connections to the API server that are open or being dialed now, those for upgrades included.";
    lines.gauge("tombolo_agent_apiserver_connections", help).sample(&[], all(|pool| pool.connections));
    let help = "Most connections to the API server.";
    lines.gauge("tombolo_agent_apiserver_connections_max", help).sample(&[], CONNECTIONS_MAX * pools.len());
    let help = "Requests that run on HTTP/2 connections to the API server now.";
    lines.gauge("tombolo_agent_apiserver_streams_active", help).sample(&[], all(|pool| pool.streams));
    let help = "Requests that wait now for a connection to the API server.";
    lines.gauge("tombolo_agent_apiserver_requests_waiting", help).sample(&[], all(|pool| pool.waiting));
}
