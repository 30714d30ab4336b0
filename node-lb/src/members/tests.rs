//! The decisions about API servers: who is known, how healthy they are, and which one is chosen.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

mod health;

const MS: Duration = Duration::from_millis(1);

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 6443))
}

fn addresses(lasts: &[u8]) -> Vec<SocketAddr> {
    lasts.iter().copied().map(address).collect()
}

fn answered(is_ready: bool, round_trip: Duration) -> ProbeOutcome {
    ProbeOutcome::Answered { is_ready, round_trip }
}

/// API servers that the slice names, each with the answer to its first probe.
fn members(answers: &[(u8, ProbeOutcome)], now: Instant) -> Members {
    let mut members = Members::default();
    members.name(Source::Slice, &addresses(&answers.iter().map(|(last, _)| *last).collect::<Vec<_>>()), now);
    for (last, answer) in answers {
        members.probed(address(*last), *answer, now);
    }
    members
}

/// Every API server that a choice may lead to.
fn choices(members: &mut Members) -> BTreeSet<SocketAddr> {
    let mut random = 0_u32;
    let mut next = move || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        random
    };
    (0..200).filter_map(|_| members.choose(&[], &mut next).map(|member| member.address)).collect()
}

fn known(members: &Members) -> BTreeSet<SocketAddr> {
    members.iter().map(|member| member.address).collect()
}

#[test]
fn nothing_is_chosen_before_it_has_shown_its_certificate() {
    let now = Instant::now();
    let mut members = members(&[(1, ProbeOutcome::Missed), (2, ProbeOutcome::Foreign)], now);
    assert!(members.choose(&[], || 0).is_none());

    members.probed(address(1), answered(true, MS), now);
    assert_eq!(choices(&mut members), [address(1)].into());
}

#[test]
fn ready_ones_come_first_then_those_alive_then_those_down_in_turns() {
    let now = Instant::now();
    let mut members =
        members(&[(1, answered(true, MS)), (2, answered(false, MS)), (3, answered(true, MS))], now);
    assert_eq!(choices(&mut members), [address(1), address(3)].into());

    for last in [1, 3] {
        members.probed(address(last), ProbeOutcome::Refused, now);
    }
    assert_eq!(choices(&mut members), [address(2)].into());

    members.probed(address(2), ProbeOutcome::Refused, now);
    let turns: Vec<_> = (0..6).filter_map(|_| Some(members.choose(&[], || 0)?.address)).collect();
    assert_eq!(turns[..3], turns[3..]);
    assert_eq!(turns.into_iter().collect::<BTreeSet<_>>(), addresses(&[1, 2, 3]).into_iter().collect());
}

#[test]
fn one_that_was_tried_is_not_chosen_again_for_a_connection() {
    let now = Instant::now();
    let mut members = members(&[(1, answered(true, MS)), (2, answered(false, MS))], now);

    assert_eq!(members.choose(&addresses(&[1]), || 0).unwrap().address, address(2));
    assert!(members.choose(&addresses(&[1, 2]), || 0).is_none());
}

#[test]
fn of_two_the_one_with_fewer_connections_is_chosen() {
    let now = Instant::now();
    let mut members = members(&[(1, answered(true, MS)), (2, answered(true, MS))], now);
    let traffic = Arc::clone(&members.get(address(1)).unwrap().traffic);
    let open = traffic.open();
    assert_eq!(choices(&mut members), [address(2)].into());

    drop(open);
    assert_eq!(choices(&mut members), addresses(&[1, 2]).into_iter().collect());
}

#[test]
fn a_distant_one_is_left_alone_while_a_near_one_is_as_healthy() {
    let now = Instant::now();
    let mut members =
        members(&[(1, answered(true, MS)), (2, answered(true, 6 * MS)), (3, answered(true, 7 * MS))], now);
    assert_eq!(choices(&mut members), addresses(&[1, 2]).into_iter().collect());

    // The shortest of the last round trips counts.
    members.probed(address(3), answered(true, 2 * MS), now);
    assert_eq!(choices(&mut members).len(), 3);
    members.probed(address(1), answered(false, MS), now);
    members.probed(address(2), answered(false, MS), now);
    assert_eq!(choices(&mut members), [address(3)].into());
}

#[test]
fn an_empty_list_empties_nothing() {
    let now = Instant::now();
    let mut members = members(&[(1, answered(true, MS))], now);

    assert!(!members.name(Source::Slice, &[], now));

    assert!(members.get(address(1)).is_some_and(Member::is_named));
}

