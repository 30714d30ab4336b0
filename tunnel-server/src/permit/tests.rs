//! Who is permitted what, by tables.

use http::Method;
use policy::action::{Asked, Head, Names};
use proptest::prelude::*;

use super::*;

#[test]
fn a_rule_allows_its_users_and_its_groups_its_clusters() {
    let policy = Policy::new([
        rule(&["alice"], &["ops"], &["edge-a", "shop-*"]),
        rule(&["*"], &[], &["public"]),
        rule(&[], &["*"], &["*-lab"]),
    ]);
    for (user, groups, cluster, allowed) in [
        ("alice", &[][..], "edge-a", true),
        ("alice", &[], "shop-1", true),
        ("alice", &[], "shop-", false),
        ("alice", &[], "edge-ab", false),
        ("alice", &[], "edge-b", false),
        ("Alice", &[], "edge-a", false),
        ("alice ", &[], "edge-a", false),
        ("ops", &[], "edge-a", false),
        ("bob", &["alice"], "edge-a", false),
        ("bob", &["dev", "ops"], "edge-a", true),
        ("bob", &["op"], "edge-a", false),
        ("bob", &[], "public", true),
        ("bob", &[], "a-lab", false),
        ("bob", &["any"], "a-lab", true),
    ] {
        let caller = Caller::pretended(user, groups);
        // A name that is no cluster's cannot even be asked for.
        let Ok(cluster) = cluster.parse() else { continue };

        let permitted = policy.authorize(&caller, action(&cluster));

        assert_eq!(permitted.is_ok(), allowed, "{user} {groups:?} {cluster}");
        assert_eq!(policy.may_reach(&caller, &cluster), allowed, "{user} {groups:?} {cluster}");
    }
}

#[test]
fn a_permit_says_who_what_and_by_which_policy() {
    let policy = Policy::new([rule(&["alice"], &[], &["*"])]);
    let caller = Caller::pretended("alice", &["ops"]);
    let action = action(&"edge-a".parse().unwrap());

    let permit = policy.authorize(&caller, action.clone()).unwrap();

    assert_eq!(
        (permit.caller(), permit.action(), permit.generation()),
        (&caller, &action, policy.generation())
    );
}

#[test]
fn a_refusal_names_user_and_cluster() {
    let cluster = "edge-a".parse().unwrap();
    let refused = Policy::new([]).authorize(&Caller::pretended("bob", &[]), action(&cluster)).unwrap_err();
    assert!(refused.to_string().starts_with("\"bob\" may not reach the cluster edge-a, ask"), "{refused}");
}

#[test]
fn a_pattern_fits_the_whole_name() {
    for (pattern, text, fits) in [
        ("a", "a", true),
        ("a", "ab", false),
        ("*", "a", true),
        ("a*", "a", true),
        ("*a", "ba", true),
        ("a*a", "a", false),
        ("a*a", "aa", true),
        ("a*b*c", "a-b-b-c", true),
        ("a*b*c", "a-c-b", false),
        ("*b*", "abc", true),
        ("**", "x", true),
        ("a**c", "abc", true),
        ("ab*bc", "abc", false),
    ] {
        assert_eq!(glob::matches(pattern, text), fits, "{pattern} {text}");
    }
}

proptest! {
    #[test]
    fn without_a_rule_nobody_reaches_anything(user in ".{0,20}", groups in proptest::collection::vec(".{0,20}", 0..5), cluster in "[a-z0-9]{1,20}") {
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        let caller = Caller::pretended(&user, &groups);
        prop_assert!(Policy::new([]).authorize(&caller, action(&cluster.parse().unwrap())).is_err());
    }

    #[test]
    fn a_permit_has_a_rule_that_names_the_caller_and_the_cluster(
        user in "[ab]{1,2}", group in "[ab]{1,2}", cluster in "[ab]{1,4}",
        rule_user in "[ab]{1,2}", rule_group in "[ab]{1,2}", pattern in "[ab*]{1,4}",
    ) {
        let policy = Policy::new([rule(&[&rule_user], &[&rule_group], &[&pattern])]);
        let caller = Caller::pretended(&user, &[&group]);
        let named = user == rule_user || group == rule_group;
        let expected = named && slow_match(pattern.as_bytes(), cluster.as_bytes());
        prop_assert_eq!(policy.may_reach(&caller, &cluster.parse().unwrap()), expected);
    }
}

/// What a pattern means, said once more and slowly.
fn slow_match(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|taken| slow_match(rest, &text[taken..])),
        [byte, rest @ ..] => text.first() == Some(byte) && slow_match(rest, &text[1..]),
    }
}

fn rule(users: &[&str], groups: &[&str], clusters: &[&str]) -> AllowRule {
    let owned = |list: &[&str]| list.iter().map(|&entry| entry.to_owned()).collect();
    AllowRule { users: owned(users), groups: owned(groups), clusters: owned(clusters) }
}

fn action(cluster: &ClusterId) -> Action {
    let target = format!("/clusters/{cluster}/api/v1/pods");
    let head = Head {
        method: &Method::GET,
        authority: None,
        host: Some(b"x"),
        server_name: None,
        target: target.as_bytes(),
        upgrade: None,
    };
    match Action::parse(&Names::default(), &head).unwrap() {
        Asked::Cluster(action) => action,
        Asked::ClusterList => panic!("not the list"),
    }
}
