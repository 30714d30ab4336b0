//! Frames of QUIC, written by hand (RFC 9000, section 19).

use std::ops::RangeInclusive;

/// Types that no version of QUIC knows.
pub const UNKNOWN: RangeInclusive<u64> = 0x3a..=0x3f;

/// A number in its shortest form (RFC 9000, section 16).
///
/// # Panics
/// From 2^62 on.
pub fn varint(number: u64) -> Vec<u8> {
    match number {
        0..0x40 => number.to_be_bytes()[7..].to_vec(),
        0x40..0x4000 => (number | 0x4000).to_be_bytes()[6..].to_vec(),
        0x4000..0x4000_0000 => (number | 0x8000_0000).to_be_bytes()[4..].to_vec(),
        0x4000_0000..0x4000_0000_0000_0000 => (number | 0xc000_0000_0000_0000).to_be_bytes().to_vec(),
        _ => panic!("{number} is no number of QUIC"),
    }
}

/// A piece of a stream at its place, with its length.
pub fn stream(id: u64, offset: u64, data: &[u8]) -> Vec<u8> {
    [&[0x0e], varint(id).as_slice(), &varint(offset), &varint(data.len() as u64), data].concat()
}

/// A piece of TLS at its place.
pub fn crypto(offset: u64, data: &[u8]) -> Vec<u8> {
    [&[0x06], varint(offset).as_slice(), &varint(data.len() as u64), data].concat()
}

/// "Answer this number", which costs the other side an answer.
pub fn path_challenge(number: u64) -> Vec<u8> {
    [&[0x1a], number.to_be_bytes().as_slice()].concat()
}

/// One more name for our side, by which all names below `retired` are given up: each costs the other side a
/// frame.
pub fn new_connection_id(sequence: u64, retired: u64) -> Vec<u8> {
    let (id, token) = (sequence.to_be_bytes(), [sequence.to_le_bytes(), sequence.to_be_bytes()].concat());
    [&[0x18], varint(sequence).as_slice(), &varint(retired), &[8], &id, &token].concat()
}

/// A name of the other side is given up, for which it has to give another.
pub fn retire_connection_id(sequence: u64) -> Vec<u8> {
    [&[0x19], varint(sequence).as_slice()].concat()
}

/// A CONNECTION_CLOSE frame of the transport.
pub fn connection_close() -> Vec<u8> {
    vec![0x1c, 0, 0, 0]
}

/// As many frames as have room, from the number that `next` holds on.
pub fn filled(room: usize, next: &mut u64, frame: impl Fn(u64) -> Vec<u8>) -> Vec<u8> {
    let mut frames = Vec::new();
    loop {
        let one = frame(*next);
        if frames.len() + one.len() > room {
            return frames;
        }
        frames.extend(one);
        *next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::varint;

    #[test]
    fn numbers_are_written_as_the_rfc_has_them() {
        // RFC 9000, section A.1.
        assert_eq!(varint(151_288_809_941_952_652), [0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c]);
        assert_eq!(varint(494_878_333), [0x9d, 0x7f, 0x3e, 0x7d]);
        assert_eq!(varint(15_293), [0x7b, 0xbd]);
        assert_eq!(varint(37), [0x25]);
    }
}
