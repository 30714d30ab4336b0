//! Tests of permits, and of their fate when the policy changes.

use http::Method;

use super::*;

const ALICE_READS: &str = "rules:
- name: alice-reads
  effect: Allow
  subjects: [{ method: token, user: alice }]
  clusters: { names: [edge-a] }
  mode: kube-api
  actions: [{ verbs: [get, list], apiGroups: [''], resources: [pods], namespaces: ['*'] }]
";

const ALICE_IS_BOB: &str = "- name: alice-is-bob
  effect: Allow
  subjects: [{ method: token, user: alice }]
  clusters: { names: [edge-a] }
  mode: impersonate
  identities: [{ users: [bob], groups: [ops, dev, root] }]
- name: not-root
  effect: Deny
  subjects: [{ method: '*', user: '*' }]
  clusters: { names: ['*'] }
  mode: impersonate
  identities: [{ groups: ['r*'] }]
";

#[test]
fn a_permit_has_caller_action_generation_and_rule() {
    let policy = policy(ALICE_READS);
    let (caller, action) = (Caller::for_test("alice", &["ops"]), action("/api/v1/pods"));

    let permit = policy.snapshot().authorize(&caller, None, action.clone(), &facts()).unwrap().undelegated();

    assert_eq!((permit.caller(), permit.action()), (&caller, &action));
    assert_eq!((permit.generation(), permit.rule()), (1, "alice-reads"));
}

#[test]
fn a_denial_names_the_request_but_no_rule() {
    let denied = "- { name: no-pods, effect: Deny, subjects: [{ method: '*', user: '*' }], clusters: { names: ['*'] }, \
                  mode: kube-api, actions: [{ verbs: [list], apiGroups: ['*'], resources: ['*'], namespaces: [shop] }] }\n";
    let policy = policy(&format!("{ALICE_READS}{denied}"));
    for (user, path, text, rule) in [
        // The list of all namespaces spans the one that is denied.
        ("bob", "/api/v1/pods", "\"bob\" may not reach the cluster edge-a, ask", Some("no-pods")),
        ("alice", "/api/v1/nodes", "\"alice\" may not list nodes of the cluster edge-a, ask", None),
        ("alice", "/version", "\"alice\" may not get /version of the cluster edge-a, ask", None),
        (
            "alice",
            "/apis/apps/v1/namespaces/x/deployments/d/scale",
            "\"alice\" may not get deployments.apps/scale in the namespace x of the cluster edge-a, ask",
            None,
        ),
        (
            "alice",
            "/api/v1/namespaces/shop/pods",
            "\"alice\" may not list pods in the namespace shop of the cluster edge-a, ask",
            Some("no-pods"),
        ),
    ] {
        let caller = Caller::for_test(user, &[]);
        let refused = policy.snapshot().authorize(&caller, None, action(path), &facts()).unwrap_err();
        assert!(refused.to_string().starts_with(text), "{refused}");
        assert!(!refused.to_string().contains("no-pods"), "{refused}");
        assert_eq!(refused.rule.as_deref(), rule, "{path}");
    }
}

#[test]
fn a_permit_is_checked_again_by_the_next_policy_snapshot() {
    let policy = policy(ALICE_READS);
    let mut snapshots = policy.subscribe();
    let first = policy.snapshot();
    let alice = Caller::for_test("alice", &[]);
    let permit = first.authorize(&alice, None, action("/api/v1/pods"), &facts()).unwrap().undelegated();
    assert!(first.still_permits(&permit, &facts()));
    assert!(!snapshots.has_changed().unwrap());

    let generation = policy.replace(rules(&ALICE_READS.replace("user: alice", "user: bob")));

    assert_eq!((generation, policy.snapshot().generation()), (2, 2));
    assert_eq!(snapshots.borrow_and_update().generation(), 2);
    assert!(!policy.snapshot().still_permits(&permit, &facts()));
    // A decision that began with the first snapshot may still use it.
    assert!(first.still_permits(&permit, &facts()));
}

