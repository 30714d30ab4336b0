//! Fuzz target: what is taken for a ping, and where its answer is put.

use super::tests::told;
use super::*;

/// How many random inputs `make test` tries, beside the corpus. `make fuzz` says otherwise by the environment.
const ITERATIONS: usize = 2_000;

/// The first byte says the protocol and how much is told at once, the second what part of the others is the caller's. What the
/// caller is told is what the edge said, with answers where one of its frames has ended; what the edge hears is what the caller said, with
/// no more taken out than was answered.
#[test]
fn pings() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let [how, part, rest @ ..] = bytes else { return };
        let protocol = if how % 2 == 0 { Protocol::WebSocket } else { Protocol::Spdy31 };
        let (asked, said) = rest.split_at(rest.len() * usize::from(*part) / 256);
        let (mut pings, mut words) = (Pings::new(protocol), BytesMut::from(asked));
        // Within a frame of the edge's, if it has begun one by then.
        let (before, after) = said.split_at(said.len() / 2);
        let at_once = usize::from(how / 2) + 1;
        let mut heard = told(&mut pings, before, at_once);
        pings.asked(&mut words, true);
        let answers: Vec<u8> = pings.answers.iter().flatten().copied().collect();
        heard.extend(told(&mut pings, after, at_once));

        let taken = asked.len() - words.len();
        assert!(taken == 0 || !answers.is_empty(), "{taken} bytes were taken out");
        let given = heard.len() - said.len();
        if given == 0 {
            assert_eq!(heard, said);
            return;
        }
        assert_eq!(given, answers.len(), "all of them at once");
        let is_there = |end: usize| [&said[..end], &answers, &said[end..]].concat() == heard;
        let ends = ends(protocol, said);
        assert!(ends.into_iter().any(is_there));
    });
}

/// Where frames end, each looked for from its beginning on.
fn ends(protocol: Protocol, bytes: &[u8]) -> Vec<usize> {
    let mut ends = vec![0];
    while let Some(&end) = ends.last() {
        let head = (end..bytes.len()).find_map(|at| Some((at + 1, payload(protocol, &bytes[end..=at])?)));
        let Some((head, payload)) = head.filter(|(head, payload)| *payload <= (bytes.len() - head) as u64)
        else {
            break;
        };
        // No more than there are.
        ends.push(head + payload as usize);
    }
    ends
}
