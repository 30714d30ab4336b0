//! Flows that compete for one bottleneck.

use super::super::sim::Cubic;
use super::*;

const RATE: u64 = 20 * MEGABIT;

/// The parts of the link that two flows have, the first from the beginning and the second from 3 s on.
fn parts(
    queue: f64,
    loss: f64,
    first: Box<dyn CongestionControl>,
    second: Box<dyn CongestionControl>,
    lasts: f64,
) -> [f64; 2] {
    let shared = LinkSpec { loss: Loss::Random(loss), ..link(RATE, ROUND_TRIP, queue) };
    let mut sim = Sim::new(shared, 5);
    sim.add(first, Demand::Bulk { from: Duration::ZERO });
    sim.add(second, Demand::Bulk { from: secs(3.0) });
    let ran = sim.run(secs(lasts));
    [0, 1].map(|flow: usize| ran.flows[flow].rate(between(lasts / 3.0, lasts)) / RATE as f64)
}

#[test]
fn two_flows_of_ours_have_at_least_a_third_each() {
    for queue in [0.2, 1.0, 4.0] {
        for loss in [0.0, 0.02] {
            let [first, second] = parts(queue, loss, ours(7), ours(8), 20.0);
            assert!(first.min(second) >= 0.33 && first + second >= 0.9, "{queue} {loss}: {first} {second}");
        }
    }
}

/// One product most of the time, two and a half at the peak.
#[test]
fn two_flows_of_ours_queue_one_product_and_at_most_two_and_a_half() {
    let mut sim = Sim::new(link(RATE, ROUND_TRIP, 10.0), 5);
    sim.add(ours(7), Demand::Bulk { from: Duration::ZERO });
    sim.add(ours(8), Demand::Bulk { from: secs(3.0) });
    let ran = sim.run(secs(20.0));
    let wait = ran.longest_wait(between(6.0, 20.0));
    let half = ran.flows[0].small(0.5, between(6.0, 20.0));
    assert!(half <= ROUND_TRIP * 2 && wait <= ROUND_TRIP.mul_f64(2.5), "{wait:?} {half:?}");
}

#[test]
fn neither_we_nor_a_cubic_flow_starve_beside_each_other() {
    // A queue below half a product is left out: each probe of ours overflows it, and CUBIC keeps 7 % of the
    // link.
    for queue in [0.5, 1.0, 2.0, 4.0] {
        let [ours_first, cubic] = parts(queue, 0.0, ours(7), Box::new(Cubic::new()), 40.0);
        assert!(ours_first.min(cubic) >= 0.2, "{queue}: ours {ours_first}, then CUBIC {cubic}");
        let [cubic, ours_second] = parts(queue, 0.0, Box::new(Cubic::new()), ours(7), 40.0);
        assert!(ours_second.min(cubic) >= 0.2, "{queue}: CUBIC {cubic}, then ours {ours_second}");
    }
}

#[test]
fn a_cubic_flow_has_beside_us_what_it_has_alone_where_packets_are_lost() {
    let [_, beside] = parts(2.0, 0.01, ours(7), Box::new(Cubic::new()), 20.0);
    let mut sim = Sim::new(LinkSpec { loss: Loss::Random(0.01), ..link(RATE, ROUND_TRIP, 2.0) }, 5);
    sim.add(Box::new(Cubic::new()), Demand::Bulk { from: Duration::ZERO });
    let alone = sim.run(secs(20.0)).flows[0].rate(between(7.0, 20.0)) / RATE as f64;
    assert!(beside >= alone * 0.7, "{beside} beside us, {alone} alone");
}
