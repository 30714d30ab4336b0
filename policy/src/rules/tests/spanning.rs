//! Requests that span all namespaces, where a rule denies some of them.

use super::*;

/// Allows everything, and denies secrets in one namespace.
const SHOP: &str = "
rules:
- { name: all, effect: Allow, subjects: [{ method: token, user: '*' }], clusters: { names: ['*'] }, mode: kube-api,
    actions: [{ verbs: ['*'], apiGroups: ['*'], resources: ['*'], namespaces: ['*'], nonResourceURLs: ['*'] }] }
- { name: not-here, effect: Deny, subjects: [{ method: '*', user: '*' }], clusters: { names: ['*'] }, mode: kube-api,
    actions: [{ verbs: ['*'], apiGroups: [''], resources: [secrets], namespaces: [shop] }] }
";

#[test]
fn a_denial_of_a_namespace_denies_the_list_of_all_namespaces() {
    let rules = rules(SHOP);
    for (asked, in_part) in [
        ("GET /api/v1/secrets", true),
        ("HEAD /api/v1/secrets", true),
        ("GET /api/v1/secrets?watch=1", true),
        ("GET /api/v1/secrets?fieldSelector=metadata.namespace%3Dbank", true),
        ("GET /api/v1/watch/secrets", true),
        ("DELETE /api/v1/secrets", true),
        ("GET /api/v1/namespaces/shop/secrets", false),
        ("GET /api/v1/namespaces/shop/secrets/x", false),
        ("DELETE /api/v1/namespaces/shop/secrets", false),
    ] {
        let verdict = verdict(&rules, asked);
        let denied_in_part = matches!(verdict, Verdict::DeniedInPart(rule) if &**rule == "not-here");
        assert_eq!(denied_in_part, in_part, "{asked}: {verdict:?}");
        assert!(!verdict.is_allowed(), "{asked}");
    }
    for asked in [
        "GET /api/v1/namespaces/bank/secrets",
        "GET /api/v1/namespaces/bank/secrets?watch=1",
        "GET /api/v1/pods",
        "GET /apis/apps/v1/secrets",
        "GET /api/v1/namespaces",
        "GET /api/v1/secretsx",
        "GET /version",
    ] {
        assert!(verdict(&rules, asked).is_allowed(), "{asked}");
    }
}

/// A denial of everything in a namespace leaves what is in no namespace. A custom resource may be in one.
#[test]
fn a_denial_of_a_namespace_leaves_what_kubernetes_has_in_none() {
    let rules =
        rules(&SHOP.replace("apiGroups: [''], resources: [secrets]", "apiGroups: ['*'], resources: ['*']"));
    for (asked, allowed) in [
        ("GET /api/v1/nodes", true),
        ("GET /api/v1/persistentvolumes?watch=1", true),
        ("GET /apis/rbac.authorization.k8s.io/v1/clusterroles", true),
        ("DELETE /apis/storage.k8s.io/v1/storageclasses", true),
        ("GET /apis/metrics.k8s.io/v1beta1/nodes", true),
        ("GET /apis/example.com/v1/gardens/x", true),
        ("POST /apis/example.com/v1/gardens", true),
        ("GET /apis/example.com/v1/gardens", false),
        ("GET /apis/example.com/v1/nodes", false),
        ("GET /apis/metrics.k8s.io/v1beta1/pods", false),
        ("GET /apis/rbac.authorization.k8s.io/v1/rolebindings", false),
        // The list of namespaces has the namespace in it.
        ("GET /api/v1/namespaces", false),
        ("GET /api/v1/namespaces/shop", false),
        ("GET /api/v1/namespaces/bank", true),
    ] {
        assert_eq!(verdict(&rules, asked).is_allowed(), allowed, "{asked}");
    }
}

#[test]
fn a_permission_for_a_namespace_stays_one_for_that_namespace() {
    let rules = rules(
        "rules: [{ name: shop, effect: Allow, subjects: [{ method: token, user: '*' }], clusters: { names: ['*'] }, \
         mode: kube-api, actions: [{ verbs: ['*'], apiGroups: [''], resources: ['*'], namespaces: [shop] }] }]",
    );
    assert!(verdict(&rules, "GET /api/v1/namespaces/shop/secrets").is_allowed());
    assert_eq!(verdict(&rules, "GET /api/v1/secrets"), Verdict::NoRule);
    assert_eq!(rules.notices(), []);
}

#[test]
fn an_author_is_told_what_a_denial_covers_beyond_its_words() {
    let told = |from: &str, to: &str| -> Vec<String> {
        rules(&SHOP.replace(from, to)).notices().iter().map(ToString::to_string).collect()
    };
    let spans = |verbs: &str| {
        format!(
            "the rule not-here denies some namespaces, and therefore also {verbs} of all namespaces together"
        )
    };
    let reads = |verbs: &str| {
        format!(
            "the rule not-here does not deny {verbs}, which return the same objects: deny get, list and watch together"
        )
    };
    let verbs = "verbs: ['*'], apiGroups: ['']";
    assert_eq!(told("", ""), [spans("list and watch and deletecollection")]);
    assert_eq!(told("namespaces: [shop]", "namespaces: [shop, '']"), [""; 0]);
    assert_eq!(told("namespaces: [shop]", "namespaces: ['*']"), [""; 0]);
    assert_eq!(told(verbs, "verbs: [get], apiGroups: ['']"), [reads("list and watch")]);
    assert_eq!(told(verbs, "verbs: [get, list], apiGroups: ['']"), [spans("list"), reads("watch")]);
    assert_eq!(told(verbs, "verbs: [watch], apiGroups: ['']"), [spans("watch"), reads("list")]);
    assert_eq!(told(verbs, "verbs: [create, delete], apiGroups: ['']"), [""; 0]);
    let exec = "verbs: [connect], apiGroups: [''], resources: [pods/exec]";
    assert_eq!(told("verbs: ['*'], apiGroups: [''], resources: [secrets]", exec), [""; 0]);
}

fn verdict<'a>(rules: &'a Rules, asked: &str) -> Verdict<'a> {
    let (method, path) = asked.split_once(' ').unwrap();
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let action = Action::of_cluster("edge-a".parse().unwrap(), &method, path, None).unwrap();
    decide(rules, "token alice", &action, "")
}
