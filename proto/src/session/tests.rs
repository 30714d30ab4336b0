//! One session against a scripted peer, in virtual time.

use super::*;
use crate::wire::{Applied, Hello, Peer, PeerHello, PeerWelcome, Refused, Welcome, peer::Content};

#[test]
fn an_idle_session_sends_and_promises_the_idle_interval() {
    let (mut session, began) = session();
    session.handle_timeout(began + HEARTBEAT_IDLE - Duration::from_millis(1));
    assert_eq!(session.poll_frame(), None);

    session.handle_timeout(began + HEARTBEAT_IDLE);

    assert_eq!(session.poll_frame(), Some(heartbeat(HEARTBEAT_IDLE, 0)));
    assert_eq!(session.poll_frame(), None);
}

#[test]
fn the_first_stream_after_a_second_of_silence_takes_a_heartbeat_along() {
    let (mut session, began) = session();
    session.streams_changed(began + HEARTBEAT_ACTIVE, 1);
    assert_eq!(session.poll_frame(), Some(heartbeat(HEARTBEAT_ACTIVE, 1)));
}

#[test]
fn silence_of_2_5_heartbeats_makes_suspect_and_a_frame_makes_live() {
    let (mut session, began) = session();
    session.handle_frame(began, Some(heartbeat(HEARTBEAT_ACTIVE, 1))).unwrap();
    session.handle_timeout(began + Duration::from_millis(2499));
    assert_eq!(session.health(), Health::Live);

    session.handle_timeout(began + Duration::from_millis(2500));
    assert_eq!(session.poll_event(), Some(Event::Health(Health::Suspect)));

    session.heard(began + Duration::from_secs(60));
    assert_eq!(session.poll_event(), Some(Event::Health(Health::Live)));
}

#[test]
fn a_suspect_session_sends_at_the_active_interval() {
    let (mut session, began) = session();
    let suspect_at = began + HEARTBEAT_IDLE * 5 / 2;
    session.handle_timeout(suspect_at);
    while session.poll_frame().is_some() {}

    assert_eq!(session.poll_timeout(), Some(suspect_at + HEARTBEAT_ACTIVE));
}

#[test]
fn a_session_is_lost_after_the_agreed_silence_and_stays_lost() {
    let began = Instant::now();
    let mut session = Session::new(began, Duration::from_secs(30));
    session.handle_timeout(began + Duration::from_secs(30));
    session.heard(began + Duration::from_secs(31));

    assert_eq!(session.health(), Health::Lost);
    assert_eq!(session.poll_event(), Some(Event::Health(Health::Lost)));
    assert_eq!((session.poll_event(), session.poll_timeout()), (None, None));
}

#[test]
fn a_ping_without_an_answer_makes_suspect_although_the_peer_is_heard() {
    let (mut session, began) = session();
    session.streams_changed(began, 1);
    session.pinged(began);
    for tenth in 1..15 {
        session.heard(began + Duration::from_millis(tenth * 100));
        session.handle_timeout(began + Duration::from_millis(tenth * 100));
    }
    assert_eq!(session.health(), Health::Live);

    session.handle_timeout(began + Duration::from_millis(1500));
    assert_eq!(session.health(), Health::Suspect);
    session.heard(began + Duration::from_secs(60));
    assert_eq!(session.health(), Health::Suspect, "what the peer says is no proof that it hears");

    session.answered(began + Duration::from_secs(60), Duration::from_millis(40));
    assert_eq!(session.health(), Health::Live);
}

#[test]
fn a_slow_path_is_not_dark() {
    let (mut session, began) = session();
    session.streams_changed(began, 1);
    session.answered(began, Duration::from_secs(2));
    session.pinged(began);
    session.heard(began + Duration::from_secs(2));
    session.handle_timeout(began + Duration::from_millis(3999));
    assert_eq!(session.health(), Health::Live);
}

