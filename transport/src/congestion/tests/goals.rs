//! Goodput and delay on a link that does not change.

use super::*;

/// Goodput of a bulk flow of ours after its first two seconds, as a part of the link.
fn part(link: LinkSpec, lasts: f64) -> f64 {
    part_by(USUAL_SEEDS, link, lasts)
}

fn part_by(seeds: [u64; 2], link: LinkSpec, lasts: f64) -> f64 {
    let rate = link.rates[0].1 as f64;
    alone_by(seeds, link, lasts).flows[0].rate(between(2.0, lasts)) / rate
}

fn losing(part: f64) -> LinkSpec {
    LinkSpec { loss: Loss::Random(part), ..usual() }
}

#[test]
fn a_bulk_flow_fills_a_link_that_loses_nothing() {
    let part = part(losing(0.0), 8.0);
    assert!(part >= 0.95, "{part}");
}

#[test]
fn a_bulk_flow_keeps_its_goodput_at_one_per_cent_loss() {
    let part = part(losing(0.01), 8.0);
    assert!(part >= 0.95, "{part}");
}

#[test]
fn a_bulk_flow_keeps_its_goodput_at_five_per_cent_loss() {
    let part = part(losing(0.05), 8.0);
    assert!(part >= 0.90, "{part}");
}

#[test]
fn a_bulk_flow_keeps_its_goodput_at_ten_per_cent_loss() {
    let part = part(losing(0.10), 8.0);
    assert!(part >= 0.75, "{part}");
}

#[test]
fn a_bulk_flow_keeps_its_goodput_through_bursts_of_loss() {
    // Bad times of 20 packets, in which half are lost: 4.5 % in all.
    let bursts = LinkSpec { loss: Loss::Bursts { begins: 0.005, ends: 0.05, lost: 0.5 }, ..usual() };
    let part = part(bursts, 8.0);
    assert!(part >= 0.80, "{part}");
}

#[test]
fn a_shallow_queue_is_enough() {
    let part = part(link(100 * MEGABIT, ROUND_TRIP, 0.1), 8.0);
    assert!(part >= 0.95, "{part}");
}

#[test]
fn acknowledgements_in_bunches_leave_the_link_busy() {
    let part = part(LinkSpec { acks_every: secs(0.02), ..usual() }, 8.0);
    assert!(part >= 0.90, "{part}");
}

/// Mean of ten seeds, of which each varies by some hundredths.
fn jittered(jitter: f64) -> f64 {
    let link = LinkSpec { jitter: secs(jitter), ..usual() };
    (0..10).map(|seed| part_by([seed, seed + 7], link.clone(), 8.0)).sum::<f64>() / 10.0
}

#[test]
fn jitter_is_not_taken_for_a_queue() {
    let part = jittered(0.01);
    assert!(part >= 0.89, "{part}");
}

#[test]
fn a_path_that_one_product_does_not_fill_is_probed_in_full_steps() {
    let part = jittered(0.02);
    assert!(part >= 0.79, "{part}");
}

#[test]
fn a_probe_of_a_full_link_queues_at_most_a_sixth_of_a_round_trip() {
    let wait = alone(usual(), 12.0).longest_wait(between(4.0, 12.0));
    assert!(wait <= ROUND_TRIP / 6, "{wait:?}");
}

#[test]
fn a_small_request_beside_bulk_takes_at_most_1_5_round_trips() {
    let ran = alone(losing(0.0), 8.0);
    let [half, most] = [0.5, 0.99].map(|part| ran.flows[0].small(part, between(2.0, 8.0)));
    assert!(half <= ROUND_TRIP.mul_f64(1.1) && most <= ROUND_TRIP.mul_f64(1.5), "{half:?} {most:?}");
}

#[test]
fn at_five_per_cent_loss_a_small_request_waits_only_for_its_own_loss() {
    let ran = alone(losing(0.05), 8.0);
    let [half, most] = [0.5, 0.92].map(|part| ran.flows[0].small(part, between(2.0, 8.0)));
    assert!(half <= ROUND_TRIP.mul_f64(1.1) && most <= ROUND_TRIP.mul_f64(1.5), "{half:?} {most:?}");
}

#[test]
fn the_queue_stays_within_half_a_round_trip_however_much_it_would_hold() {
    let ran = alone(link(100 * MEGABIT, ROUND_TRIP, 10.0), 8.0);
    let wait = ran.longest_wait(between(2.0, 8.0));
    assert!(wait <= ROUND_TRIP / 2, "{wait:?}");
}

#[test]
fn starting_queues_no_more_than_one_and_a_half_round_trips() {
    let ran = alone(link(100 * MEGABIT, ROUND_TRIP, 10.0), 2.0);
    let wait = ran.longest_wait(between(0.0, 2.0));
    assert!(wait <= ROUND_TRIP.mul_f64(1.5), "{wait:?}");
}

#[test]
fn a_link_of_64_kbit_is_used_and_its_queue_stays_short() {
    for loss in [0.0, 0.05] {
        let slow = LinkSpec { loss: Loss::Random(loss), ..link(8_000, secs(0.1), 20.0) };
        let ran = alone(slow, 60.0);
        let part = ran.flows[0].rate(between(10.0, 60.0)) / 8_000.0;
        let wait = ran.longest_wait(between(20.0, 60.0));
        assert!(part >= 0.90 && wait <= secs(1.2), "{loss} {part} {wait:?}");
    }
}

#[test]
fn a_link_of_two_seconds_is_used() {
    for loss in [0.0, 0.05] {
        let far = LinkSpec { loss: Loss::Random(loss), ..link(10 * MEGABIT, secs(2.0), 1.0) };
        let ran = alone(far, 90.0);
        let part = ran.flows[0].rate(between(45.0, 90.0)) / (10 * MEGABIT) as f64;
        assert!(part >= 0.80, "{loss} {part}");
    }
}

#[test]
fn a_router_that_marks_keeps_the_queue_short_and_the_link_busy() {
    let marking = LinkSpec { marks_after: Some(secs(0.002)), ..usual() };
    let [with, without] = [marking, usual()].map(|link| {
        let ran = alone(link, 8.0);
        (ran.flows[0].rate(between(2.0, 8.0)) / (100 * MEGABIT) as f64, ran.longest_wait(between(0.0, 8.0)))
    });
    assert!(with.0 >= 0.8 && with.1 < without.1, "{with:?} with marks, {without:?} without");
}

#[test]
fn a_path_that_marks_every_packet_is_still_used() {
    let part = part(LinkSpec { marks_after: Some(Duration::ZERO), ..usual() }, 20.0);
    assert!(part >= 0.7, "{part}");
}

#[test]
fn the_same_seed_sends_the_same_packets() {
    let [one, other] = [0, 1].map(|_| alone(losing(0.05), 2.0).flows[0].rate(between(0.0, 2.0)));
    assert_eq!(one.to_bits(), other.to_bits());
}
