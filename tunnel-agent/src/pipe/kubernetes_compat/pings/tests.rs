//! Bytes that are pings are found, and nothing but pings and their answers is taken out or put in.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const PROTOCOLS: [UpgradeProtocol; 2] = [UpgradeProtocol::WebSocket, UpgradeProtocol::Spdy31];

#[test]
fn a_callers_complete_ping_is_answered_with_its_payload() {
    let mask = [1, 2, 3, 4];
    let masked =
        |payload: &[u8]| payload.iter().zip(mask.iter().cycle()).map(|(a, b)| a ^ b).collect::<Vec<u8>>();
    let web_socket = |first: u8, payload: &[u8]| {
        [&[first, MASKED | payload.len() as u8], &mask[..], &masked(payload)].concat()
    };
    let longest = [7; PING_BYTES_MAX as usize];
    for payload in [&b""[..], b"p", &longest] {
        let asked = web_socket(PING, payload);
        let (bytes, answer) = ping(UpgradeProtocol::WebSocket, &[&asked[..], b"more"].concat()).unwrap();
        assert_eq!(bytes, asked.len());
        assert_eq!(answer, [&[PONG, payload.len() as u8], payload].concat());
        assert_eq!(ping(UpgradeProtocol::WebSocket, &asked[..asked.len() - 1]), None, "not all of it");
    }
    let unmasked = [&[PING, 1], &mask[..], b"p"].concat();
    let too_long = [&[PING, MASKED | 126, 0, 126], &mask[..], &[0; 126]].concat();
    for other in [
        web_socket(PONG, b""),
        web_socket(0x82, b"data"),
        web_socket(0x09, b""),
        unmasked,
        too_long,
        vec![PING],
    ] {
        assert_eq!(ping(UpgradeProtocol::WebSocket, &other), None, "{other:?}");
    }
    let spdy = |number: u8| [&SPDY_PING[..], &[0, 0, 1, number]].concat();
    assert_eq!(ping(UpgradeProtocol::Spdy31, &spdy(7)), Some((SPDY_PING_BYTES, spdy(7))));
    assert_eq!(ping(UpgradeProtocol::Spdy31, &spdy(8)), None, "an answer to the edge");
    assert_eq!(ping(UpgradeProtocol::Spdy31, &spdy(7)[..SPDY_PING_BYTES - 1]), None, "not all of it");
    let data = [&[0, 0, 0, 6, 0, 0, 0, 4][..], &[0, 0, 1, 7]].concat();
    assert_eq!(ping(UpgradeProtocol::Spdy31, &data), None);
}

#[test]
fn a_ping_within_a_frame_or_not_to_be_answered_passes() {
    let whole = Frame { payload: Vec::new(), is_ping: true }.bytes(UpgradeProtocol::WebSocket, true);
    let around = Frame { payload: whole.clone(), is_ping: false }.bytes(UpgradeProtocol::WebSocket, false);
    let mut pings = Pings::new(UpgradeProtocol::WebSocket);
    for (sent, are_answered) in [(&whole, false), (&around, true)] {
        let mut bytes = BytesMut::from(&sent[..]);
        pings.caller_sent(&mut bytes, are_answered);
        assert_eq!((&bytes[..], pings.waiting.len()), (&sent[..], 0));
    }
    // A part of a frame, and the rest of it, which may look like a ping.
    for cut in 1..around.len() {
        pings.caller_sent(&mut BytesMut::from(&around[..cut]), true);
        let mut bytes = BytesMut::from(&around[cut..]);
        pings.caller_sent(&mut bytes, true);
        assert_eq!((&bytes[..], pings.waiting.len()), (&around[cut..], 0));
    }
}

#[test]
fn answers_wait_for_the_end_of_a_frame_up_to_their_limit() {
    let frame = Frame { payload: vec![7; 300], is_ping: false }.bytes(UpgradeProtocol::WebSocket, false);
    let (begun, ended) = frame.split_at(200);
    let mut pings = Pings::new(UpgradeProtocol::WebSocket);
    pings.written_to_caller(begun);
    for number in 0..=ANSWERS_MAX {
        let asked =
            Frame { payload: vec![number as u8], is_ping: true }.bytes(UpgradeProtocol::WebSocket, true);
        pings.caller_sent(&mut BytesMut::from(&asked[..]), true);
        assert!(pings.due_answers().is_empty());
    }

    let sent = [ended, &frame].concat();
    assert_eq!(pings.writable(&sent), ended.len());
    pings.written_to_caller(ended);

    let answers: Vec<u8> = (1..=ANSWERS_MAX).flat_map(|number| [PONG, 1, number as u8]).collect();
    assert_eq!(*pings.due_answers(), answers, "the first one is dropped");
    assert_eq!(pings.writable(&sent), sent.len(), "none waits any more");
}

#[test]
fn a_caller_that_never_reads_has_a_bounded_number_of_answers() {
    let asked = Frame { payload: vec![7; PING_BYTES_MAX.into()], is_ping: true };
    let mut pings = Pings::new(UpgradeProtocol::WebSocket);
    let mut kept = Vec::new();
    for _ in 0..4 * ANSWERS_MAX {
        pings.caller_sent(&mut BytesMut::from(&asked.bytes(UpgradeProtocol::WebSocket, true)[..]), true);
        kept.push(pings.due_answers().len() + pings.waiting.iter().map(Vec::len).sum::<usize>());
    }
    let one = asked.answer(UpgradeProtocol::WebSocket).len();
    assert_eq!((kept[0], kept.into_iter().max()), (one, Some((ANSWERS_MAX + 1) * one)));
}

