//! The chosen cluster is among the candidates, permitted, and the only one. Clusters out of reach do not
//! count, and the statements of agents grant nothing.

use std::sync::Arc;
use std::time::SystemTime;

use futures::FutureExt as _;
use policy::Rules;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::authz::Policy;
use crate::dialing::error::LISTED_MAX;
use crate::directory::UnixSeconds;

const TARGET: &str = "192.168.1.10:6443";

/// The advertised entries of a cluster. The target is in some of these lists and not in others.
const OTHER_ADDRESSES: [&[&str]; 4] =
    [&[], &["192.168.1.11:6443"], &["192.168.1.10:443", "10.0.0.0/8"], &["api.site.example:6443"]];
const WITHIN_RANGE: [&[&str]; 2] = [&["192.168.1.0/24"], &["192.168.1.10/32", "10.0.0.1:1"]];
const EXACT: [&[&str]; 3] =
    [&[TARGET], &["192.168.1.0/24", TARGET], &["[::ffff:192.168.1.10]:6443", "192.168.1.0/24"]];

/// A cluster as plain data for the model.
#[derive(Debug, Clone)]
struct ModelCluster {
    advertise: &'static [&'static str],
    advertised: Option<bool>,
    was_met: bool,
    /// The targets of this cluster that the caller may dial.
    rights: Rights,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rights {
    Nothing,
    OtherPorts,
    All,
    /// One rule allows it, and another denies it.
    Denied,
    /// A rule allows all clusters except those with a label that this cluster has.
    Unselected,
}

impl ModelCluster {
    /// The model's own definition of a cluster that qualifies.
    fn is_resolvable(&self) -> bool {
        let has_it = match self.advertise {
            advertise if EXACT.contains(&advertise) => true,
            advertise if WITHIN_RANGE.contains(&advertise) => match self.advertised {
                Some(advertised) => advertised,
                None => self.was_met,
            },
            _ => false,
        };
        has_it && self.rights == Rights::All
    }

    fn rules(&self, number: usize) -> String {
        let rule = |effect: &str, ports: &str| {
            format!(
                "- {{ name: {}-{number}, effect: {effect}, subjects: [{{ method: token, user: alice }}], clusters: {{ names: \
                 [edge-{number}] }}, mode: dial, targets: [{{ hosts: ['*'], ports: [{ports}] }}] }}\n",
                effect.to_ascii_lowercase()
            )
        };
        match self.rights {
            Rights::Nothing => String::new(),
            Rights::OtherPorts => rule("Allow", "22"),
            Rights::All => rule("Allow", "'*'"),
            Rights::Denied => rule("Allow", "'*'") + &rule("Deny", "6443"),
            Rights::Unselected => format!(
                "- {{ name: unselected-{number}, effect: Allow, subjects: [{{ method: token, user: alice }}], clusters: {{ \
                 labelSelector: {{ matchExpressions: [{{ key: closed-{number}, operator: DoesNotExist }}, {{ key: of, operator: In, \
                 values: [edge-{number}] }}] }} }}, mode: dial, targets: [{{ hosts: ['*'], ports: ['*'] }}] }}\n"
            ),
        }
    }

    fn candidate(&self, number: usize) -> ClusterCandidate {
        let record = Cluster {
            created: UnixSeconds(0),
            labels: [
                (format!("closed-{number}"), String::new()),
                ("of".to_owned(), format!("edge-{number}")),
            ]
            .into(),
            networks: vec!["plant".to_owned()],
            advertise: self.advertise.iter().map(|entry| (*entry).to_owned()).collect(),
            tombstone: None,
        };
        let last_seen = self.was_met.then_some(SystemTime::UNIX_EPOCH);
        (
            ClusterEntry { cluster: named(number), last_seen, record: Arc::new(record), given: None },
            self.advertised,
        )
    }
}

