//! What the agent is asked at each scrape: what merely is, and is counted by nobody.

use std::time::Instant;

use daemon::Metrics;
use daemon::metrics::lines::Lines;
use daemon::metrics::links::Links;

use crate::apiserver::{ApiServer, CONNECTIONS_MAX, PoolFigures};
use crate::config::Limits;
use crate::forward::Turns;

/// Has `metrics` ask at each scrape; the API server has a pool for each of these.
pub(super) fn ask<'a>(metrics: &Metrics, links: &Links, api_servers: impl Iterator<Item = &'a ApiServer>) {
    let (links, api_servers) = (links.clone(), api_servers.cloned().collect::<Vec<_>>());
    metrics.ask(move |lines| {
        links.tell(lines, Instant::now());
        let pools: Vec<PoolFigures> = api_servers.iter().map(ApiServer::pool_figures).collect();
        tell_pools(lines, &pools);
    });
}

/// And for seats at the API server.
pub(super) fn ask_for_turns(metrics: &Metrics, turns: &Turns, limits: Limits) {
    let turns = turns.clone();
    metrics.ask(move |lines| {
        let figures = turns.figures();
        let help = "Requests that the API server is asked now, without what runs long and has begun.";
        lines.gauge("tombolo_agent_seats_taken", help).is(&[], figures.taken);
        let help = "Most of them.";
        lines.gauge("tombolo_agent_seats_max", help).is(&[], limits.requests);
        let help = "Requests that wait now for one of these to end.";
        lines.gauge("tombolo_agent_seats_waiting", help).is(&[], figures.waiting);
        let help = "Most that wait.";
        lines.gauge("tombolo_agent_seats_waiting_max", help).is(&[], limits.queue);
    });
}

fn tell_pools(lines: &mut Lines, pools: &[PoolFigures]) {
    let all = |figure: fn(&PoolFigures) -> usize| pools.iter().map(figure).sum::<usize>();
    let help =
        "Connections to the API server that are open or being dialed now, those for upgrades included.";
    lines.gauge("tombolo_agent_apiserver_connections", help).is(&[], all(|pool| pool.connections));
    let help = "Most connections to the API server.";
    lines.gauge("tombolo_agent_apiserver_connections_max", help).is(&[], CONNECTIONS_MAX * pools.len());
    let help = "Requests that run on HTTP/2 connections to the API server now.";
    lines.gauge("tombolo_agent_apiserver_streams_active", help).is(&[], all(|pool| pool.streams));
    let help = "Requests that wait now for a place on a connection to the API server.";
    lines.gauge("tombolo_agent_apiserver_requests_waiting", help).is(&[], all(|pool| pool.waiting));
}