/// An idle one then probes twice a second.
#[test]
fn an_unanswered_session_probes_4_times_a_second_for_a_minute() {
    for (streams, later) in [(0, PROBE_EVERY_IDLE), (1, PROBE_EVERY)] {
        let (mut session, began) = session();
        session.streams_changed(began, streams);
        session.pinged(began);
        assert_eq!(session.poll_timeout(), Some(began + PROBE_EVERY));
        let mut sent_at = Vec::new();
        while sent_at.last().is_none_or(|at| *at < began + PROBE_FAST_FOR * 2) {
            let now = session.poll_timeout().unwrap();
            session.handle_timeout(now);
            sent_at.extend(session.poll_heartbeat().map(|_| now));
        }
        let pauses: Vec<_> = sent_at.windows(2).map(|pair| (pair[0], pair[1] - pair[0])).collect();
        for (at, pause) in pauses {
            let expected = if at < began + PROBE_FAST_FOR { PROBE_EVERY } else { later };
            assert_eq!(pause, expected, "{:?} after the ping, {streams} streams", at - began);
        }
    }
}

#[test]
fn an_answer_ends_the_probes() {
    let (mut session, began) = session();
    session.pinged(began);
    session.handle_timeout(began + PROBE_EVERY);
    assert!(session.poll_heartbeat().is_some());
    session.answered(began + PROBE_EVERY, Duration::from_millis(40));
    assert_eq!((session.unanswered_since(), session.poll_heartbeat()), (None, None));
    session.handle_timeout(began + PROBE_EVERY * 2);
    assert_eq!(session.poll_heartbeat(), None);
}

#[test]
fn a_frame_on_a_dark_path_is_answered_at_once_and_not_in_a_loop() {
    let (mut session, began) = session();
    session.pinged(began);
    let back = began + Duration::from_secs(10);
    session.handle_timeout(back);
    while session.poll_frame().is_some() {}
    session.heard(back + Duration::from_millis(49));
    assert_eq!(session.poll_heartbeat(), None);
    session.heard(back + Duration::from_millis(50));
    assert!(session.poll_heartbeat().is_some());
    session.heard(back + Duration::from_millis(51));
    assert_eq!(session.poll_heartbeat(), None);
}

#[test]
fn a_path_that_is_dark_in_one_direction_is_lost_after_the_agreed_silence() {
    let (mut session, began) = session();
    session.pinged(began);
    for second in 1..=SILENCE_MAX.as_secs() {
        session.heard(began + Duration::from_secs(second));
        assert_ne!(session.health(), Health::Lost, "after {second} s");
        session.handle_timeout(began + Duration::from_secs(second));
    }
    assert_eq!(session.health(), Health::Lost);
}

#[test]
fn a_heartbeat_does_not_wait_behind_other_frames() {
    let (mut session, began) = session();
    session.begin_drain();
    session.handle_timeout(began + HEARTBEAT_IDLE);
    assert_eq!(session.poll_heartbeat(), Some(heartbeat(HEARTBEAT_IDLE, 0)));
    assert_eq!((session.poll_heartbeat(), session.has_frames()), (None, true));
}

#[test]
fn a_promised_interval_is_clamped() {
    let (mut session, began) = session();
    session.handle_frame(began, Some(heartbeat(Duration::from_secs(3600), 0))).unwrap();
    session.handle_timeout(began + HEARTBEAT_SLOWEST * 5 / 2);
    assert_eq!(session.health(), Health::Suspect);
}

#[test]
fn a_drain_of_an_idle_tunnel_is_empty_once_the_peer_agrees() {
    let (mut session, began) = session();
    session.begin_drain();
    assert_eq!(session.poll_frame(), Some(Frame::Drain(Drain {})));
    assert_eq!(session.poll_frame(), Some(Frame::Drained(Drained {})));
    assert_eq!(session.poll_event(), None);

    session.handle_frame(began, Some(Frame::Drained(Drained {}))).unwrap();

    assert_eq!(session.poll_event(), Some(Event::Empty));
    assert_eq!(session.poll_event(), None);
}

