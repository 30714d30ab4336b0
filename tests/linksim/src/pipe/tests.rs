//! One direction of a link, packet by packet, in virtual time.

use std::net::Ipv4Addr;

use super::*;
use crate::packet::tests::{is_right, udp};

const MILLISECOND: Duration = Duration::from_millis(1);

fn pipe(impairments: &str) -> Pipe {
    Pipe::new(impairments.parse().unwrap(), Vec::new(), 7)
}

/// A UDP packet of this length whose payload begins with its number.
fn numbered(number: u32, bytes: usize) -> Vec<u8> {
    let mut payload = number.to_be_bytes().to_vec();
    payload.resize(bytes - 28, 0);
    udp((Ipv4Addr::LOCALHOST, 1), (Ipv4Addr::LOCALHOST, 2), &payload)
}

fn number(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[28..32].try_into().unwrap())
}

/// One packet each millisecond; what comes out, and when.
fn run(pipe: &mut Pipe, count: u32, bytes: usize) -> Vec<(Duration, Vec<u8>)> {
    let mut out = Vec::new();
    for number in 0..count {
        let now = MILLISECOND * number;
        drain(pipe, now, &mut out);
        pipe.admit(now, numbered(number, bytes));
    }
    drain(pipe, Duration::MAX / 2, &mut out);
    out
}

fn drain(pipe: &mut Pipe, until: Duration, out: &mut Vec<(Duration, Vec<u8>)>) {
    while let Some(due) = pipe.next_release().filter(|due| *due <= until) {
        // None, where what was due was lost to the dark.
        out.extend(pipe.release(due).map(|packet| (due, packet)));
    }
}

fn numbers(out: &[(Duration, Vec<u8>)]) -> Vec<u32> {
    out.iter().map(|(_, packet)| number(packet)).collect()
}

#[test]
fn a_link_without_impairments_passes_everything_at_once_and_in_order() {
    let mut pipe = pipe("");
    let out = run(&mut pipe, 100, 100);
    assert_eq!(numbers(&out), (0..100).collect::<Vec<_>>());
    assert!(out.iter().all(|(at, packet)| *at == MILLISECOND * number(packet)));
    let Counters { packets_in, packets_out, bytes_in, bytes_out, .. } = pipe.counters;
    assert_eq!((packets_in, packets_out, bytes_in, bytes_out), (100, 100, 10_000, 10_000));
}

#[test]
fn the_same_seed_does_the_same_and_another_does_not() {
    let all = "delay=40ms jitter=5ms loss=5% burst=1%/30% reorder=5%/50ms duplicate=2% corrupt=2%";
    let with = |seed| {
        let mut pipe = Pipe::new(all.parse().unwrap(), Vec::new(), seed);
        (run(&mut pipe, 2000, 200), pipe.counters)
    };
    assert_eq!(with(1), with(1));
    assert_ne!(with(1), with(2));
}

#[test]
fn delay_and_jitter_keep_the_order_and_their_bounds() {
    let out = run(&mut pipe("delay=40ms jitter=5ms"), 1000, 100);
    assert_eq!(numbers(&out), (0..1000).collect::<Vec<_>>());
    let late: Vec<Duration> = out.iter().map(|(at, packet)| *at - MILLISECOND * number(packet)).collect();
    assert!(late.iter().all(|late| (MILLISECOND * 35..=MILLISECOND * 45).contains(late)));
    let spread = *late.iter().max().unwrap() - *late.iter().min().unwrap();
    assert!(spread > MILLISECOND * 5, "{spread:?}");
}

#[test]
fn loss_hits_its_share() {
    let mut pipe = pipe("loss=5%");
    let out = run(&mut pipe, 20_000, 100);
    assert!((900..=1100).contains(&pipe.counters.dropped_loss), "{:?}", pipe.counters);
    assert_eq!(out.len() as u64 + pipe.counters.dropped_loss, 20_000);
}

#[test]
fn bursts_lose_in_rows_and_not_one_by_one() {
    // In the mean a spell of 10 packets each 100: a share of 1/11.
    let mut pipe = pipe("burst=1%/10%");
    let passed = numbers(&run(&mut pipe, 50_000, 100));
    let share = pipe.counters.dropped_burst as f64 / 50_000.0;
    assert!((0.07..0.11).contains(&share), "{share}");
    let rows = passed.windows(2).filter(|pair| pair[1] - pair[0] > 1).count();
    let mean = pipe.counters.dropped_burst as f64 / rows as f64;
    assert!((8.0..12.0).contains(&mean), "{mean}");
}

