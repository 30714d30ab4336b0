//! The metrics, under names that begin with `tombolo_lb_`. `docs/metrics.md` has all of them.
//!
//! All are read at a scrape. Those of an API server exist as long as it is known, at most 32 at a time.

use std::net::SocketAddr;
use std::sync::Arc;

use daemon::Metrics;
use daemon::metrics::exposition::Exposition;

use crate::balancer::{Balancer, HandoverResult};
use crate::members::{ConnectionResult, Grade, Member, Source, Traffic};

/// The figures of one API server.
struct Figures {
    address: String,
    grade: Grade,
    is_named: bool,
    round_trip: Option<f64>,
    traffic: Arc<Traffic>,
}

/// Registers all metrics of the load balancer, which has these sources.
pub fn observe(metrics: &Metrics, balancer: &Balancer, sources: Vec<Source>) {
    let balancer = balancer.clone();
    metrics.on_scrape(move |lines| {
        let figures: Vec<Figures> = balancer.read(|members| members.iter().map(Figures::new).collect());
        write_states(lines, &figures);
        write_connections(lines, &figures);
        write_totals(lines, &balancer, &sources);
    });
}

impl Figures {
    fn new(member: &Member) -> Self {
        let address: SocketAddr = member.address;
        Self {
            address: address.to_string(),
            grade: member.grade(),
            is_named: member.is_named(),
            round_trip: member.round_trip().map(|time| time.as_secs_f64()),
            traffic: Arc::clone(&member.traffic),
        }
    }
}

fn write_states(lines: &mut Exposition, figures: &[Figures]) {
    let help = "API servers that are known, by their state.";
    let mut family = lines.gauge("tombolo_lb_api_servers", help);
    for grade in Grade::ALL {
        let count = figures.iter().filter(|one| one.grade == grade).count();
        family.sample(&[("state", grade.label())], count);
    }
    let help = "1 for the state of the API server, 0 for the others.";
    let mut family = lines.gauge("tombolo_lb_api_server_state", help);
    for one in figures {
        for grade in Grade::ALL {
            let labels = [("api_server", one.address.as_str()), ("state", grade.label())];
            family.sample(&labels, u8::from(one.grade == grade));
        }
    }
    let help = "1 for an API server that no source names any more, which is a last resort for 24 hours.";
    let mut family = lines.gauge("tombolo_lb_api_server_last_resort", help);
    for one in figures {
        family.sample(&[("api_server", &one.address)], u8::from(!one.is_named));
    }
    let help = "Shortest round trip of the connections of the last probes, as the kernel has measured it.";
    let mut family = lines.gauge("tombolo_lb_round_trip_seconds", help);
    for one in figures {
        if let Some(seconds) = one.round_trip {
            family.sample(&[("api_server", &one.address)], seconds);
        }
    }
}

fn write_connections(lines: &mut Exposition, figures: &[Figures]) {
    let help = "Connections of callers that are relayed to the API server or dialed now.";
    let mut family = lines.gauge("tombolo_lb_connections", help);
    for one in figures {
        family.sample(&[("api_server", &one.address)], one.traffic.connections());
    }
    let help = "Connections to the API server that have ended, and dials that failed, by result.";
    let mut family = lines.counter("tombolo_lb_connections_total", help);
    for one in figures {
        for result in ConnectionResult::ALL {
            let labels = [("api_server", one.address.as_str()), ("result", result.label())];
            family.sample(&labels, one.traffic.counted(*result));
        }
    }
    let help = "Bytes that were relayed to and from the API server.";
    let mut family = lines.counter("tombolo_lb_bytes_total", help);
    for one in figures {
        let (to, from) = one.traffic.bytes();
        family.sample(&[("api_server", &one.address), ("direction", "to")], to);
        family.sample(&[("api_server", &one.address), ("direction", "from")], from);
    }
}

fn write_totals(lines: &mut Exposition, balancer: &Balancer, sources: &[Source]) {
    let help = "Time since the source of API servers was last read or written, or since the start.";
    let mut family = lines.gauge("tombolo_lb_source_age_seconds", help);
    for source in sources {
        family.sample(&[("source", source.label())], balancer.source_age(*source).as_secs_f64());
    }
    let (moves, refused) = balancer.counts();
    let help =
        "Connections that were closed in a quiet moment, so that an API server that joined gets its share.";
    lines.counter("tombolo_lb_moves_total", help).sample(&[], moves);
    let help = "Connections of callers that were refused: no API server was found, or the caller is no pod of pods.networks.";
    lines.counter("tombolo_lb_connections_refused_total", help).sample(&[], refused);
    let help = "Handovers between processes of node-lb on this worker, by result.";
    let mut family = lines.counter("tombolo_lb_handovers_total", help);
    for result in HandoverResult::ALL {
        family.sample(&[("result", result.label())], balancer.handovers(*result));
    }
    let help = "Connections that the process before this one has handed over.";
    let mut family = lines.counter("tombolo_lb_connections_taken_over_total", help);
    family.sample(&[], balancer.connections_taken_over());
}