/// A frame, in either protocol.
#[derive(Debug, Clone)]
struct Frame {
    payload: Vec<u8>,
    is_ping: bool,
}

impl Frame {
    fn bytes(&self, protocol: UpgradeProtocol, is_callers: bool) -> Vec<u8> {
        let Self { payload, is_ping } = self;
        match (protocol, is_ping) {
            (UpgradeProtocol::Spdy31, true) => [&SPDY_PING[..], &[0, 0, 0, 7]].concat(),
            (UpgradeProtocol::Spdy31, false) => {
                [&[0, 0, 0, 1, 0], &(payload.len() as u32).to_be_bytes()[1..], payload].concat()
            }
            (UpgradeProtocol::WebSocket, _) => {
                let first = if *is_ping { PING } else { 0x82 };
                let mask = if is_callers { MASKED } else { 0 };
                // Each length in the shortest of its three forms, and the longest in a longer one than it
                // needs.
                let length = match payload.len() {
                    short @ 0..126 => vec![mask | short as u8],
                    middle @ 126..1_000 => [&[mask | 126][..], &(middle as u16).to_be_bytes()].concat(),
                    long => [&[mask | 127][..], &(long as u64).to_be_bytes()].concat(),
                };
                let key: &[u8] = if is_callers { &[0; 4] } else { &[] };
                [&[first][..], &length, key, payload].concat()
            }
        }
    }

    fn answer(&self, protocol: UpgradeProtocol) -> Vec<u8> {
        match protocol {
            UpgradeProtocol::Spdy31 => self.bytes(protocol, true),
            UpgradeProtocol::WebSocket => [&[PONG, self.payload.len() as u8][..], &self.payload].concat(),
        }
    }
}

fn frames() -> impl Strategy<Value = Vec<Frame>> {
    let data = prop_oneof![vec(any::<u8>(), 0..4), vec(any::<u8>(), 120..130), vec(any::<u8>(), 990..1_010)];
    let data = data.prop_map(|payload| Frame { payload, is_ping: false });
    vec(data, 1..8)
}

fn pings() -> impl Strategy<Value = Vec<Frame>> {
    let ping = vec(any::<u8>(), 0..=PING_BYTES_MAX as usize);
    vec(ping.prop_map(|payload| Frame { payload, is_ping: true }), 0..4)
}

/// Everything that is written to the caller for these `bytes` of the edge, by writes of at most `at_once`
/// bytes.
pub(super) fn written(pings: &mut Pings, bytes: &[u8], at_once: usize) -> Vec<u8> {
    let (mut written, mut rest) = (Vec::new(), bytes);
    loop {
        written.extend_from_slice(pings.due_answers());
        pings.due_answers().clear();
        let some = pings.writable(rest).min(at_once);
        if some == 0 {
            return written;
        }
        pings.written_to_caller(&rest[..some]);
        written.extend_from_slice(&rest[..some]);
        rest = &rest[some..];
    }
}

proptest! {
    #[test]
    fn answers_stand_between_frames_wherever_the_stream_is_cut(
        protocol in prop::sample::select(&PROTOCOLS[..]),
        (sent, asked) in (frames(), pings()),
        (when, at_once) in (any::<prop::sample::Index>(), 1..500_usize),
    ) {
        let all: Vec<u8> = sent.iter().flat_map(|frame| frame.bytes(protocol, false)).collect();
        let (before, after) = all.split_at(when.index(all.len() + 1));
        let mut pings = Pings::new(protocol);
        let mut written = written(&mut pings, before, at_once);

        let data = Frame { payload: b"data".to_vec(), is_ping: false }.bytes(protocol, true);
        let bytes = asked.iter().flat_map(|ping| [ping.bytes(protocol, true), data.clone()].concat());
        let mut bytes: BytesMut = bytes.collect();
        pings.caller_sent(&mut bytes, true);
        written.extend(self::written(&mut pings, after, at_once));

        prop_assert_eq!(&bytes[..], data.repeat(asked.len()), "the edge receives all but the pings");
        let answers: Vec<u8> = asked.iter().flat_map(|ping| ping.answer(protocol)).collect();
        let mut between = vec![0];
        for frame in &sent {
            between.push(between.last().unwrap() + frame.bytes(protocol, false).len());
        }
        let is_between = |at: &usize| [&all[..*at], &answers, &all[*at..]].concat() == written;
        prop_assert!(between.iter().any(is_between), "{:?} in {:?}", written, between);
    }

    #[test]
    fn all_bytes_pass_in_their_order(
        protocol in prop::sample::select(&PROTOCOLS[..]),
        parts in vec(vec(any::<u8>(), 0..200), 0..8),
        at_once in 1..500_usize,
    ) {
        let mut pings = Pings::new(protocol);
        for part in &parts {
            prop_assert_eq!(&written(&mut pings, part, at_once), part);
            let mut bytes = BytesMut::from(&part[..]);
            pings.caller_sent(&mut bytes, false);
            prop_assert_eq!(&bytes[..], &part[..]);
        }
    }
}
