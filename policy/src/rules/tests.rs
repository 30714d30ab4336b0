//! Tests of decisions, by tables.

use http::Method;

use super::*;
use crate::action::{Action, Object, Verb};
use crate::target::Target;

mod errors;
mod properties;
mod reaching;
mod spanning;

/// The beginning of a rule for alice at every cluster; a test appends the rest.
const ALICE_EVERYWHERE: &str = "name: a, effect: Allow, subjects: [{ method: token, user: alice }], clusters: { names: [\"*\"] }, mode: kube-api";

#[test]
fn a_subject_is_a_method_and_a_name() {
    let cases = [
        ("{ method: token, user: alice }", ["token alice", "token alice ops"].as_slice()),
        ("{ method: token, group: ops }", &["token alice ops", "token bob ops"]),
        ("{ method: token, user: '*' }", &["token alice", "token alice ops", "token bob ops", "token ops"]),
        ("{ method: client-certificate, user: '*' }", &["client-certificate alice"]),
        ("{ method: client-certificate, user: alice }", &["client-certificate alice"]),
        (
            "{ method: '*', user: '*' }",
            &["token alice", "token alice ops", "token bob ops", "token ops", "client-certificate alice"],
        ),
    ];
    for (subject, matching) in cases {
        let rules = rules(&format!(
            "rules: [{{ name: a, effect: Allow, subjects: [{subject}], clusters: {{ names: [edge-a] }}, mode: kube-api, \
             actions: [{{ verbs: [get], nonResourceURLs: [/version] }}] }}]"
        ));
        for who in
            ["token alice", "token alice ops", "token bob ops", "token ops", "client-certificate alice"]
        {
            let verdict = ask(&rules, who, "edge-a", "", "GET /version");
            assert_eq!(verdict.0, matching.contains(&who), "{subject} {who}");
        }
    }
}

#[test]
fn an_entry_point_is_allowed_only_by_name_and_denied_like_all() {
    let everybody = "{ method: '*', user: '*' }";
    let by_name = "{ method: 'entry-point:host-1', user: '*' }";
    let rule = |name: &str, effect: &str, subject: &str, path: &str| {
        format!(
            "{{ name: {name}, effect: {effect}, subjects: [{subject}], clusters: {{ names: ['*'] }}, mode: kube-api, \
             actions: [{{ verbs: [get], nonResourceURLs: [{path}] }}] }}"
        )
    };
    let rules = rules(&format!(
        "rules: [{}, {}, {}]",
        rule("all", "Allow", everybody, "/version"),
        rule("named", "Allow", by_name, "'/healthz*'"),
        rule("none", "Deny", everybody, "/healthz/etcd"),
    ));
    for (who, asked, decided) in [
        ("token alice", "GET /version", (true, Some("all"))),
        ("entry-point:host-1 x", "GET /version", (false, None)),
        ("entry-point:host-1 x", "GET /healthz", (true, Some("named"))),
        ("entry-point:host-1 x", "GET /healthz/etcd", (false, Some("none"))),
    ] {
        let verdict = ask(&rules, who, "edge-a", "", asked);
        assert_eq!((verdict.0, verdict.1.as_deref()), decided, "{who} {asked}");
    }
}

