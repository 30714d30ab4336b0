//! Probes and dials that fail: when an API server is down, and when its connections end.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Three API servers that are ready, and the time of their answers.
fn three() -> (Members, Instant) {
    let now = Instant::now();
    (members(&[1, 2, 3].map(|last| (last, answered(true, MS))), now), now)
}

fn grade(members: &Members, last: u8) -> Grade {
    members.get(address(last)).unwrap().grade()
}

#[test]
fn one_miss_has_it_probed_again_and_two_are_down() {
    let (mut members, now) = three();

    let first = members.probed(address(1), ProbeOutcome::Missed, now + SECOND);
    assert!(first.probe_again && first.probe_others && first.grade.is_none());

    let second = members.probed(address(1), ProbeOutcome::Missed, now + 2 * SECOND);
    assert!(!second.probe_again);
    assert_eq!(second.grade, Some((Grade::Ready, Grade::Down)));
}

#[test]
fn an_answer_between_two_misses_is_a_new_begin() {
    let (mut members, now) = three();
    members.probed(address(1), ProbeOutcome::Missed, now + SECOND);
    members.probed(address(1), answered(true, MS), now + 2 * SECOND);

    let changes = members.probed(address(1), ProbeOutcome::Missed, now + 3 * SECOND);

    assert!(changes.probe_again);
    assert_eq!(grade(&members, 1), Grade::Ready);
}

#[test]
fn it_is_not_down_while_bytes_come_from_it() {
    let (mut members, now) = three();
    let traffic = Arc::clone(&members.get(address(1)).unwrap().traffic);
    members.probed(address(1), ProbeOutcome::Missed, now + SECOND);
    traffic.received(1, now + 2 * SECOND + MS);
    members.probed(address(1), ProbeOutcome::Missed, now + 2 * SECOND);
    assert_eq!(grade(&members, 1), Grade::Ready);

    members.probed(address(1), ProbeOutcome::Missed, now + 4 * SECOND);
    assert_eq!(grade(&members, 1), Grade::Down);
}

#[test]
fn its_connections_end_once_another_one_answers() {
    let (mut members, now) = three();
    members.probed(address(1), ProbeOutcome::Missed, now + SECOND);
    let down = members.probed(address(1), ProbeOutcome::Missed, now + 2 * SECOND);
    assert_eq!((down.cut.as_slice(), down.probe_others), ([].as_slice(), true));
    // That one was asked before the fault.
    assert_eq!(members.probed(address(2), answered(true, MS), now).cut, []);

    let answer = members.probed(address(2), answered(false, MS), now + 2 * SECOND);

    assert_eq!(answer.cut, [address(1)]);
    assert_eq!(members.probed(address(3), answered(true, MS), now + 3 * SECOND).cut, []);
}

#[test]
fn its_connections_end_at_once_if_another_one_has_answered_since() {
    let (mut members, now) = three();
    members.probed(address(1), ProbeOutcome::Missed, now + SECOND);
    members.probed(address(2), answered(true, MS), now + 2 * SECOND);

    let down = members.probed(address(1), ProbeOutcome::Missed, now + 2 * SECOND);

    assert_eq!(down.cut, [address(1)]);
}

/// The fault may be of this host, such as a cable.
#[test]
fn if_all_are_silent_no_connection_ends() {
    let (mut members, now) = three();
    for round in 1..10 {
        for last in 1..4 {
            let changes = members.probed(address(last), ProbeOutcome::Missed, now + round * SECOND);
            assert_eq!(changes.cut, []);
        }
    }
    assert_eq!(members.count(Grade::Down), 3);

    // One of them is back, and the others still are not.
    members.probed(address(3), answered(true, MS), now + 10 * SECOND);
    assert_eq!(grade(&members, 3), Grade::Ready);
}

/// A process that ends in order has closed its listener, and finishes what it has begun.
#[test]
fn a_refused_dial_is_down_at_once_and_ends_no_connection() {
    let (mut members, now) = three();

    let refused = members.probed(address(1), ProbeOutcome::Refused, now + SECOND);
    let other = members.probed(address(2), answered(true, MS), now + 2 * SECOND);

    assert_eq!(refused.grade, Some((Grade::Ready, Grade::Down)));
    assert_eq!((refused.cut.as_slice(), other.cut.as_slice()), ([].as_slice(), [].as_slice()));
}

#[test]
fn an_address_that_cannot_be_reached_is_down_at_once() {
    let (mut members, now) = three();

    members.probed(address(1), ProbeOutcome::Unreachable, now + SECOND);

    assert_eq!(grade(&members, 1), Grade::Down);
    assert_eq!(members.probed(address(2), answered(true, MS), now + 2 * SECOND).cut, [address(1)]);
}

#[test]
fn another_certificate_ends_all_connections_and_nothing_more_is_relayed() {
    let (mut members, now) = three();

    let changes = members.probed(address(1), ProbeOutcome::Foreign, now + SECOND);

    assert_eq!(changes.cut, [address(1)]);
    assert_eq!(grade(&members, 1), Grade::Unproven);
    assert!(!choices(&mut members).contains(&address(1)));
}

#[test]
fn one_that_drains_keeps_its_connections_and_gets_no_more() {
    let (mut members, now) = three();

    let changes = members.probed(address(1), answered(false, MS), now + SECOND);

    assert_eq!(changes.cut, []);
    assert_eq!(choices(&mut members), addresses(&[2, 3]).into_iter().collect());
}

#[test]
fn one_that_becomes_ready_again_joins_the_others_that_are() {
    let (mut members, now) = three();
    members.probed(address(1), ProbeOutcome::Refused, now + SECOND);
    members.probed(address(2), answered(false, MS), now + SECOND);

    assert_eq!(members.probed(address(1), answered(true, MS), now + 2 * SECOND).joined, Some(1));
    // It had kept its connections.
    assert_eq!(members.probed(address(2), answered(true, MS), now + 2 * SECOND).joined, None);
    members.name(Source::Slice, &addresses(&[1, 2, 3, 4]), now);
    assert_eq!(members.probed(address(4), answered(true, MS), now + 3 * SECOND).joined, Some(3));
}