#[test]
fn delayed_packets_are_overtaken_and_none_is_lost() {
    let mut pipe = pipe("delay=10ms reorder=25%/50ms");
    let out = run(&mut pipe, 2000, 100);
    let mut seen = numbers(&out);
    let late = seen.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!(late > 200, "{late}");
    assert!((400..=600).contains(&pipe.counters.reordered), "{}", pipe.counters.reordered);
    seen.sort_unstable();
    assert_eq!(seen, (0..2000).collect::<Vec<_>>());
}

#[test]
fn a_duplicate_follows_its_original() {
    let mut pipe = pipe("duplicate=100%");
    assert_eq!(numbers(&run(&mut pipe, 3, 100)), [0, 0, 1, 1, 2, 2]);
    assert_eq!((pipe.counters.duplicated, pipe.counters.packets_out), (3, 6));
}

#[test]
fn open_corruption_breaks_the_checksum_and_hidden_corruption_does_not() {
    let changed = |impairments| {
        let mut pipe = pipe(impairments);
        let out = run(&mut pipe, 100, 100);
        assert_eq!(pipe.counters.corrupted, 100);
        let differ = out.iter().enumerate().filter(|(at, out)| out.1 != numbered(*at as u32, 100)).count();
        (differ, out.iter().filter(|out| is_right(&out.1)).count())
    };
    assert_eq!(changed("corrupt=100%"), (100, 0));
    assert_eq!(changed("corrupt-hidden=100%"), (100, 100));
}

#[test]
fn a_rate_is_kept_and_a_full_queue_drops() {
    // 1000 bytes each millisecond are 8 Mbit/s, twice the rate.
    let mut pipe = pipe("rate=4mbit queue=10000");
    let out = run(&mut pipe, 1000, 1000);
    let last = out.last().unwrap().0;
    let rate = out.len() as f64 * 8000.0 / last.as_secs_f64();
    assert!((3.9e6..4.1e6).contains(&rate), "{rate}");
    assert!((450..=500).contains(&pipe.counters.dropped_queue), "{:?}", pipe.counters);
    // What waits is never more than the queue: 20 ms at this rate.
    assert!(out.iter().all(|(at, packet)| *at <= MILLISECOND * (number(packet) + 20)));
}

#[test]
fn longer_packets_than_the_mtu_are_dropped_and_udp_has_one_of_its_own() {
    let mut pipe = pipe("mtu=1280 udp-mtu=1000");
    let mut tcp = numbered(4, 1200);
    tcp[9] = packet::TCP;
    for packet in [numbered(1, 1281), numbered(2, 1001), numbered(3, 1000), tcp] {
        pipe.admit(Duration::ZERO, packet);
    }
    assert_eq!((pipe.counters.dropped_mtu, pipe.counters.dropped_udp), (1, 1));
    let mut out = Vec::new();
    drain(&mut pipe, Duration::ZERO, &mut out);
    assert_eq!(numbers(&out), [3, 4]);
}

#[test]
fn nothing_comes_out_in_the_dark_not_even_what_was_under_way() {
    let darks = vec!["100ms+200ms".parse().unwrap(), "500ms+100ms".parse().unwrap()];
    let mut pipe = Pipe::new("delay=20ms".parse().unwrap(), darks, 1);
    let out = run(&mut pipe, 1000, 100);
    let at: Vec<u128> = out.iter().map(|(at, _)| at.as_millis()).collect();
    assert!(at.iter().all(|at| !(100..300).contains(at) && !(500..600).contains(at)), "{at:?}");
    assert_eq!(at[80], 320); // The first that came in after the reopening.
    assert_eq!(pipe.counters.dropped_dark as usize + out.len(), 1000);
}

#[test]
fn a_direction_that_is_set_down_is_dark_until_it_is_set_up() {
    let mut pipe = pipe("");
    pipe.set_down(true);
    pipe.admit(Duration::ZERO, numbered(1, 100));
    assert_eq!((pipe.is_dark(Duration::ZERO), pipe.release(MILLISECOND)), (true, None));
    pipe.set_down(false);
    pipe.admit(MILLISECOND, numbered(2, 100));
    assert_eq!(pipe.release(MILLISECOND).map(|packet| number(&packet)), Some(2));
}

#[test]
fn delayed_bytes_are_bounded() {
    let mut pipe = pipe("delay=1h");
    for _ in 0..=DELAYED_BYTES_MAX / 60_000 {
        pipe.admit(Duration::ZERO, vec![0; 60_000]);
    }
    assert_eq!(pipe.counters.dropped_queue, 1);
}