#[test]
fn a_permit_depends_on_the_clusters_labels() {
    let selected = ALICE_READS.replace("names: [edge-a]", "labelSelector: { matchLabels: { stage: live } }");
    let snapshot = policy(&selected).snapshot();
    let live = ClusterFacts { labels: [("stage".to_owned(), "live".to_owned())].into() };
    let caller = Caller::for_test("alice", &[]);

    let permit = snapshot.authorize(&caller, None, action("/api/v1/pods"), &live).unwrap().undelegated();

    assert!(!snapshot.still_permits(&permit, &facts()));
    assert!(snapshot.may_reach(&caller, permit.action().cluster(), &live));
    assert!(!snapshot.may_reach(&caller, permit.action().cluster(), &facts()));
}

/// Each part of the identity, its user and every group, needs a rule.
#[test]
fn impersonation_needs_rules_for_the_action_and_the_identity() {
    let policy = policy(&format!("{ALICE_READS}{ALICE_IS_BOB}"));
    let pods = || action("/api/v1/pods");
    let asked = |user: &str, assumed: Assert, action: Action| {
        policy.snapshot().authorize(&Caller::for_test(user, &[]), Some(assumed), action, &facts())
    };

    let permit = asked("alice", identity("bob", &["ops", "dev"]), pods()).unwrap().undelegated();
    assert_eq!((permit.caller().user(), permit.rule()), ("alice", "alice-reads"));
    assert_eq!(permit.assumed(), Some(&identity("bob", &["ops", "dev"])));

    for (user, assumed, action, text, rule) in [
        ("alice", identity("bobby", &[]), pods(), "may not act as the user \"bobby\"", None),
        ("alice", identity("bob", &["ops", "x"]), pods(), "with the groups [\"ops\", \"x\"] at the", None),
        ("alice", identity("bob", &["ops", "root"]), pods(), "may not act as", Some("not-root")),
        // Nobody gains an action by impersonation.
        ("alice", identity("bob", &[]), action("/api/v1/nodes"), "may not list nodes", None),
        ("bob", identity("bob", &[]), pods(), "\"bob\" may not reach the cluster edge-a", None),
    ] {
        let refused = asked(user, assumed, action).unwrap_err();
        assert!(refused.to_string().contains(text), "{refused}");
        assert_eq!(refused.rule.as_deref(), rule, "{refused}");
    }

    policy.replace(rules(&format!("{ALICE_READS}{}", ALICE_IS_BOB.replace("ops", "ops2"))));
    assert!(!policy.snapshot().still_permits(&permit, &facts()));
}

/// A policy names a method by the name used here. A method that no rule can name could never be allowed or
/// denied.
#[test]
fn every_method_of_authentication_can_be_named_in_a_policy() {
    use crate::identity::Method::{ClientCertificate, DialToken, Oidc, StaticToken, TokenReview};
    for method in [
        ClientCertificate,
        StaticToken,
        DialToken,
        Oidc("oidc:corp".into()),
        TokenReview("token-review:host".into()),
    ] {
        assert!(policy::parse_method(method.as_str()).is_ok(), "{method:?}");
    }
}

fn policy(text: &str) -> Policy {
    Policy::new(rules(text))
}

fn rules(text: &str) -> Rules {
    let document_text = format!("apiVersion: tombolo.dev/v1alpha1\nkind: Policy\n{text}");
    let document = daemon::config::parse(&document_text, "policy.yaml".as_ref(), policy::KIND).unwrap();
    Rules::from_document(&document).unwrap()
}

fn identity(user: &str, groups: &[&str]) -> Assert {
    Assert { user: user.to_owned(), groups: groups.iter().map(|&group| group.to_owned()).collect() }
}

fn action(path: &str) -> Action {
    Action::of_cluster("edge-a".parse().unwrap(), &Method::GET, path, None).unwrap()
}

fn facts() -> ClusterFacts {
    ClusterFacts::default()
}
