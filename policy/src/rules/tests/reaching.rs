//! Tests of which clusters a caller can reach at all, by tables.

use super::*;

#[test]
fn a_cluster_is_reached_unless_everything_there_is_denied() {
    let allow =
        format!("{{ {ALICE_EVERYWHERE}, actions: [{{ verbs: [get], nonResourceURLs: [/version] }}] }}");
    let deny = |actions: &str| {
        format!(
            "{{ name: d, effect: Deny, subjects: [{{ method: token, group: out }}], clusters: {{ names: [edge-b] }}, \
             mode: kube-api, actions: [{actions}] }}"
        )
    };
    let (some, every) = (
        "{ verbs: ['*'], apiGroups: ['*'], resources: ['*'], namespaces: ['*'] }",
        "{ verbs: ['*'], nonResourceURLs: ['*'] }",
    );
    let but_one = [("verbs", "get"), ("apiGroups", "apps"), ("resources", "pods"), ("namespaces", "shop")]
        .map(|(list, one)| {
            let narrowed = some.replace(&format!("{list}: ['*']"), &format!("{list}: [{one}]"));
            format!("{narrowed}, {every}")
        });
    let dial = "{ name: t, effect: Allow, subjects: [{ method: token, user: dora }], clusters: { names: [edge-a] }, \
                mode: dial, targets: [{ hosts: ['*'], ports: [22] }] }";
    let all = format!("{some}, {every}");
    let some_of_it = but_one.iter().map(String::as_str).chain([some, every]).map(|denied| (denied, true));
    for (denied, reached) in some_of_it.chain([(all.as_str(), false)]) {
        let rules = rules(&format!("rules: [{allow}, {}, {dial}]", deny(denied)));
        let reaches = |who: &str, groups: &[String], cluster: &str| {
            rules.reaches(principal(who, groups), &cluster.parse().unwrap(), &ClusterFacts::default())
        };
        assert_eq!(reaches("token alice", &["out".to_owned()], "edge-b"), reached, "{denied}");
        assert!(reaches("token alice", &["out".to_owned()], "edge-a"));
        assert!(reaches("token alice", &[], "edge-b"));
        assert!(!reaches("token bob", &[], "edge-a"));
        assert!(reaches("token dora", &["out".to_owned()], "edge-a"));
        assert!(!reaches("token dora", &[], "edge-b"));
    }
}

#[test]
fn dialing_reaches_a_cluster_unless_every_target_is_denied() {
    let rule = |name: &str, effect: &str, targets: &str| {
        format!(
            "{{ name: {name}, effect: {effect}, subjects: [{{ method: token, user: dora }}], clusters: {{ names: [edge-a] }}, \
             mode: dial, targets: [{targets}] }}"
        )
    };
    let allow = rule("a", "Allow", "{ hosts: [db.example], ports: [22] }");
    for (denied, reached) in [
        ("{ hosts: ['*'], ports: [22] }", true),
        ("{ hosts: [db.example], ports: ['*'] }", true),
        ("{ hosts: [db.example], ports: [22] }", true),
        ("{ hosts: ['*'], ports: ['*'] }", false),
    ] {
        let rules = rules(&format!("rules: [{allow}, {}]", rule("d", "Deny", denied)));
        let is_reached =
            rules.reaches(principal("token dora", &[]), &"edge-a".parse().unwrap(), &ClusterFacts::default());
        assert_eq!(is_reached, reached, "{denied}");
    }
}