#[test]
fn clusters_match_both_names_and_selector_where_both_are_set() {
    let cases = [
        ("names: [edge-a]", ["edge-a", "edge-a stage=test"].as_slice()),
        (
            "names: ['edge-*']",
            &["edge-a", "edge-a stage=test", "edge-b stage=live", "edge-b stage=live,tier=1"],
        ),
        (
            "labelSelector: { matchLabels: { stage: live } }",
            &["edge-b stage=live", "edge-b stage=live,tier=1"],
        ),
        ("labelSelector: { matchLabels: { stage: live, tier: \"1\" } }", &["edge-b stage=live,tier=1"]),
        ("names: [edge-a], labelSelector: { matchLabels: { stage: live } }", &[]),
        ("names: [edge-a], labelSelector: { matchLabels: { stage: test } }", &["edge-a stage=test"]),
        (
            "labelSelector: { matchExpressions: [{ key: stage, operator: In, values: [test, live] }] }",
            &["edge-a stage=test", "edge-b stage=live", "edge-b stage=live,tier=1"],
        ),
        (
            "labelSelector: { matchExpressions: [{ key: stage, operator: NotIn, values: [live] }] }",
            &["edge-a", "edge-a stage=test", "shop"],
        ),
        (
            "labelSelector: { matchExpressions: [{ key: tier, operator: Exists }] }",
            &["edge-b stage=live,tier=1"],
        ),
        (
            "labelSelector: { matchExpressions: [{ key: stage, operator: DoesNotExist }] }",
            &["edge-a", "shop"],
        ),
        (
            "labelSelector: { matchLabels: { stage: live }, matchExpressions: [{ key: tier, operator: DoesNotExist }] }",
            &["edge-b stage=live"],
        ),
    ];
    for (clusters, matching) in cases {
        let rules = rules(&format!(
            "rules: [{{ name: a, effect: Allow, subjects: [{{ method: token, user: alice }}], clusters: {{ {clusters} }}, \
             mode: kube-api, actions: [{{ verbs: [get], nonResourceURLs: [/version] }}] }}]"
        ));
        for cluster in
            ["edge-a", "edge-a stage=test", "edge-b stage=live", "edge-b stage=live,tier=1", "shop"]
        {
            let (name, labels) = cluster.split_once(' ').unwrap_or((cluster, ""));
            let verdict = ask(&rules, "token alice", name, labels, "GET /version");
            assert_eq!(verdict.0, matching.contains(&cluster), "{clusters} {cluster}");
        }
    }
}

#[test]
fn actions_are_verbs_with_resources_or_with_other_paths() {
    let resources = |verbs: &str, groups: &str, resources: &str, namespaces: &str| {
        format!("{{ verbs: {verbs}, apiGroups: {groups}, resources: {resources}, namespaces: {namespaces} }}")
    };
    let core = |verbs, some| resources(verbs, "['']", some, "['*']");
    let cases = [
        (core("[get]", "[pods]"), ["GET pods/x", "GET shop pods/x"].as_slice()),
        (
            core("['*']", "[pods]"),
            &["GET pods/x", "GET shop pods/x", "GET pods", "GET pods?watch=1", "POST shop pods"],
        ),
        (
            core("[get, list]", "['*']"),
            &["GET pods/x", "GET shop pods/x", "GET pods", "GET pods/x/log", "GET nodes/n"],
        ),
        (core("[get]", "[pods/log]"), &["GET pods/x/log"]),
        (core("[get]", "[pods/*]"), &["GET pods/x/log"]),
        (core("['*']", "[pods/*]"), &["GET pods/x/log", "GET shop pods/x/exec"]),
        (core("[connect]", "['*/exec']"), &["GET shop pods/x/exec"]),
        (core("[connect]", "['*']"), &["GET shop pods/x/exec", "GET nodes/n/proxy/y"]),
        (core("[get]", "['*/log']"), &["GET pods/x/log"]),
        (core("['*']", "['*/*']"), &["GET pods/x/log", "GET shop pods/x/exec", "GET nodes/n/proxy/y"]),
        (resources("[get]", "[apps]", "['*']", "['*']"), &["GET apps shop deployments/d"]),
        (resources("[get]", "['*']", "['*']", "[shop]"), &["GET shop pods/x", "GET apps shop deployments/d"]),
        (resources("[get]", "['*']", "['*']", "['']"), &["GET pods/x", "GET pods/x/log", "GET nodes/n"]),
        (
            "{ verbs: [get], nonResourceURLs: ['*'] }".to_owned(),
            &["GET /version", "GET /healthz/etcd", "GET /api/"],
        ),
        ("{ verbs: [get], nonResourceURLs: [/version] }".to_owned(), &["GET /version"]),
        ("{ verbs: [get], nonResourceURLs: [/version/] }".to_owned(), &["GET /version"]),
        ("{ verbs: [get], nonResourceURLs: [/] }".to_owned(), &[]),
        ("{ verbs: [get], nonResourceURLs: [/healthz/*] }".to_owned(), &["GET /healthz/etcd"]),
        ("{ verbs: [get], nonResourceURLs: [/api] }".to_owned(), &["GET /api/"]),
        ("{ verbs: [get], nonResourceURLs: [/api/*] }".to_owned(), &["GET /api/"]),
    ];
    for (actions, matching) in cases {
        let rules = rules(&format!("rules: [{{ {ALICE_EVERYWHERE}, actions: [{actions}] }}]"));
        for asked in [
            "GET pods/x",
            "GET shop pods/x",
            "GET pods",
            "GET pods?watch=1",
            "POST shop pods",
            "GET pods/x/log",
            "GET shop pods/x/exec",
            "GET nodes/n",
            "GET nodes/n/proxy/y",
            "GET apps shop deployments/d",
            "GET /version",
            "GET /healthz/etcd",
            "GET /api/",
        ] {
            let verdict = ask(&rules, "token alice", "edge-a", "", asked);
            assert_eq!(verdict.0, matching.contains(&asked), "{actions} {asked}");
        }
    }
}

