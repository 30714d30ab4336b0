//! Frames on a byte stream: each is a length as a varint, then that many bytes of protobuf.

pub use prost::Message;
use prost::bytes::{Buf, Bytes, BytesMut};
use prost::encode_length_delimiter;

/// Largest frame in bytes, without its length prefix. Nothing is allocated for a frame that claims more.
pub const FRAME_BYTES_MAX: usize = 64 * 1024;

/// Longest length prefix in bytes: three groups of seven bits hold `FRAME_BYTES_MAX`.
const PREFIX_BYTES_MAX: usize = 3;
const _: () = assert!(FRAME_BYTES_MAX < 1 << (7 * PREFIX_BYTES_MAX));

/// The reason why bytes are not a frame. After this error the stream cannot be read any further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length prefix names more than `FRAME_BYTES_MAX`.
    #[error("a frame of {0} bytes is longer than the {max} allowed", max = FRAME_BYTES_MAX)]
    TooLong(usize),
    /// The length prefix does not end.
    #[error("a frame's length prefix does not end within {max} bytes", max = PREFIX_BYTES_MAX)]
    Prefix,
    /// The bytes are not protobuf of the expected kind.
    #[error("a frame is not valid protobuf")]
    Protobuf(#[from] prost::DecodeError),
}

/// Appends `message` with its length prefix to `buffer`.
///
/// # Errors
/// `TooLong` where the message is larger than `FRAME_BYTES_MAX`; `buffer` is then unchanged.
pub fn encode(message: &impl Message, buffer: &mut BytesMut) -> Result<(), FrameError> {
    let bytes = message.encoded_len();
    if bytes > FRAME_BYTES_MAX {
        return Err(FrameError::TooLong(bytes));
    }
    buffer.reserve(bytes + PREFIX_BYTES_MAX);
    // Fails only where a buffer cannot grow, and this one can.
    message.encode_length_delimited(buffer).map_err(|_| FrameError::TooLong(bytes))
}

/// Appends one frame to `buffer` that is both messages in one: protobuf merges what follows one another.
///
/// # Errors
/// As [`encode`].
pub fn encode_merged<M: Message>(first: &M, second: &M, buffer: &mut BytesMut) -> Result<(), FrameError> {
    let bytes = first.encoded_len() + second.encoded_len();
    if bytes > FRAME_BYTES_MAX {
        return Err(FrameError::TooLong(bytes));
    }
    buffer.reserve(bytes + PREFIX_BYTES_MAX);
    // These fail only where a buffer cannot grow, and this one can.
    encode_length_delimiter(bytes, buffer).map_err(|_| FrameError::TooLong(bytes))?;
    first.encode(buffer).map_err(|_| FrameError::TooLong(bytes))?;
    second.encode(buffer).map_err(|_| FrameError::TooLong(bytes))
}

/// Takes the first frame off `buffer`, or nothing if it is incomplete.
///
/// # Errors
/// The first prefix that is too long or too large, at once and before its body has come, and bytes that are
/// not protobuf.
pub fn decode<M: Message + Default>(buffer: &mut BytesMut) -> Result<Option<M>, FrameError> {
    let Some((prefix_bytes, body_bytes)) = prefix(buffer)? else {
        return Ok(None);
    };
    if buffer.len() < prefix_bytes + body_bytes {
        return Ok(None);
    }
    buffer.advance(prefix_bytes);
    let body: Bytes = buffer.split_to(body_bytes).freeze();
    Ok(Some(M::decode(body)?))
}

/// Number of bytes that the first frame still lacks before `decode` can take it, at least 1; `None` once it
/// is complete.
///
/// A reader that may not read beyond one frame, because other bytes follow it, asks for exactly so many.
///
/// # Errors
/// As `decode`.
pub fn missing(buffer: &[u8]) -> Result<Option<usize>, FrameError> {
    let Some((prefix_bytes, body_bytes)) = prefix(buffer)? else {
        return Ok(Some(1));
    };
    let complete = prefix_bytes + body_bytes;
    Ok(complete.checked_sub(buffer.len()).filter(|lacking| *lacking > 0))
}

