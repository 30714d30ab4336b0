//! Flows in both directions at once: each other's acknowledgements wait in the queues that they make.

use super::*;

/// A bulk flow each way, from the beginning; small requests that are sent beside the one are answered beside
/// the other.
fn both_ways(seed: u64) -> SimResult {
    let mut sim = Sim::both_ways(usual(), seed);
    sim.add(ours(seed + 7), Demand::Bulk { from: Duration::ZERO });
    sim.add_back(ours(seed + 8), Demand::Bulk { from: secs(1.0) });
    sim.run(secs(20.0))
}

#[test]
fn a_keystroke_beside_bulk_both_ways_takes_at_most_1_5_round_trips() {
    for seed in 0..6 {
        let ran = both_ways(seed);
        let measured = between(3.0, 20.0);
        let [half, most] = [0.5, 0.99].map(|part| ran.flows[0].small(part, measured.clone()));
        let wait = ran.longest_wait(measured.clone());
        assert!(half <= ROUND_TRIP.mul_f64(1.25), "{seed}: {half:?}");
        assert!(most <= ROUND_TRIP.mul_f64(1.5), "{seed}: {most:?}");
        assert!(wait <= ROUND_TRIP.mul_f64(0.6), "{seed}: {wait:?}");
        for flow in &ran.flows {
            let part = flow.rate(measured.clone()) / (100 * MEGABIT) as f64;
            assert!(part >= 0.9, "{seed}: {part}");
        }
    }
}

#[test]
fn the_startup_queue_against_another_transfer_is_gone_after_1_5_s() {
    for seed in 0..6 {
        let most = both_ways(seed).flows[0].small(0.99, between(2.5, 3.0));
        assert!(most <= ROUND_TRIP.mul_f64(1.75), "{seed}: {most:?}");
    }
}