#[test]
fn read_permission_never_reaches_into_a_workload() {
    let rules = rules(&format!(
        "rules: [{{ {ALICE_EVERYWHERE}, actions: [{{ verbs: [get, list, watch], apiGroups: ['*'], resources: ['*'], \
         namespaces: ['*'], nonResourceURLs: ['*'] }}] }}]"
    ));
    for path in [
        "/api/v1/namespaces/a/pods/x/exec?command=id",
        "/api/v1/namespaces/a/pods/x/attach",
        "/api/v1/namespaces/a/pods/x/portforward",
        "/api/v1/namespaces/a/pods/x:80/proxy/y",
        "/api/v1/namespaces/a/pods/x/ephemeralcontainers",
        "/api/v1/namespaces/a/services/x/proxy/",
        "/api/v1/nodes/n/proxy/exec/a/b/c",
        "/api/v1/proxy/nodes/n/exec",
        "/api/v1/watch/namespaces/a/pods/x/exec",
        "/api/v1/namespaces/a/pods/x/%65xec",
    ] {
        for method in ["GET", "POST", "PUT", "HEAD", "PATCH", "DELETE", "OPTIONS"] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let action = Action::of_cluster("edge-a".parse().unwrap(), &method, path, None).unwrap();
            let verdict = decide(&rules, "token alice", &action, "");
            assert_eq!(verdict, Verdict::NoRule, "{method} {path}");
        }
    }
    assert!(ask(&rules, "token alice", "edge-a", "", "GET pods?watch=1").0);
}

#[test]
fn a_denial_wins_in_any_order_and_the_verdict_names_its_rule() {
    let everything =
        "{ verbs: ['*'], apiGroups: ['*'], resources: ['*'], namespaces: ['*'], nonResourceURLs: ['*'] }";
    let allow = format!("{{ {ALICE_EVERYWHERE}, actions: [{everything}] }}");
    let second = allow.replace("name: a,", "name: b,");
    let deny = "{ name: no-secrets, effect: Deny, subjects: [{ method: '*', user: '*' }], clusters: { names: ['*'] }, \
                mode: kube-api, actions: [{ verbs: ['*'], apiGroups: [''], resources: [secrets], namespaces: ['*'] }] }";
    for (order, allowing) in
        [([deny, &allow, &second], "a"), ([&allow, deny, &second], "a"), ([&second, &allow, deny], "b")]
    {
        let rules = rules(&format!("rules: [{}]", order.join(", ")));
        assert_eq!(
            ask(&rules, "token alice", "edge-a", "", "GET secrets/x"),
            (false, Some("no-secrets".to_owned()))
        );
        assert_eq!(ask(&rules, "token alice", "edge-a", "", "GET pods/x"), (true, Some(allowing.to_owned())));
        assert_eq!(ask(&rules, "token bob", "edge-a", "", "GET pods/x"), (false, None));
    }
}

