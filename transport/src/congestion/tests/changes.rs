//! Links whose rate changes or which go dark, and applications that pause.

use super::*;

const FAST: u64 = 100 * MEGABIT;

/// 100 Mbit/s, then `low` from 5 s on, then 100 Mbit/s again from `back`.
fn stepping(low: u64, back: f64, queue: f64, loss: f64) -> LinkSpec {
    LinkSpec {
        rates: vec![(Duration::ZERO, FAST), (secs(5.0), low), (secs(back), FAST)],
        loss: Loss::Random(loss),
        ..link(FAST, ROUND_TRIP, queue)
    }
}

#[test]
fn a_link_that_recovers_from_256_kbit_is_used_within_two_seconds() {
    const LOW: u64 = 32_000;
    for loss in [0.0, 0.05] {
        let ran = alone(stepping(LOW, 30.0, 0.2, loss), 34.0);
        let flow = &ran.flows[0];
        let low = flow.rate(between(15.0, 30.0)) / LOW as f64;
        let high = flow.rate(between(32.0, 34.0)) / FAST as f64;
        assert!(low >= 0.9 && high >= 0.9, "{loss}: {low} of the low rate, {high} of the high one");
        // The packets that were under way when the rate fell have to pass first.
        let wait = ran.longest_wait(between(15.0, 29.0));
        assert!(wait <= secs(0.5), "{loss}: {wait:?}");
    }
}

/// The same holds when it returns to its full rate.
#[test]
fn a_link_that_drops_to_a_half_or_a_tenth_is_found_within_a_second() {
    for low in [FAST / 2, FAST / 10] {
        let ran = alone(stepping(low, 10.0, 1.0, 0.0), 13.0);
        let flow = &ran.flows[0];
        let below = flow.rate(between(6.0, 10.0)) / low as f64;
        let above = flow.rate(between(11.0, 13.0)) / FAST as f64;
        assert!(below >= 0.9 && above >= 0.9, "{low}: {below} {above}");
        let wait = ran.longest_wait(between(8.0, 10.0));
        assert!(wait <= ROUND_TRIP, "{low}: {wait:?}");
    }
}

/// The short queue shows the fall as loss.
#[test]
fn a_slower_link_with_a_short_queue_is_noticed_within_half_a_second() {
    let falling = LinkSpec {
        rates: vec![(Duration::ZERO, FAST), (secs(5.0), FAST * 3 / 10)],
        ..link(FAST, ROUND_TRIP, 0.1)
    };
    let ran = alone(falling, 8.0);
    let part = ran.flows[0].rate(between(6.0, 8.0)) / (FAST as f64 * 0.3);
    let (at_once, later) = (ran.overflows(between(5.0, 5.5)), ran.overflows(between(5.5, 8.0)));
    assert!(part >= 0.9 && later * 3 < at_once, "{part}, {at_once} packets too many, then {later}");
}

#[test]
fn a_far_link_that_becomes_100_times_faster_is_used_within_3_seconds() {
    let far = secs(0.2);
    let growing =
        LinkSpec { rates: vec![(Duration::ZERO, MEGABIT), (secs(15.0), FAST)], ..link(FAST, far, 0.3) };
    let part = alone(growing, 20.0).flows[0].rate(between(18.0, 20.0)) / FAST as f64;
    assert!(part >= 0.85, "{part}");
}

#[test]
fn after_an_outage_the_link_is_full_within_a_second_of_the_first_packet() {
    for lasted in [1.0, 30.0] {
        for loss in [0.0, 0.05] {
            let dark = Some((secs(5.0), secs(5.0 + lasted)));
            let ran = alone(LinkSpec { dark, loss: Loss::Random(loss), ..usual() }, 9.0 + lasted);
            // The first probe goes out within a quarter of a second.
            let part = ran.flows[0].rate(between(6.5 + lasted, 9.0 + lasted)) / FAST as f64;
            assert!(part >= 0.85, "{lasted} s dark, {loss}: {part}");
        }
    }
}

#[test]
fn a_link_that_comes_back_slower_is_not_flooded() {
    let slower = LinkSpec {
        rates: vec![(Duration::ZERO, FAST), (secs(6.0), MEGABIT)],
        dark: Some((secs(5.0), secs(8.0))),
        ..usual()
    };
    let ran = alone(slower, 12.0);
    // The packets in flight from before would take four seconds at the new rate.
    let wait = ran.longest_wait(between(8.0, 12.0));
    assert!(wait <= secs(1.0), "{wait:?}");
}

#[test]
fn an_application_that_pauses_does_not_inflate_the_window() {
    let product = FAST as f64 * ROUND_TRIP.as_secs_f64();
    for (bytes, every) in [(2_000, 0.01), (100_000, 0.1), (1_000_000, 1.0)] {
        let mut sim = Sim::new(usual(), 3);
        let until = secs(10.0);
        sim.add(ours(7), Demand::Ticks { bytes, every: secs(every), until });
        let ran = sim.run(secs(14.0));
        let flow = &ran.flows[0];
        let window = flow.window(between(5.0, 9.5)) as f64 / product;
        // Startup may have two products in flight, and bunches of acknowledgements add to that.
        assert!(window <= 2.5, "{bytes} bytes every {every} s: {window} products");
        let part = flow.rate(between(11.5, 14.0)) / FAST as f64;
        assert!(part >= 0.9, "{bytes} bytes every {every} s, then bulk: {part}");
    }
}

#[test]
fn the_model_is_kept_over_an_idle_time() {
    let mut sim = Sim::new(usual(), 3);
    // A megabyte is two products: once the link is known it takes little more than its own time.
    sim.add(ours(7), Demand::Ticks { bytes: 5_000_000, every: secs(4.0), until: secs(9.0) });
    let ran = sim.run(secs(10.0));
    let [first, last] = [0.0, 8.0].map(|from| ran.flows[0].rate(between(from, from + 0.3)));
    assert!(last >= first * 1.2, "{first} at first, {last} later");
}