/// The length of the prefix and of the body behind it, once the prefix is complete.
fn prefix(buffer: &[u8]) -> Result<Option<(usize, usize)>, FrameError> {
    let mut length = 0;
    for (index, byte) in buffer.iter().take(PREFIX_BYTES_MAX).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 != 0 {
            continue;
        }
        if length > FRAME_BYTES_MAX {
            return Err(FrameError::TooLong(length));
        }
        return Ok(Some((index + 1, length)));
    }
    if buffer.len() >= PREFIX_BYTES_MAX { Err(FrameError::Prefix) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{ControlFrame, Hello, StreamOpen, control_frame::Frame};
    use proptest::prelude::*;

    fn hello(cluster: String) -> ControlFrame {
        Frame::Hello(Hello { versions: vec![1], cluster, ..Hello::default() }).into()
    }

    proptest! {
        #[test]
        fn frames_survive_any_cut_of_the_stream(
            names in prop::collection::vec("[a-z]{0,300}", 1..8),
            cuts in prop::collection::vec(1_usize..50, 1..200),
        ) {
            let sent: Vec<_> = names.into_iter().map(hello).collect();
            let mut wire = BytesMut::new();
            for frame in &sent {
                encode(frame, &mut wire).unwrap();
            }

            let (mut received, mut buffer, mut cuts) = (Vec::new(), BytesMut::new(), cuts.into_iter().cycle());
            while !wire.is_empty() {
                let cut = cuts.next().unwrap().min(wire.len());
                buffer.extend_from_slice(&wire.split_to(cut));
                while let Some(frame) = decode::<ControlFrame>(&mut buffer).unwrap() {
                    received.push(frame);
                }
            }

            prop_assert_eq!(received, sent);
        }

        #[test]
        fn arbitrary_bytes_never_panic_and_never_allocate_beyond_the_maximum(bytes: Vec<u8>) {
            let mut buffer = BytesMut::from(bytes.as_slice());
            while let Ok(Some(_)) = decode::<ControlFrame>(&mut buffer) {}
            prop_assert!(buffer.capacity() <= bytes.len().max(64));
        }

        #[test]
        fn a_reader_that_asks_for_what_is_missing_stops_exactly_at_the_frames_end(name in "[a-z]{0,300}", after: Vec<u8>) {
            let mut wire = BytesMut::new();
            encode(&hello(name), &mut wire).unwrap();
            let frame_bytes = wire.len();
            wire.extend_from_slice(&after);

            let mut read = 0;
            while let Some(lacking) = missing(&wire[..read]).unwrap() {
                read += lacking;
            }

            prop_assert_eq!(read, frame_bytes);
        }
    }

    #[test]
    fn a_frame_at_the_maximum_passes_and_one_byte_more_does_not() {
        let overhead = hello("x".repeat(60_000)).encoded_len() - 60_000;
        let at_maximum = hello("x".repeat(FRAME_BYTES_MAX - overhead));
        let beyond = hello("x".repeat(FRAME_BYTES_MAX - overhead + 1));
        let mut buffer = BytesMut::new();

        assert_eq!(encode(&beyond, &mut buffer), Err(FrameError::TooLong(FRAME_BYTES_MAX + 1)));
        assert!(buffer.is_empty());
        encode(&at_maximum, &mut buffer).unwrap();
        assert_eq!(decode(&mut buffer), Ok(Some(at_maximum)));
    }

    #[test]
    fn merged_messages_are_one_frame_with_the_fields_of_both() {
        let dial = StreamOpen::dial("10.0.0.1:80".to_owned(), "a".to_owned());
        let mut buffer = BytesMut::new();

        encode_merged(&dial, &StreamOpen::numbered(7), &mut buffer).unwrap();

        assert_eq!(decode(&mut buffer), Ok(Some(StreamOpen { number: 7, ..dial })));
        assert!(buffer.is_empty());
        let (largest, mut unchanged) = (hello("x".repeat(FRAME_BYTES_MAX)), BytesMut::new());
        assert!(matches!(encode_merged(&largest, &largest, &mut unchanged), Err(FrameError::TooLong(_))));
        assert!(unchanged.is_empty());
    }

    #[test]
    fn a_huge_claim_is_refused_before_its_bytes_come() {
        let claim_of_two_mebibytes = [0xff_u8, 0xff, 0x7f];
        assert!(matches!(
            decode::<ControlFrame>(&mut BytesMut::from(&claim_of_two_mebibytes[..])),
            Err(FrameError::TooLong(_))
        ));
        assert_eq!(
            decode::<ControlFrame>(&mut BytesMut::from(&[0xff_u8, 0xff, 0xff][..])),
            Err(FrameError::Prefix)
        );
    }

    #[test]
    fn unknown_frames_and_fields_are_ignored() {
        // Field 1000 with a string, which no version of ours knows, alone and inside a Hello.
        let unknown_frame = [0xc2_u8, 0x3e, 3, b'n', b'e', b'w'];
        assert_eq!(ControlFrame::decode(&unknown_frame[..]), Ok(ControlFrame { frame: None }));

        let mut known = Hello { versions: vec![1], ..Hello::default() }.encode_to_vec();
        known.extend_from_slice(&unknown_frame);
        assert_eq!(Hello::decode(known.as_slice()), Ok(Hello { versions: vec![1], ..Hello::default() }));
    }
}