fn model_cluster() -> impl Strategy<Value = ModelCluster> {
    let advertise: Vec<_> = OTHER_ADDRESSES.iter().chain(&WITHIN_RANGE).chain(&EXACT).copied().collect();
    let advertised = select(vec![None, Some(false), Some(true)]);
    let rights = select(vec![
        Rights::Nothing,
        Rights::OtherPorts,
        Rights::All,
        Rights::All,
        Rights::Denied,
        Rights::Unselected,
    ]);
    (select(advertise), advertised, any::<bool>(), rights).prop_map(
        |(advertise, advertised, was_met, rights)| ModelCluster { advertise, advertised, was_met, rights },
    )
}

proptest! {
    /// Of several none is chosen.
    #[test]
    fn exactly_one_cluster_with_target_and_permission_is_chosen(
        clusters in prop::collection::vec(model_cluster(), 0..6),
    ) {
        let expected: Vec<ClusterId> = resolvable_among(&clusters);

        match (resolve_numbered(&clusters), expected.as_slice()) {
            (Ok(permit), [one]) => {
                let dial = Dial { cluster: one.clone(), target: TARGET.parse().unwrap() };
                prop_assert_eq!(permit.what(), &dial);
            }
            (Err(DialError::NotFound(target)), []) => prop_assert_eq!(target.to_string(), TARGET),
            (Err(DialError::Ambiguous(target, among)), [_, _, ..]) => {
                prop_assert_eq!((target.to_string(), among), (TARGET.to_owned(), expected));
            }
            (other, expected) => prop_assert!(false, "{other:?} of {expected:?}"),
        }
    }

    #[test]
    fn forbidden_clusters_change_neither_the_result_nor_its_message(
        clusters in prop::collection::vec(model_cluster(), 0..5),
        others in prop::collection::vec((model_cluster(), 0..6_usize, select(vec![Rights::Nothing, Rights::OtherPorts, Rights::Denied])), 1..5),
    ) {
        let without: Vec<(usize, ModelCluster)> = clusters.iter().cloned().enumerate().collect();
        let mut with = without.clone();
        for (number, (other, position, rights)) in others.into_iter().enumerate() {
            with.insert(position.min(with.len()), (clusters.len() + number, ModelCluster { rights, ..other }));
        }

        let (before, after) = (resolve(&without), resolve(&with));

        prop_assert_eq!(description(&before), description(&after));
    }

    /// A greeting contains endpoints, and the decision uses nothing else of it: the agent advertises the
    /// target or does not.
    #[test]
    fn no_advertisement_allows_a_dial_that_silence_would_not(
        clusters in prop::collection::vec(model_cluster(), 0..6),
    ) {
        // A cluster whose agent greets has been seen.
        let met = |model: &ModelCluster, advertised| ModelCluster { advertised, was_met: true, ..model.clone() };
        let greeting: Vec<ModelCluster> = clusters.iter().map(|model| met(model, model.advertised)).collect();
        let silent: Vec<ModelCluster> = clusters.iter().map(|model| met(model, None)).collect();

        let (with, without) = (dialable(&greeting), dialable(&silent));

        prop_assert!(with.iter().all(|cluster| without.contains(cluster)), "{with:?} beside {without:?}");
    }

    #[test]
    fn the_order_of_candidates_does_not_change_the_result(
        clusters in prop::collection::vec(model_cluster(), 0..6), by in 0..6_usize,
    ) {
        let numbered: Vec<(usize, ModelCluster)> = clusters.into_iter().enumerate().collect();
        let mut turned = numbered.clone();
        turned.rotate_left(by % numbered.len().max(1));
        let kind = |verdict: &Result<Permit<Dial>, DialError>| match verdict {
            Ok(permit) => Ok(permit.what().cluster.clone()),
            Err(fault) => Err(fault.cause()),
        };

        prop_assert_eq!(kind(&resolve(&numbered)), kind(&resolve(&turned)));
    }
}

