//! Permits, and what becomes of them when the policy changes.

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
fn a_permit_says_who_what_by_which_edition_and_by_which_rule() {
    let policy = policy(ALICE_READS);
    let (caller, action) = (Caller::for_test("alice", &["ops"]), action("/api/v1/pods"));

    let permit = policy.edition().authorize(&caller, None, action.clone(), &facts()).unwrap().unasked();

    assert_eq!((permit.caller(), permit.action()), (&caller, &action));
    assert_eq!((permit.generation(), permit.rule()), (1, "alice-reads"));
}

#[test]
fn a_refusal_says_what_in_words_and_names_no_rule_to_the_caller() {
    let denied = "- { name: no-pods, effect: Deny, subjects: [{ method: '*', user: '*' }], clusters: { names: ['*'] }, \
                  mode: kube-api, actions: [{ verbs: [list], apiGroups: ['*'], resources: ['*'], namespaces: [shop] }] }\n";
    let policy = policy(&format!("{ALICE_READS}{denied}"));
    for (user, path, text, rule) in [
        ("bob", "/api/v1/pods", "\"bob\" may not reach the cluster edge-a, ask", None),
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
        let refused = policy.edition().authorize(&caller, None, action(path), &facts()).unwrap_err();
        assert!(refused.to_string().starts_with(text), "{refused}");
        assert!(!refused.to_string().contains("no-pods"), "{refused}");
        assert_eq!(refused.rule.as_deref(), rule, "{path}");
    }
}

#[test]
fn a_permit_is_judged_again_by_the_edition_that_takes_the_place_of_its_own() {
    let policy = policy(ALICE_READS);
    let mut editions = policy.editions();
    let first = policy.edition();
    let alice = Caller::for_test("alice", &[]);
    let permit = first.authorize(&alice, None, action("/api/v1/pods"), &facts()).unwrap().unasked();
    assert!(first.still_permits(&permit, &facts()));
    assert!(!editions.has_changed().unwrap());

    let generation = policy.replace(rules(&ALICE_READS.replace("user: alice", "user: bob")));

    assert_eq!((generation, policy.edition().generation()), (2, 2));
    assert_eq!(editions.borrow_and_update().generation(), 2);
    assert!(!policy.edition().still_permits(&permit, &facts()));
    // What was begun under the first edition is still asked of the first.
    assert!(first.still_permits(&permit, &facts()));
}

#[test]
fn a_permit_depends_on_the_clusters_labels() {
    let selected = ALICE_READS.replace("names: [edge-a]", "labelSelector: { matchLabels: { stage: live } }");
    let edition = policy(&selected).edition();
    let live = ClusterFacts { labels: [("stage".to_owned(), "live".to_owned())].into() };
    let caller = Caller::for_test("alice", &[]);

    let permit = edition.authorize(&caller, None, action("/api/v1/pods"), &live).unwrap().unasked();

    assert!(!edition.still_permits(&permit, &facts()));
    assert!(edition.may_reach(&caller, permit.action().cluster(), &live));
    assert!(!edition.may_reach(&caller, permit.action().cluster(), &facts()));
}

#[test]
fn who_assumes_another_identity_needs_a_rule_for_the_action_and_one_for_each_part_of_the_identity() {
    let policy = policy(&format!("{ALICE_READS}{ALICE_IS_BOB}"));
    let pods = || action("/api/v1/pods");
    let asked = |user: &str, assumed: Assert, action: Action| {
        policy.edition().authorize(&Caller::for_test(user, &[]), Some(assumed), action, &facts())
    };

    let permit = asked("alice", identity("bob", &["ops", "dev"]), pods()).unwrap().unasked();
    assert_eq!((permit.caller().user(), permit.rule()), ("alice", "alice-reads"));
    assert_eq!(permit.assumed(), Some(&identity("bob", &["ops", "dev"])));

    for (user, assumed, action, text, rule) in [
        ("alice", identity("bobby", &[]), pods(), "may not be taken for the user \"bobby\"", None),
        ("alice", identity("bob", &["ops", "x"]), pods(), "with the groups [\"ops\", \"x\"] at the", None),
        ("alice", identity("bob", &["ops", "root"]), pods(), "may not be taken for", Some("not-root")),
        // Nobody gains an action by being somebody else.
        ("alice", identity("bob", &[]), action("/api/v1/nodes"), "may not list nodes", None),
        ("bob", identity("bob", &[]), pods(), "\"bob\" may not reach the cluster edge-a", None),
    ] {
        let refused = asked(user, assumed, action).unwrap_err();
        assert!(refused.to_string().contains(text), "{refused}");
        assert_eq!(refused.rule.as_deref(), rule, "{refused}");
    }

    policy.replace(rules(&format!("{ALICE_READS}{}", ALICE_IS_BOB.replace("ops", "ops2"))));
    assert!(!policy.edition().still_permits(&permit, &facts()));
}

/// A method's name in a policy is its name here; one that no rule can name could never be allowed or denied.
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
        assert!(policy::method(method.as_str()).is_ok(), "{method:?}");
    }
}

fn policy(text: &str) -> Policy {
    Policy::new(rules(text))
}

fn rules(text: &str) -> Rules {
    let whole = format!("apiVersion: tombolo.dev/v1alpha1\nkind: Policy\n{text}");
    let document = daemon::config::parse(&whole, "policy.yaml".as_ref(), policy::KIND).unwrap();
    Rules::of(&document).unwrap()
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
