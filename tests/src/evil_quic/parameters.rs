//! Transport parameters (RFC 9000, section 18), valid and invalid ones.

use crate::rng::Rng;

use super::frames::varint;

/// Numbers at which readers of numbers fail.
const EDGES: [u64; 12] =
    [0, 1, 2, 20, 21, 1199, 0x3fff, 0x4000, 0xffff, u32::MAX as u64, (1 << 60) + 1, (1 << 62) - 1];

/// Identifiers that only servers send, that others have registered, and that nobody knows.
const OTHERS: [u64; 10] = [0x00, 0x02, 0x0d, 0x10, 0x11, 0x20, 0x2ab2, 0xff04_de1b, 27, (1 << 62) - 1];

/// Valid parameters of a client with this connection ID.
pub fn good(source: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let numbers =
        [(0x01, 30_000), (0x03, 1472), (0x04, 1 << 20), (0x05, 1 << 18), (0x06, 1 << 18), (0x07, 1 << 18)];
    let more = [(0x08, 100), (0x09, 100), (0x0a, 3), (0x0b, 25), (0x0e, 2), (0x20, 65_535)];
    let numbers = numbers.into_iter().chain(more).map(|(id, number)| (id, varint(number)));
    numbers.chain([(0x0f, source.to_vec())]).collect()
}

/// The parameters in their wire format.
pub fn written(parameters: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let one =
        |(id, value): &(u64, Vec<u8>)| [varint(*id), varint(value.len() as u64), value.clone()].concat();
    parameters.iter().flat_map(one).collect()
}

/// Something that differs from what is good in one way or several.
pub fn broken(source: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut all = good(source);
    for _ in 0..=rng.below(3) {
        let place = index(rng, all.len());
        match rng.below(8) {
            0 => drop(all.remove(place)),
            1 => all.push(all[place].clone()),
            2 => all[place].1 = varint(EDGES[index(rng, EDGES.len())]),
            3 => all[place].1 = noise(rng, 24),
            4 => all[place].0 = OTHERS[index(rng, OTHERS.len())],
            5 => all.push((OTHERS[index(rng, OTHERS.len())], noise(rng, 64))),
            6 => all[place].1.push(0),
            _ => drop(all[place].1.pop()),
        }
    }
    let mut bytes = written(&all);
    match rng.below(6) {
        0 => bytes.truncate(index(rng, bytes.len())),
        1 => bytes.extend(noise(rng, 64)),
        2 => {
            let place = index(rng, bytes.len());
            bytes[place] ^= 1 << rng.below(8);
        }
        _ => {}
    }
    bytes
}

fn noise(rng: &mut Rng, bytes_max: u64) -> Vec<u8> {
    (0..rng.below(bytes_max)).map(|_| rng.next_u64().to_le_bytes()[0]).collect()
}

fn index(rng: &mut Rng, bound: usize) -> usize {
    usize::try_from(rng.below(bound.max(1) as u64)).expect("below a usize")
}
