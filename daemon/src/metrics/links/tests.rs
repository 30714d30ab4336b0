//! Claims about sums over tunnels, and about who is told of how long.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

#[test]
fn counts_go_on_growing_over_the_tunnels_of_a_peer() {
    let links = links();
    let (first, sent) = open(&links, "a", 40);
    sent.store(1000, Ordering::Relaxed);
    drop(first);
    let (_second, sent) = open(&links, "a", 50);
    let (_third, _) = open(&links, "a", 30);
    sent.store(5, Ordering::Relaxed);

    let text = told(&links, Instant::now());

    has(
        &text,
        &[
            "tombolo_test_tunnels{peer=\"a\",carrier=\"quic\"} 2",
            "tombolo_test_tunnels_opened_total{peer=\"a\"} 3",
            "tombolo_test_stream_bytes_total{peer=\"a\",direction=\"sent\"} 1005",
            "tombolo_test_stream_bytes_total{peer=\"a\",direction=\"received\"} 0",
            "tombolo_test_round_trip_seconds{peer=\"a\"} 0.03",
            "tombolo_test_streams_active{peer=\"a\"} 2",
        ],
    );
}

#[test]
fn gauges_of_a_peer_without_a_tunnel_are_zero_and_its_round_trip_is_absent() {
    let links = links();
    drop(open(&links, "a", 40));

    let text = told(&links, Instant::now());

    has(
        &text,
        &["tombolo_test_tunnels{peer=\"a\",carrier=\"quic\"} 0", "tombolo_test_streams_active{peer=\"a\"} 0"],
    );
    assert!(!text.contains("round_trip_seconds{peer"), "{text}");
}

#[test]
fn tunnels_are_told_apart_by_carrier_also_after_the_last_of_one() {
    let links = links();
    let _quic = links.open("a", "quic", Figures::default);
    drop(links.open("a", "http2", Figures::default));

    let text = told(&links, Instant::now());

    let told =
        ["quic\"} 1", "http2\"} 0"].map(|end| format!("tombolo_test_tunnels{{peer=\"a\",carrier=\"{end}"));
    has(&text, &told.each_ref().map(String::as_str));
}

#[test]
fn a_peer_without_a_tunnel_is_told_of_for_a_while_and_then_forgotten() {
    let links = links();
    let (gone, sent) = open(&links, "gone", 40);
    let (_idle, _) = open(&links, "idle", 40);
    sent.store(7, Ordering::Relaxed);
    drop(gone);
    let ended = Instant::now();

    let kept = told(&links, ended + KEPT / 2);
    let later = told(&links, ended + KEPT);

    assert!(kept.contains("stream_bytes_total{peer=\"gone\",direction=\"sent\"} 7"), "{kept}");
    assert!(!later.contains("gone"), "{later}");
    // A peer that is merely idle stays, whatever the time.
    assert!(told(&links, ended + KEPT * 1000).contains("peer=\"idle\""));
}

#[test]
fn a_peer_that_is_back_in_time_keeps_its_counts() {
    let links = links();
    let (gone, sent) = open(&links, "a", 40);
    sent.store(7, Ordering::Relaxed);
    drop(gone);
    let ended = Instant::now();
    let (_back, _) = open(&links, "a", 40);

    let text = told(&links, ended + KEPT * 2);

    has(&text, &["tombolo_test_stream_bytes_total{peer=\"a\",direction=\"sent\"} 7"]);
}

#[test]
fn one_peer_beyond_the_limit_is_not_told_of_and_breaks_nothing() {
    let links = links();
    let held: Vec<OpenLink> =
        (0..PEERS_MAX).map(|n| links.open(&format!("p{n}"), "quic", Figures::default)).collect();
    let beyond = links.open("beyond", "quic", Figures::default);
    let known = links.open("p0", "quic", Figures::default);

    let text = told(&links, Instant::now());

    assert_eq!(text.matches("tombolo_test_tunnels{").count(), PEERS_MAX);
    has(&text, &["tombolo_test_tunnels{peer=\"p0\",carrier=\"quic\"} 2"]);
    assert!(!text.contains("beyond"));
    drop((held, beyond, known));
    assert!(!told(&links, Instant::now() + KEPT).contains("peer="));
}

#[test]
fn peers_that_nobody_scraped_make_room_for_others() {
    let links = links();
    for n in 0..PEERS_MAX {
        drop(links.open(&format!("p{n}"), "quic", Figures::default));
    }
    let later = Instant::now() + KEPT;

    let _newcomer = links.open_at("newcomer", "quic", Figures::default, later);

    has(&told(&links, later), &["tombolo_test_tunnels{peer=\"newcomer\",carrier=\"quic\"} 1"]);
}

fn links() -> Links {
    Links::new("tombolo_test", "peer")
}

/// A tunnel whose sent bytes the test sets.
fn open(links: &Links, peer: &str, round_trip_ms: u64) -> (OpenLink, Arc<AtomicU64>) {
    let sent = Arc::new(AtomicU64::new(0));
    let read = Arc::clone(&sent);
    let open = links.open(peer, "quic", move || Figures {
        round_trip: Duration::from_millis(round_trip_ms),
        streams_open: 1,
        stream_bytes_sent: read.load(Ordering::Relaxed),
        ..Figures::default()
    });
    (open, sent)
}

fn told(links: &Links, now: Instant) -> String {
    let mut lines = Lines::default();
    links.tell(&mut lines, now);
    lines.into_text()
}

fn has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|found| found == *line), "no line {line:?} in:\n{text}");
    }
}
