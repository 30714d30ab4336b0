//! Tests of sums over tunnels, and of the lifetime of a peer's series.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

#[test]
fn counters_grow_over_all_tunnels_of_a_peer() {
    let links = links();
    let (first, sent) = open(&links, "a", 40);
    sent.store(1000, Ordering::Relaxed);
    drop(first);
    let (_second, sent) = open(&links, "a", 50);
    let (_third, _) = open(&links, "a", 30);
    sent.store(5, Ordering::Relaxed);

    let text = written(&links, Instant::now());

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
fn a_peer_without_a_tunnel_has_zero_gauges_and_no_round_trip() {
    let links = links();
    drop(open(&links, "a", 40));

    let text = written(&links, Instant::now());

    has(
        &text,
        &["tombolo_test_tunnels{peer=\"a\",carrier=\"quic\"} 0", "tombolo_test_streams_active{peer=\"a\"} 0"],
    );
    assert!(!text.contains("round_trip_seconds{peer"), "{text}");
}

#[test]
fn tunnels_are_counted_by_carrier_also_after_the_last_of_one() {
    let links = links();
    let _quic = links.open("a", "quic", Figures::default);
    drop(links.open("a", "http2", Figures::default));

    let text = written(&links, Instant::now());

    let written =
        ["quic\"} 1", "http2\"} 0"].map(|end| format!("tombolo_test_tunnels{{peer=\"a\",carrier=\"{end}"));
    has(&text, &written.each_ref().map(String::as_str));
}

#[test]
fn a_peer_without_a_tunnel_keeps_its_series_for_a_while() {
    let links = links();
    let (gone, sent) = open(&links, "gone", 40);
    let (_idle, _) = open(&links, "idle", 40);
    sent.store(7, Ordering::Relaxed);
    drop(gone);
    let ended = Instant::now();

    let kept = written(&links, ended + RETENTION / 2);
    let later = written(&links, ended + RETENTION);

    assert!(kept.contains("stream_bytes_total{peer=\"gone\",direction=\"sent\"} 7"), "{kept}");
    assert!(!later.contains("gone"), "{later}");
    // A peer with an idle tunnel stays for any time.
    assert!(written(&links, ended + RETENTION * 1000).contains("peer=\"idle\""));
}

#[test]
fn a_peer_that_returns_in_time_keeps_its_counters() {
    let links = links();
    let (gone, sent) = open(&links, "a", 40);
    sent.store(7, Ordering::Relaxed);
    drop(gone);
    let ended = Instant::now();
    let (_back, _) = open(&links, "a", 40);

    let text = written(&links, ended + RETENTION * 2);

    has(&text, &["tombolo_test_stream_bytes_total{peer=\"a\",direction=\"sent\"} 7"]);
}

#[test]
fn a_peer_beyond_the_limit_has_no_series_and_does_no_harm() {
    let links = links();
    let held: Vec<OpenLink> =
        (0..PEERS_MAX).map(|n| links.open(&format!("p{n}"), "quic", Figures::default)).collect();
    let beyond = links.open("beyond", "quic", Figures::default);
    let known = links.open("p0", "quic", Figures::default);

    let text = written(&links, Instant::now());

    assert_eq!(text.matches("tombolo_test_tunnels{").count(), PEERS_MAX);
    has(&text, &["tombolo_test_tunnels{peer=\"p0\",carrier=\"quic\"} 2"]);
    assert!(!text.contains("beyond"));
    drop((held, beyond, known));
    assert!(!written(&links, Instant::now() + RETENTION).contains("peer="));
}

#[test]
fn expired_peers_make_room_for_others_without_a_scrape() {
    let links = links();
    for n in 0..PEERS_MAX {
        drop(links.open(&format!("p{n}"), "quic", Figures::default));
    }
    let later = Instant::now() + RETENTION;

    let _new_peer = links.open_at("new", "quic", Figures::default, later);

    has(&written(&links, later), &["tombolo_test_tunnels{peer=\"new\",carrier=\"quic\"} 1"]);
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

fn written(links: &Links, now: Instant) -> String {
    let mut lines = Exposition::default();
    links.write(&mut lines, now);
    lines.into_text()
}

fn has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|found| found == *line), "no line {line:?} in:\n{text}");
    }
}
