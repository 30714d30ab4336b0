//! Fuzz target: pings are recognized, and their answers stand between frames.

use super::tests::written;
use super::*;

/// Random inputs that `make test` tries beside the corpus. `make fuzz` sets another number by the
/// environment.
const ITERATIONS: usize = 2_000;

/// The first byte chooses the protocol and the bytes of one write, the second one the caller's part of the
/// others. The caller receives the edge's bytes, with answers where one of the edge's frames has ended. The
/// edge receives the caller's bytes, of which no more is taken out than was answered.
#[test]
fn pings() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let [how, part, rest @ ..] = bytes else { return };
        let protocol = if how % 2 == 0 { UpgradeProtocol::WebSocket } else { UpgradeProtocol::Spdy31 };
        let (caller_bytes, edge_bytes) = rest.split_at(rest.len() * usize::from(*part) / 256);
        let (mut pings, mut bytes_left) = (Pings::new(protocol), BytesMut::from(caller_bytes));
        // The split may fall within a frame of the edge.
        let (before, after) = edge_bytes.split_at(edge_bytes.len() / 2);
        let at_once = usize::from(how / 2) + 1;
        let mut received = written(&mut pings, before, at_once);
        pings.caller_sent(&mut bytes_left, true);
        let answers: Vec<u8> = pings.waiting.iter().flatten().copied().collect();
        received.extend(written(&mut pings, after, at_once));

        let taken = caller_bytes.len() - bytes_left.len();
        assert!(taken == 0 || !answers.is_empty(), "{taken} bytes were taken out");
        let given = received.len() - edge_bytes.len();
        if given == 0 {
            assert_eq!(received, edge_bytes);
            return;
        }
        assert_eq!(given, answers.len(), "all of them at once");
        let is_there = |end: usize| [&edge_bytes[..end], &answers, &edge_bytes[end..]].concat() == received;
        let ends = ends(protocol, edge_bytes);
        assert!(ends.into_iter().any(is_there));
    });
}

/// Positions at which frames end. Each frame is looked for from its first byte on.
fn ends(protocol: UpgradeProtocol, bytes: &[u8]) -> Vec<usize> {
    let mut ends = vec![0];
    while let Some(&end) = ends.last() {
        let head = (end..bytes.len()).find_map(|at| Some((at + 1, payload(protocol, &bytes[end..=at])?)));
        let Some((head, payload)) = head.filter(|(head, payload)| *payload <= (bytes.len() - head) as u64)
        else {
            break;
        };
        // At most as many bytes as there are.
        ends.push(head + payload as usize);
    }
    ends
}
