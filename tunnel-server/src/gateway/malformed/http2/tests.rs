//! Claims about the frames that a caller receives when h2 resets a malformed request.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

use super::*;

const DATA: u8 = 0x0;
const SETTINGS: u8 = 0x4;
const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];

/// Type, flags, stream and payload of a frame.
type ReadFrame = (u8, u8, u32, Vec<u8>);

#[tokio::test]
async fn a_malformed_request_is_answered_however_its_reset_is_cut() {
    let before =
        [frame(SETTINGS, 0, 0, &[]), frame(HEADERS, END_HEADERS, 1, b"head"), frame(DATA, 0, 1, &[7; 300])];
    let after = [frame(DATA, END_STREAM, 1, &[8; 40]), frame(HEADERS, END_STREAM | END_HEADERS, 5, b"x")];
    let written = [before.concat(), frame(RST_STREAM, 0, 3, &PROTOCOL_ERROR), after.concat()].concat();
    for most in [1, 8, 9, 10, 13, 64, 4096] {
        // The other end takes this many bytes at once.
        let read = through(most, &[&written]).await;
        let own: Vec<_> = read.iter().filter(|frame| frame.2 != 3).cloned().collect();
        assert_eq!(own, frames_of(&[before.concat(), after.concat()].concat()), "{most}");
        let [(HEADERS, flags, _, block), (RST_STREAM, 0, _, code)] = &of_stream(&read, 3)[..] else {
            panic!("{most}: {read:?}");
        };
        assert_eq!((*flags, code.as_slice()), (END_STREAM | END_HEADERS, &NO_ERROR[..]));
        assert_eq!(block[0], STATUS_400);
        let text = String::from_utf8_lossy(block);
        assert!(text.contains("warning") && text.contains("percent-encode"), "{text}");
    }
}

#[tokio::test]
async fn every_other_reset_passes_as_it_is() {
    let answered = frame(HEADERS, END_HEADERS, 1, b"head");
    for frames in [
        // It was answered, also to its end, or reset before.
        vec![answered.clone(), frame(RST_STREAM, 0, 1, &PROTOCOL_ERROR)],
        vec![frame(HEADERS, END_HEADERS | END_STREAM, 1, b"head"), frame(RST_STREAM, 0, 1, &PROTOCOL_ERROR)],
        vec![
            answered.clone(),
            frame(HEADERS, END_HEADERS, 3, b"x"),
            frame(RST_STREAM, 0, 1, &PROTOCOL_ERROR),
        ],
        vec![frame(RST_STREAM, 0, 1, &NO_ERROR), frame(RST_STREAM, 0, 1, &PROTOCOL_ERROR)],
        // Clients may send it again.
        vec![frame(RST_STREAM, 0, 1, &REFUSED_STREAM)],
        // The bytes of a body that look like a frame.
        vec![answered, frame(DATA, 0, 1, &frame(RST_STREAM, 0, 3, &PROTOCOL_ERROR))],
    ] {
        let read = through(4096, &[&frames.concat()]).await;
        assert_eq!(read, frames_of(&frames.concat()));
    }
}

#[tokio::test]
async fn a_reset_behind_the_head_of_another_piece_is_answered_too() {
    let data = frame(DATA, END_STREAM, 1, &[7; 100]);
    let (head, payload) = data.split_at(FRAME_HEAD_BYTES);
    let next = [payload, &frame(RST_STREAM, 0, 3, &PROTOCOL_ERROR)].concat();
    let read = through(4096, &[&frame(HEADERS, END_HEADERS, 1, b"head"), head, &next]).await;
    assert_eq!(read.len(), 4, "{read:?}");
    assert_eq!(of_stream(&read, 3)[0].0, HEADERS);
}

#[test]
fn no_more_unanswered_streams_are_remembered_than_the_limit() {
    let mut unanswered = Unanswered::default();
    let last = 2 * UNANSWERED_MAX as u32 + 1;
    unanswered.remove(last);
    assert_eq!(unanswered.older.len(), UNANSWERED_MAX);
    assert!(unanswered.contains(1) && unanswered.contains(last + 2) && !unanswered.contains(last));
    unanswered.remove(last + 4);
    assert_eq!(unanswered.older.len(), UNANSWERED_MAX);
    assert!(!unanswered.contains(1) && unanswered.contains(3) && unanswered.contains(last + 2));
    unanswered.remove(u32::MAX >> 1);
    assert_eq!(unanswered.older.len(), UNANSWERED_MAX);
}

#[test]
fn a_text_of_a_header_has_its_length_in_front() {
    for (length, prefix) in [(0, vec![0]), (126, vec![126]), (127, vec![127, 0]), (300, vec![127, 0xad, 1])] {
        let mut block = Vec::new();
        put_text(&mut block, &"x".repeat(length));
        assert_eq!(block[..prefix.len()], prefix, "{length}");
        assert_eq!(block.len(), prefix.len() + length);
    }
}

/// The frames that the other end reads if each piece is written by itself, `most` bytes at a time.
async fn through(most: usize, pieces: &[&[u8]]) -> Vec<ReadFrame> {
    let (near, mut far) = duplex(most);
    let mut stream = AnsweredResets::new(near);
    let writes = async {
        for piece in pieces {
            stream.write_all(piece).await.unwrap();
        }
        stream.shutdown().await.unwrap();
    };
    let mut read = Vec::new();
    let reads = far.read_to_end(&mut read);
    tokio::join!(writes, reads).1.unwrap();
    frames_of(&read)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frames = Vec::new();
    put_frame(&mut frames, kind, flags, stream, payload);
    frames
}

fn frames_of(mut bytes: &[u8]) -> Vec<ReadFrame> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        let (frame, rest) = bytes.split_at(FRAME_HEAD_BYTES + length);
        frames.push((frame[3], frame[4], stream_of(frame), frame[FRAME_HEAD_BYTES..].to_vec()));
        bytes = rest;
    }
    frames
}

fn of_stream(frames: &[ReadFrame], stream: u32) -> Vec<ReadFrame> {
    frames.iter().filter(|frame| frame.2 == stream).cloned().collect()
}
