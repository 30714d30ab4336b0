//! The controller's goals, tested in simulated time: no test waits, and none depends on the machine.

mod both_directions;
mod changes;
mod competing;
mod goals;

use std::ops::Range;
use std::time::Duration;

use super::control::CongestionControl;
use super::loss_tolerant::LossTolerant;
use super::sim::{Demand, LinkSpec, Loss, Sim, SimResult};

/// Bytes a second in a megabit a second.
const MEGABIT: u64 = 125_000;

const ROUND_TRIP: Duration = Duration::from_millis(40);

/// Seeds of a link, and of the flow on it.
const USUAL_SEEDS: [u64; 2] = [3, 7];

fn secs(secs: f64) -> Duration {
    Duration::from_secs_f64(secs)
}

fn between(from: f64, until: f64) -> Range<Duration> {
    secs(from)..secs(until)
}

fn ours(seed: u64) -> Box<dyn CongestionControl> {
    Box::new(LossTolerant::new(1200, seed))
}

/// A link of `rate` bytes a second, whose queue holds `queue` bandwidth-delay products.
fn link(rate: u64, round_trip: Duration, queue: f64) -> LinkSpec {
    let product = rate as f64 * round_trip.as_secs_f64();
    LinkSpec {
        rates: vec![(Duration::ZERO, rate)],
        delay: round_trip / 2,
        jitter: Duration::ZERO,
        queue_bytes: ((product * queue) as u64).max(20 * 1200),
        loss: Loss::Random(0.0),
        dark: None,
        marks_after: None,
        acks_every: Duration::ZERO,
    }
}

/// 100 Mbit/s, 40 ms, with a queue of two products.
fn usual() -> LinkSpec {
    link(100 * MEGABIT, ROUND_TRIP, 2.0)
}

/// One bulk flow of ours, from the beginning.
fn alone(link: LinkSpec, lasts: f64) -> SimResult {
    alone_by(USUAL_SEEDS, link, lasts)
}

/// One bulk flow of ours, with other seeds.
fn alone_by([of_link, of_flow]: [u64; 2], link: LinkSpec, lasts: f64) -> SimResult {
    let mut sim = Sim::new(link, of_link);
    sim.add(ours(of_flow), Demand::Bulk { from: Duration::ZERO });
    sim.run(secs(lasts))
}
