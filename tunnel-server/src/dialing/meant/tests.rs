//! Whoever is chosen is of those that were named, is permitted and is alone; who may not be reached is as if it were not there; and
//! what agents say of themselves lets nobody in.

use std::sync::Arc;
use std::time::SystemTime;

use futures::FutureExt as _;
use policy::Rules;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::directory::UnixSeconds;
use crate::permit::Policy;

const TARGET: &str = "192.168.1.10:6443";

/// What the store says of a cluster's addresses, of which the target is one or is none.
const NOT_HIS: [&[&str]; 4] =
    [&[], &["192.168.1.11:6443"], &["192.168.1.10:443", "10.0.0.0/8"], &["api.site.example:6443"]];
const WITHIN_RANGE: [&[&str]; 2] = [&["192.168.1.0/24"], &["192.168.1.10/32", "10.0.0.1:1"]];
const IN_FULL: [&[&str]; 3] =
    [&[TARGET], &["192.168.1.0/24", TARGET], &["[::ffff:192.168.1.10]:6443", "192.168.1.0/24"]];

/// A cluster as plain data.
#[derive(Debug, Clone)]
struct Plain {
    said: &'static [&'static str],
    advertised: Option<bool>,
    was_met: bool,
    /// What of it the caller may dial.
    may: May,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum May {
    Nothing,
    OtherPorts,
    All,
    /// A rule allows it, and another denies it.
    Denied,
    /// A rule allows all clusters but those whose record bears a label, which this one's does.
    Unselected,
}

impl Plain {
    /// What is said above, said once more and slowly.
    fn is_meant(&self) -> bool {
        let has_it = match self.said {
            said if IN_FULL.contains(&said) => true,
            said if WITHIN_RANGE.contains(&said) => match self.advertised {
                Some(advertised) => advertised,
                None => self.was_met,
            },
            _ => false,
        };
        has_it && self.may == May::All
    }

    fn rules(&self, number: usize) -> String {
        let rule = |effect: &str, ports: &str| {
            format!(
                "- {{ name: {}-{number}, effect: {effect}, subjects: [{{ method: token, user: alice }}], clusters: {{ names: \
                 [edge-{number}] }}, mode: dial, targets: [{{ hosts: ['*'], ports: [{ports}] }}] }}\n",
                effect.to_ascii_lowercase()
            )
        };
        match self.may {
            May::Nothing => String::new(),
            May::OtherPorts => rule("Allow", "22"),
            May::All => rule("Allow", "'*'"),
            May::Denied => rule("Allow", "'*'") + &rule("Deny", "6443"),
            May::Unselected => format!(
                "- {{ name: unselected-{number}, effect: Allow, subjects: [{{ method: token, user: alice }}], clusters: {{ \
                 labelSelector: {{ matchExpressions: [{{ key: closed-{number}, operator: DoesNotExist }}, {{ key: of, operator: In, \
                 values: [edge-{number}] }}] }} }}, mode: dial, targets: [{{ hosts: ['*'], ports: ['*'] }}] }}\n"
            ),
        }
    }

    fn possible(&self, number: usize) -> Possible {
        let said = Cluster {
            created: UnixSeconds(0),
            labels: [
                (format!("closed-{number}"), String::new()),
                ("of".to_owned(), format!("edge-{number}")),
            ]
            .into(),
            networks: vec!["plant".to_owned()],
            advertise: self.said.iter().map(|said| (*said).to_owned()).collect(),
            tombstone: None,
        };
        let last_seen = self.was_met.then_some(SystemTime::UNIX_EPOCH);
        (
            ClusterEntry { cluster: named(number), last_seen, record: Arc::new(said), given: None },
            self.advertised,
        )
    }
}