#[test]
fn what_no_source_names_any_more_is_a_last_resort_for_a_day() {
    let now = Instant::now();
    let mut members = members(&[(1, answered(true, MS)), (2, answered(true, MS))], now);
    members.name(Source::Slice, &addresses(&[2]), now);
    assert_eq!(choices(&mut members), [address(2)].into());

    members.probed(address(2), answered(false, MS), now);
    assert_eq!(choices(&mut members), [address(1)].into());
    assert!(!members.expire(now + LAST_RESORT_FOR - MS));
    assert!(members.expire(now + LAST_RESORT_FOR));
    assert_eq!(known(&members), [address(2)].into());
}

#[test]
fn seeds_are_never_dropped() {
    let now = Instant::now();
    let mut members = Members::default();
    members.name(Source::Seeds, &addresses(&[1]), now);
    members.name(Source::Slice, &addresses(&[2]), now);
    members.name(Source::Slice, &addresses(&[3]), now);

    members.expire(now + 2 * LAST_RESORT_FOR);

    assert_eq!(known(&members), addresses(&[1, 3]).into_iter().collect());
}

#[test]
fn the_state_file_counts_until_the_slice_was_read() {
    let now = Instant::now();
    let remembered = [
        NamedBefore { address: address(1), unnamed_for: None },
        NamedBefore { address: address(2), unnamed_for: Some(LAST_RESORT_FOR - Duration::from_secs(1)) },
        NamedBefore { address: address(3), unnamed_for: Some(LAST_RESORT_FOR) },
    ];
    let mut members = Members::default();
    members.remember(&remembered, now);
    assert_eq!(members.to_remember(now), remembered[..2]);

    members.name(Source::Slice, &addresses(&[4]), now);

    let named: Vec<_> =
        members.iter().filter(|member| member.is_named()).map(|member| member.address).collect();
    assert_eq!(named, [address(4)]);
    members.expire(now + Duration::from_secs(1));
    assert_eq!(known(&members), addresses(&[1, 4]).into_iter().collect());
}

#[test]
fn a_seed_that_has_shown_nothing_is_not_written_down() {
    let now = Instant::now();
    let mut members = Members::default();
    members.name(Source::Seeds, &addresses(&[1, 2]), now);

    members.probed(address(2), answered(false, MS), now);

    assert_eq!(members.to_remember(now), [NamedBefore { address: address(2), unnamed_for: None }]);
}

#[test]
fn at_most_32_are_known_and_seeds_come_first() {
    let now = Instant::now();
    let mut members = Members::default();
    members.name(Source::Slice, &addresses(&(0..40).collect::<Vec<_>>()), now);
    assert_eq!(members.iter().count(), API_SERVERS_MAX);

    members.name(Source::Seeds, &addresses(&[100, 101]), now);
    assert_eq!(members.iter().count(), API_SERVERS_MAX);
    assert!(known(&members).is_superset(&addresses(&[100, 101]).into_iter().collect()));

    // Last resorts go before all others.
    members.name(Source::Slice, &addresses(&(50..75).collect::<Vec<_>>()), now);
    assert!(known(&members).is_superset(&addresses(&(50..75).collect::<Vec<_>>()).into_iter().collect()));
}

proptest! {
    /// Steps name, probe and let time pass. Nothing is chosen that has not shown its certificate last.
    #[test]
    fn only_what_has_proved_itself_is_ever_chosen(
        steps in prop::collection::vec((0_u8..8, 0_u8..6, 0_u64..10_000, any::<u32>()), 1..100)
    ) {
        let mut now = Instant::now();
        let mut members = Members::default();
        let mut proved: BTreeSet<SocketAddr> = BTreeSet::new();
        for (what, last, millis, random) in steps {
            now += Duration::from_millis(millis);
            match what {
                0 => drop(members.name(Source::Slice, &addresses(&[last, (last + 1) % 6]), now)),
                1 => drop(members.name(Source::Seeds, &addresses(&[last]), now)),
                2 => drop(members.probed(address(last), ProbeOutcome::Foreign, now)),
                3 => drop(members.probed(address(last), ProbeOutcome::Missed, now)),
                4 => drop(members.probed(address(last), ProbeOutcome::Refused, now)),
                5 => drop(members.probed(address(last), answered(false, MS), now)),
                6 => drop(members.probed(address(last), answered(true, MS), now)),
                _ => drop(members.expire(now)),
            }
            let known = known(&members);
            match what {
                2 => drop(proved.remove(&address(last))),
                5 | 6 if known.contains(&address(last)) => drop(proved.insert(address(last))),
                _ => {}
            }
            proved.retain(|address| known.contains(address));
            let chosen = members.choose(&[], || random).map(|member| member.address);
            prop_assert_eq!(chosen.is_some(), !proved.is_empty());
            prop_assert!(chosen.is_none_or(|chosen| proved.contains(&chosen)));
        }
    }
}