/// The message names as many clusters as its limit allows.
#[test]
fn beyond_the_limit_of_reviews_no_cluster_is_chosen() {
    let one = ModelCluster { advertise: EXACT[0], advertised: None, was_met: false, rights: Rights::All };
    for (count, named) in
        [(LISTED_MAX, "edge-7:"), (LISTED_MAX + 1, "edge-7 and 1 more:"), (40, "and 8 more:")]
    {
        let error = resolve_numbered(&vec![one.clone(); count]).unwrap_err();
        assert!(error.to_string().contains(named), "{count}: {error}");
        let DialError::Ambiguous(_, among) = error else { panic!("{error}") };
        assert_eq!(among.len(), count.min(DELEGATED_MAX));
    }
    // One of the clusters that were asked about is left, and the others are unknown.
    let target = TARGET.parse().unwrap();
    let permit = resolve_numbered(std::slice::from_ref(&one)).unwrap();
    let refused =
        exactly_one(PermittedDials { permits: vec![permit], is_complete: false }, &target).unwrap_err();
    assert_eq!(refused.cause(), "TargetAmbiguous");
    let refused =
        exactly_one(PermittedDials { permits: Vec::new(), is_complete: false }, &target).unwrap_err();
    assert!(refused.to_string().contains("ambiguous among many clusters"), "{refused}");
}

/// It names the clusters first.
#[test]
fn the_message_about_ambiguity_fits_a_status_line() {
    let one = ModelCluster { advertise: EXACT[0], advertised: None, was_met: false, rights: Rights::All };
    let error = resolve_numbered(&[one.clone(), one]).unwrap_err().to_string();
    assert!(error.starts_with("192.168.1.10:6443 is ambiguous among edge-0, edge-1: name "), "{error}");
}

fn resolvable_among(clusters: &[ModelCluster]) -> Vec<ClusterId> {
    let numbered = clusters.iter().enumerate();
    numbered.filter(|(_, model)| model.is_resolvable()).map(|(number, _)| named(number)).collect()
}

/// The clusters in which alice may dial [`TARGET`].
fn dialable(clusters: &[ModelCluster]) -> Vec<ClusterId> {
    let numbered: Vec<(usize, ModelCluster)> = clusters.iter().cloned().enumerate().collect();
    let permits = permits(&numbered).expect("nobody is asked").permits;
    permits.iter().map(|permit| permit.what().cluster.clone()).collect()
}

fn resolve_numbered(clusters: &[ModelCluster]) -> Result<Permit<Dial>, DialError> {
    resolve(&clusters.iter().cloned().enumerate().collect::<Vec<_>>())
}

/// The result for alice, who asks for [`TARGET`] among these clusters.
fn resolve(clusters: &[(usize, ModelCluster)]) -> Result<Permit<Dial>, DialError> {
    exactly_one(permits(clusters)?, &target())
}

fn permits(clusters: &[(usize, ModelCluster)]) -> Result<PermittedDials, NotDelegated> {
    let rules: String = clusters.iter().map(|(number, model)| model.rules(*number)).collect();
    let (snapshot, alice) = (policy(&rules).snapshot(), Caller::for_test("alice", &[]));
    let candidates = clusters.iter().map(|(number, model)| model.candidate(*number));
    let (nobody, target) = (Delegation::default(), target());
    let permitted = permitted(&snapshot, &nobody, &alice, &target, candidates);
    permitted.now_or_never().expect("nobody is asked")
}

fn target() -> Target {
    TARGET.parse().unwrap()
}

fn description(verdict: &Result<Permit<Dial>, DialError>) -> String {
    match verdict {
        Ok(permit) => permit.what().cluster.to_string(),
        Err(fault) => format!("{} {} {fault}", fault.status(), fault.cause()),
    }
}

fn named(number: usize) -> ClusterId {
    format!("edge-{number}").parse().unwrap()
}

fn policy(rules: &str) -> Policy {
    // A policy must have at least one rule.
    let somebody = "- { name: somebody, effect: Allow, subjects: [{ method: token, user: bob }], clusters: { names: ['*'] }, mode: dial, \
                    targets: [{ hosts: ['*'], ports: ['*'] }] }\n";
    let document_text = format!("apiVersion: tombolo.dev/v1alpha1\nkind: Policy\nrules:\n{somebody}{rules}");
    let document = daemon::config::parse(&document_text, "policy.yaml".as_ref(), policy::KIND).unwrap();
    Policy::new(Rules::from_document(&document).unwrap())
}