#[test]
fn a_target_is_dialed_where_a_rule_of_that_mode_allows_it() {
    let rules = rules(
        "rules:
        - { name: a, effect: Allow, subjects: [{ method: token, user: alice }], clusters: { names: [edge-a] }, mode: dial,
            targets: [{ hosts: [10.0.0.0/8, db.example, '2001:db8::/32', 192.168.1.10], ports: [5432, 6443] },
                      { hosts: [any.example], ports: ['*'] }] }
        - { name: d, effect: Deny, subjects: [{ method: token, user: alice }], clusters: { names: [edge-a] }, mode: dial,
            targets: [{ hosts: [10.6.6.0/24], ports: ['*'] }, { hosts: ['*'], ports: [22] }] }",
    );
    let cluster = "edge-a".parse().unwrap();
    for (target, verdict) in [
        ("10.1.2.3:5432", Some("a")),
        ("[::ffff:10.1.2.3]:6443", Some("a")),
        ("10.1.2.3:80", None),
        ("11.0.0.0:5432", None),
        ("9.255.255.255:5432", None),
        ("10.6.6.6:5432", Some("d")),
        ("10.6.7.0:5432", Some("a")),
        ("192.168.1.10:6443", Some("a")),
        ("192.168.1.11:6443", None),
        ("DB.example.:5432", Some("a")),
        ("x.db.example:5432", None),
        ("any.example:1", Some("a")),
        ("any.example:22", Some("d")),
        ("[2001:db8:ffff::1]:5432", Some("a")),
        ("[2001:db9::1]:5432", None),
        // An address of another family with the same bits.
        ("[::a01:203]:5432", None),
    ] {
        let target: Target = target.parse().unwrap();
        let decided = rules.decide(
            principal("token alice", &[]),
            &cluster,
            &ClusterFacts::default(),
            Request::Dial(&target),
        );
        assert_eq!(decided.rule().map(|rule| &**rule), verdict, "{target}");
        assert_eq!(decided.is_allowed(), verdict == Some("a"), "{target}");
    }
    assert_eq!(ask(&rules, "token alice", "edge-a", "", "GET /version"), (false, None));
}