fn plain() -> impl Strategy<Value = Plain> {
    let said: Vec<_> = NOT_HIS.iter().chain(&WITHIN_RANGE).chain(&IN_FULL).copied().collect();
    let advertised = select(vec![None, Some(false), Some(true)]);
    let may = select(vec![May::Nothing, May::OtherPorts, May::All, May::All, May::Denied, May::Unselected]);
    (select(said), advertised, any::<bool>(), may).prop_map(|(said, advertised, was_met, may)| Plain {
        said,
        advertised,
        was_met,
        may,
    })
}

proptest! {
    #[test]
    fn the_one_that_has_the_target_and_may_be_dialed_is_meant_and_of_several_none_is(
        clusters in prop::collection::vec(plain(), 0..6),
    ) {
        let expected: Vec<ClusterId> = meant_among(&clusters);

        match (asked(&clusters), expected.as_slice()) {
            (Ok(permit), [one]) => {
                let dial = Dial { cluster: one.clone(), target: TARGET.parse().unwrap() };
                prop_assert_eq!(permit.what(), &dial);
            }
            (Err(NotConnected::Nowhere(target)), []) => prop_assert_eq!(target.to_string(), TARGET),
            (Err(NotConnected::Ambiguous(target, among)), [_, _, ..]) => {
                prop_assert_eq!((target.to_string(), among), (TARGET.to_owned(), expected));
            }
            (other, expected) => prop_assert!(false, "{other:?} of {expected:?}"),
        }
    }

    #[test]
    fn clusters_that_may_not_be_dialed_there_change_neither_the_verdict_nor_its_words(
        clusters in prop::collection::vec(plain(), 0..5),
        others in prop::collection::vec((plain(), 0..6_usize, select(vec![May::Nothing, May::OtherPorts, May::Denied])), 1..5),
    ) {
        let without: Vec<(usize, Plain)> = clusters.iter().cloned().enumerate().collect();
        let mut with = without.clone();
        for (number, (other, place, may)) in others.into_iter().enumerate() {
            with.insert(place.min(with.len()), (clusters.len() + number, Plain { may, ..other }));
        }

        let (before, after) = (judged(&without), judged(&with));

        prop_assert_eq!(words(&before), words(&after));
    }

    /// A greeting bears endpoints, and nothing else of which a verdict hears: it says that it has a target, or that it has not.
    #[test]
    fn whatever_an_agent_says_of_itself_lets_nobody_dial_what_its_silence_would_not(
        clusters in prop::collection::vec(plain(), 0..6),
    ) {
        // Who greets has been here.
        let met = |plain: &Plain, advertised| Plain { advertised, was_met: true, ..plain.clone() };
        let greeting: Vec<Plain> = clusters.iter().map(|plain| met(plain, plain.advertised)).collect();
        let silent: Vec<Plain> = clusters.iter().map(|plain| met(plain, None)).collect();

        let (with, without) = (dialable(&greeting), dialable(&silent));

        prop_assert!(with.iter().all(|cluster| without.contains(cluster)), "{with:?} beside {without:?}");
    }

    #[test]
    fn the_order_in_which_clusters_are_found_changes_no_verdict(
        clusters in prop::collection::vec(plain(), 0..6), by in 0..6_usize,
    ) {
        let numbered: Vec<(usize, Plain)> = clusters.into_iter().enumerate().collect();
        let mut turned = numbered.clone();
        turned.rotate_left(by % numbered.len().max(1));
        let kind = |verdict: &Result<Permit<Dial>, NotConnected>| match verdict {
            Ok(permit) => Ok(permit.what().cluster.clone()),
            Err(fault) => Err(fault.cause()),
        };

        prop_assert_eq!(kind(&judged(&numbered)), kind(&judged(&turned)));
    }
}