#[test]
fn an_open_stream_holds_a_drain_back() {
    let (mut session, began) = session();
    session.streams_changed(began, 1);
    session.handle_frame(began, Some(Frame::Drain(Drain {}))).unwrap();
    session.handle_frame(began, Some(Frame::Drained(Drained {}))).unwrap();
    assert_eq!(session.poll_event(), Some(Event::PeerDrains));
    assert_eq!((session.poll_event(), session.poll_frame()), (None, None));

    session.streams_changed(began, 0);

    assert_eq!(session.poll_frame(), Some(Frame::Drained(Drained {})));
    assert_eq!(session.poll_event(), Some(Event::Empty));
}

#[test]
fn a_stopping_side_waits_for_a_silent_peer_only_with_open_streams() {
    let (mut session, began) = session();
    session.streams_changed(began, 1);
    session.begin_drain();
    let silent = began + HEARTBEAT_IDLE * 5 / 2;
    session.handle_timeout(silent);
    assert_eq!((session.poll_event(), session.poll_event()), (Some(Event::Health(Health::Suspect)), None));

    session.streams_changed(silent, 0);
    session.handle_timeout(silent + HEARTBEAT_ACTIVE);

    assert_eq!(session.poll_event(), Some(Event::Empty));
}

#[test]
fn a_side_that_was_asked_to_drain_waits_for_a_silent_peer() {
    let (mut session, began) = session();
    session.handle_frame(began, Some(Frame::Drain(Drain {}))).unwrap();
    session.handle_timeout(began + HEARTBEAT_IDLE * 5 / 2);
    let events: Vec<_> = std::iter::from_fn(|| session.poll_event()).collect();
    assert_eq!(events, [Event::PeerDrains, Event::Health(Health::Suspect)]);
}

#[test]
fn a_blocked_carrier_fills_no_queue() {
    let (mut session, began) = session();
    session.begin_drain();
    for second in 1..100 {
        session.heard(began + Duration::from_secs(second));
        session.streams_changed(began + Duration::from_secs(second), 1);
        session.advertise(Endpoints::default());
    }
    assert_eq!(std::iter::from_fn(|| session.poll_frame()).count(), 4);
}

#[test]
fn a_greeting_after_the_greeting_is_a_violation() {
    let (mut session, began) = session();
    for frame in [
        Frame::Hello(Hello::default()),
        Frame::Welcome(Welcome::default()),
        Frame::Refused(Refused::default()),
    ] {
        assert!(matches!(session.handle_frame(began, Some(frame)), Err(ProtocolViolation::LateGreeting(_))));
    }
}

#[test]
fn the_newest_list_of_servers_is_sent_and_reported() {
    let (mut session, began) = session();
    let list = |revision| Servers { revision, servers: Vec::new() };
    session.tell_servers(list(1));
    session.tell_servers(list(2));
    assert_eq!(session.poll_frame(), Some(Frame::Servers(list(2))));
    assert_eq!(session.poll_frame(), None);

    for revision in [3, 4] {
        session.handle_frame(began, Some(Frame::Servers(list(revision)))).unwrap();
    }

    assert_eq!(session.poll_event(), Some(Event::Servers(list(4))));
    assert_eq!(session.poll_event(), None);
}

/// Neither protocol knows the other's frames.
#[test]
fn frames_of_servers_and_of_agents_do_not_mix() {
    let of_agents = [
        Frame::Endpoints(Endpoints::default()),
        Frame::Extension(Extension::default()),
        Frame::StreamQuery(StreamQuery::default()),
        Frame::StreamReport(StreamReport::default()),
        Frame::Servers(Servers::default()),
    ];
    let of_servers = [Frame::Peer(Peer::default())];
    let greetings = [Frame::PeerHello(PeerHello::default()), Frame::PeerWelcome(PeerWelcome::default())];
    for (protocol, own, foreign) in [
        (Protocol::Agent, of_agents.as_slice(), of_servers.as_slice()),
        (Protocol::Peer, of_servers.as_slice(), of_agents.as_slice()),
    ] {
        let (_, began) = session();
        let handle = |frame: &Frame| {
            Session::with_protocol(protocol, began, SILENCE_MAX).handle_frame(began, Some(frame.clone()))
        };
        for frame in own.iter().chain(&[Frame::Drain(Drain {}), Frame::Drained(Drained {})]) {
            assert_eq!(handle(frame), Ok(()), "{protocol:?}: {frame:?}");
        }
        for frame in foreign {
            assert!(matches!(handle(frame), Err(ProtocolViolation::ForeignFrame(_))), "{frame:?}");
        }
        for frame in &greetings {
            assert!(matches!(handle(frame), Err(ProtocolViolation::LateGreeting(_))), "{frame:?}");
        }
    }
}