#[test]
fn an_identity_is_allowed_only_if_each_of_its_parts_is() {
    let rules = rules(
        "rules:
        - { name: a, effect: Allow, subjects: [{ method: token, user: alice }], clusters: { names: [edge-a] }, mode: impersonate,
            identities: [{ users: [bob, 'ci:*', 'system:serviceaccount:ci:deployer'], groups: [ops] }, { groups: ['t:*'] }] }
        - { name: g, effect: Allow, subjects: [{ method: token, user: alice }], clusters: { names: [edge-a] }, mode: impersonate,
            identities: [{ groups: [dev] }] }
        - { name: d, effect: Deny, subjects: [{ method: '*', user: '*' }], clusters: { names: ['*'] }, mode: impersonate,
            identities: [{ users: ['ci:root*'], groups: ['t:root'] }] }
        - { name: z, effect: Allow, subjects: [{ method: token, user: zoe }], clusters: { names: ['*'] }, mode: impersonate,
            identities: [{ users: ['*'], groups: ['*'] }] }
        - { name: o, effect: Allow, subjects: [{ method: token, user: omar }], clusters: { names: ['*'] }, mode: kube-api,
            actions: [{ verbs: ['*'], apiGroups: ['*'], resources: ['*'], namespaces: ['*'], nonResourceURLs: ['*'] }] }",
    );
    for (who, cluster, user, groups, verdict) in [
        ("token alice", "edge-a", "bob", [].as_slice(), Some("a")),
        ("token alice", "edge-a", "bob", &["ops", "t:x", "dev"], Some("a")),
        ("token alice", "edge-a", "ci:x", &[], Some("a")),
        ("token alice", "edge-a", "system:serviceaccount:ci:deployer", &[], Some("a")),
        ("token alice", "edge-a", "bobby", &[], None),
        ("token alice", "edge-a", "Bob", &[], None),
        ("token alice", "edge-a", "xci:x", &[], None),
        // A user's name is no group's.
        ("token alice", "edge-a", "ops", &[], None),
        ("token alice", "edge-a", "bob", &["bob"], None),
        ("token alice", "edge-a", "bob", &["ops", "system:masters"], None),
        ("token alice", "edge-a", "", &["ops"], None),
        ("token alice", "edge-a", "bob", &[""], None),
        ("token alice", "edge-b", "bob", &[], None),
        ("token bob", "edge-a", "bob", &[], None),
        ("client-certificate alice", "edge-a", "bob", &[], None),
        ("token alice", "edge-a", "ci:root", &[], Some("d")),
        ("token alice", "edge-a", "bob", &["ops", "t:root"], Some("d")),
        ("token zoe", "edge-b", "anybody", &["at", "all"], Some("z")),
        ("token zoe", "edge-b", "ci:root", &[], Some("d")),
        ("token zoe", "edge-b", "anybody", &["t:root"], Some("d")),
        // Permission for every action does not include impersonation.
        ("token omar", "edge-a", "omar", &[], None),
    ] {
        let groups: Vec<String> = groups.iter().map(|&group: &&str| group.to_owned()).collect();
        let identity = Assert { user: user.to_owned(), groups };
        let cluster = cluster.parse().unwrap();
        let decided =
            rules.decide_identity(principal(who, &[]), &cluster, &ClusterFacts::default(), &identity);
        assert_eq!(decided.rule().map(|rule| &**rule), verdict, "{who} {cluster} {identity:?}");
        assert_eq!(decided.is_allowed(), verdict.is_some_and(|rule| rule != "d"), "{who} {identity:?}");
    }
    let edge_a = "edge-a".parse().unwrap();
    let reaches = |who| rules.reaches(principal(who, &[]), &edge_a, &ClusterFacts::default());
    // Permission to impersonate does not reach a cluster.
    assert_eq!(["token zoe", "token omar"].map(reaches), [false, true]);
}

/// Returns whether the request is allowed, and the rule that decided. `asked` is a method, then a path, or
/// perhaps a group and a namespace and then what stands behind them.
fn ask(rules: &Rules, who: &str, cluster: &str, labels: &str, asked: &str) -> (bool, Option<String>) {
    let words: Vec<&str> = asked.split(' ').collect();
    let (method, path) = match words.as_slice() {
        [method, path] if path.starts_with('/') => (method, (*path).to_owned()),
        [method, rest] => (method, format!("/api/v1/{rest}")),
        [method, namespace, rest] => (method, format!("/api/v1/namespaces/{namespace}/{rest}")),
        [method, group, namespace, rest] => {
            (method, format!("/apis/{group}/v1/namespaces/{namespace}/{rest}"))
        }
        _ => panic!("{asked}"),
    };
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let action = Action::of_cluster(cluster.parse().unwrap(), &method, &path, None).unwrap();
    let verdict = decide(rules, who, &action, labels);
    (verdict.is_allowed(), verdict.rule().map(ToString::to_string))
}

fn decide<'a>(rules: &'a Rules, who: &str, action: &Action, labels: &str) -> Verdict<'a> {
    let pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
    let labels = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let words: Vec<&str> = who.split(' ').collect();
    let groups: Vec<String> = words.iter().skip(2).map(|&group| group.to_owned()).collect();
    let request = Request::KubeApi(action.verb(), action.object());
    rules.decide(
        principal(&words[..2].join(" "), &groups),
        action.cluster(),
        &ClusterFacts { labels },
        request,
    )
}

fn principal<'a>(method_and_user: &'a str, groups: &'a [String]) -> Principal<'a> {
    let (method, user) = method_and_user.split_once(' ').unwrap();
    Principal { method, user, groups }
}

fn rules(text: &str) -> Rules {
    Rules::from_document(&read(text)).unwrap_or_else(|fault| panic!("{fault}\n{text}"))
}

fn read(text: &str) -> Document {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}