#[test]
fn of_more_clusters_than_are_asked_about_none_is_chosen_and_as_many_are_named_as_may_be() {
    let one = Plain { said: IN_FULL[0], advertised: None, was_met: false, may: May::All };
    for (count, named) in [(NAMED_MAX, "edge-7:"), (NAMED_MAX + 1, "edge-7 and 1 more:"), (40, "and 8 more:")]
    {
        let said = asked(&vec![one.clone(); count]).unwrap_err();
        assert!(said.to_string().contains(named), "{count}: {said}");
        let NotConnected::Ambiguous(_, among) = said else { panic!("{said}") };
        assert_eq!(among.len(), count.min(CONCURRENT_REVIEWS_MAX));
    }
    // Of those that were asked about one is left; of the others nothing is known.
    let target = TARGET.parse().unwrap();
    let permit = asked(std::slice::from_ref(&one)).unwrap();
    let refused = only(Permitted { permits: vec![permit], is_all: false }, &target).unwrap_err();
    assert_eq!(refused.cause(), "TargetAmbiguous");
    let refused = only(Permitted { permits: Vec::new(), is_all: false }, &target).unwrap_err();
    assert!(refused.to_string().contains("ambiguous among many clusters"), "{refused}");
}

#[test]
fn an_address_is_ambiguous_in_words_that_fit_a_status_line_and_name_the_clusters_first() {
    let one = Plain { said: IN_FULL[0], advertised: None, was_met: false, may: May::All };
    let said = asked(&[one.clone(), one]).unwrap_err().to_string();
    assert!(said.starts_with("192.168.1.10:6443 is ambiguous among edge-0, edge-1: name "), "{said}");
}

fn meant_among(clusters: &[Plain]) -> Vec<ClusterId> {
    let numbered = clusters.iter().enumerate();
    numbered.filter(|(_, plain)| plain.is_meant()).map(|(number, _)| named(number)).collect()
}

/// Where alice may dial [`TARGET`].
fn dialable(clusters: &[Plain]) -> Vec<ClusterId> {
    let numbered: Vec<(usize, Plain)> = clusters.iter().cloned().enumerate().collect();
    let permits = permits(&numbered).expect("nobody is asked").permits;
    permits.iter().map(|permit| permit.what().cluster.clone()).collect()
}

fn asked(clusters: &[Plain]) -> Result<Permit<Dial>, NotConnected> {
    judged(&clusters.iter().cloned().enumerate().collect::<Vec<_>>())
}

/// What becomes of alice, who asks for [`TARGET`] among these.
fn judged(clusters: &[(usize, Plain)]) -> Result<Permit<Dial>, NotConnected> {
    only(permits(clusters)?, &target())
}

fn permits(clusters: &[(usize, Plain)]) -> Result<Permitted, NotDelegated> {
    let rules: String = clusters.iter().map(|(number, plain)| plain.rules(*number)).collect();
    let (edition, alice) = (policy(&rules).edition(), Caller::for_test("alice", &[]));
    let possible = clusters.iter().map(|(number, plain)| plain.possible(*number));
    let (nobody, target) = (Delegation::default(), target());
    let permitted = permitted(&edition, &nobody, &alice, &target, possible);
    permitted.now_or_never().expect("nobody is asked")
}

fn target() -> Target {
    TARGET.parse().unwrap()
}

fn words(verdict: &Result<Permit<Dial>, NotConnected>) -> String {
    match verdict {
        Ok(permit) => permit.what().cluster.to_string(),
        Err(fault) => format!("{} {} {fault}", fault.status(), fault.cause()),
    }
}

fn named(number: usize) -> ClusterId {
    format!("edge-{number}").parse().unwrap()
}

fn policy(rules: &str) -> Policy {
    // A policy has one rule at least.
    let somebody = "- { name: somebody, effect: Allow, subjects: [{ method: token, user: bob }], clusters: { names: ['*'] }, mode: dial, \
                    targets: [{ hosts: ['*'], ports: ['*'] }] }\n";
    let whole = format!("apiVersion: tombolo.dev/v1alpha1\nkind: Policy\nrules:\n{somebody}{rules}");
    let document = daemon::config::parse(&whole, "policy.yaml".as_ref(), policy::KIND).unwrap();
    Policy::new(Rules::of(&document).unwrap())
}