#[test]
fn messages_of_servers_are_all_reported_in_their_order() {
    let (_, began) = session();
    let mut session = Session::with_protocol(Protocol::Peer, began, PEER_SILENCE_MAX);
    let applied = |revision| Peer { content: Some(Content::Applied(Applied { revision })) };
    for revision in 0..3 {
        session.handle_frame(began, Some(Frame::Peer(applied(revision)))).unwrap();
    }
    let events: Vec<_> = std::iter::from_fn(|| session.poll_event()).collect();
    assert_eq!(events, [0, 1, 2].map(|revision| Event::Peer(applied(revision))));
}

#[test]
fn a_silent_server_is_lost_at_its_limit_and_not_before() {
    let (_, began) = session();
    let mut session = Session::with_protocol(Protocol::Peer, began, PEER_SILENCE_MAX);
    session.handle_timeout(began + PEER_SILENCE_MAX - Duration::from_millis(1));
    assert_eq!(session.health(), Health::Suspect);
    session.handle_timeout(began + PEER_SILENCE_MAX);
    assert_eq!(session.health(), Health::Lost);
}

#[test]
fn a_server_may_send_as_many_frames_as_a_full_copy_needs_and_not_one_more() {
    let (_, began) = session();
    let mut session = Session::with_protocol(Protocol::Peer, began, PEER_SILENCE_MAX);
    for _ in 0..PEER_FRAMES_BURST_MAX {
        session.handle_frame(began, None).unwrap();
    }
    assert_eq!(session.handle_frame(began, None), Err(ProtocolViolation::TooManyPeerFrames));

    let a_second_later = began + Duration::from_secs(1);
    for _ in 0..PEER_FRAMES_PER_SECOND_MAX {
        session.handle_frame(a_second_later, None).unwrap();
    }
    assert_eq!(session.handle_frame(a_second_later, None), Err(ProtocolViolation::TooManyPeerFrames));
}

#[test]
fn an_unknown_frame_is_a_sign_of_life_and_nothing_else() {
    let (mut session, began) = session();
    session.handle_frame(began + Duration::from_secs(5), None).unwrap();
    assert_eq!((session.poll_event(), session.poll_frame()), (None, None));
    session.handle_timeout(began + HEARTBEAT_IDLE * 5 / 2);
    assert_eq!(session.health(), Health::Live);
}

#[test]
fn a_burst_and_then_so_many_frames_a_second_are_allowed_and_not_one_more() {
    let (mut session, began) = session();
    for _ in 0..FRAMES_BURST_MAX {
        session.handle_frame(began, None).unwrap();
    }
    assert_eq!(session.handle_frame(began, None), Err(ProtocolViolation::TooManyFrames));

    let a_second_later = began + Duration::from_secs(1);
    for _ in 0..FRAMES_PER_SECOND_MAX {
        session.handle_frame(a_second_later, None).unwrap();
    }
    assert_eq!(session.handle_frame(a_second_later, None), Err(ProtocolViolation::TooManyFrames));
}

fn session() -> (Session, Instant) {
    let began = Instant::now();
    (Session::new(began, SILENCE_MAX), began)
}

fn heartbeat(interval: Duration, streams_open: u32) -> Frame {
    let interval_ms = u32::try_from(interval.as_millis()).unwrap();
    Frame::Heartbeat(Heartbeat { interval_ms, streams_open, ..Heartbeat::default() })
}
