//! Who may be asserted, by tables.

use super::*;

#[test]
fn what_the_patterns_match_may_be_asserted() {
    let guard = guard(&["*@example.org", "bot-*", "a*b*c", "exact"], &["tombolo:*"]);

    for user in ["ann@example.org", "bot-", "bot-7", "abc", "a-b-b-c", "exact"] {
        assert!(guard.check(&identity(user, &["tombolo:dev"])).is_ok(), "{user}");
    }
    for user in ["ann@example.com", "Bot-7", "ac", "acb", "exactly", "inexact", "@example.org.evil"] {
        let refusal = guard.check(&identity(user, &[])).unwrap_err();
        assert_eq!(refusal, GuardRefusal::Unlisted(Role::User, user.to_owned()));
    }
}

#[test]
fn overlapping_prefix_and_suffix_do_not_share_letters() {
    let guard = guard(&["aba*ba"], &[]);

    assert!(guard.check(&identity("ababa", &[])).is_ok());
    assert!(guard.check(&identity("aba", &[])).is_err());
}

#[test]
fn one_group_too_much_refuses_the_whole_identity() {
    let guard = guard(&["*"], &["tombolo:*"]);

    let refusal = guard.check(&identity("ann", &["tombolo:dev", "admins"])).unwrap_err();

    assert_eq!(refusal, GuardRefusal::Unlisted(Role::Group, "admins".to_owned()));
}

#[test]
fn names_of_kubernetes_pass_no_pattern_and_only_in_full() {
    let mut rules = rules(&["*"], &["*"]);
    rules.system_names = vec!["system:serviceaccount:ci:deployer".to_owned()];
    let guard = Guard::new(&rules);

    assert!(guard.check(&identity("system:serviceaccount:ci:deployer", &[])).is_ok());
    for name in ["system:admin", "system:serviceaccount:ci:deployer2", "system:", "system:authenticated"] {
        let refused = guard.check(&identity(name, &[]));
        assert_eq!(refused, Err(GuardRefusal::System(Role::User, name.to_owned())));
        let refused = guard.check(&identity("ann", &[name]));
        assert_eq!(refused, Err(GuardRefusal::System(Role::Group, name.to_owned())));
    }
}

#[test]
fn masters_and_nodes_are_refused_even_if_named() {
    let mut rules = rules(&["*"], &["*"]);
    rules.system_names = vec!["system:masters".to_owned(), "system:nodes".to_owned()];
    let guard = Guard::new(&rules);

    for group in ["system:masters", "system:nodes"] {
        let refused = guard.check(&identity("ann", &[group]));
        assert_eq!(refused, Err(GuardRefusal::Never(Role::Group, group.to_owned())));
        assert!(guard.check(&identity(group, &[])).is_err());
    }
}

#[test]
fn names_that_a_header_would_change_are_refused() {
    let guard = guard(&["*"], &["*"]);

    for name in
        ["a\r\nImpersonate-Group: x", "a\nb", "a\0", "a\tb", "a\u{7f}", "a\u{85}b", " a", "a ", "\u{a0}a"]
    {
        let refused = guard.check(&identity(name, &[]));
        assert_eq!(refused, Err(GuardRefusal::Unfit(Role::User, name.to_owned())));
        assert!(guard.check(&identity("ann", &[name])).is_err());
    }
    assert_eq!(guard.check(&identity("", &[])), Err(GuardRefusal::Empty(Role::User)));
    assert_eq!(guard.check(&identity("ann", &[""])), Err(GuardRefusal::Empty(Role::Group)));
}

#[test]
fn letters_of_every_script_pass_as_their_own_bytes() {
    let assertable = guard(&["*"], &["*"]).check(&identity("Łukasz 東京", &["группа"])).unwrap();

    assert_eq!(assertable.user().as_bytes(), "Łukasz 東京".as_bytes());
    assert_eq!(assertable.groups()[0].as_bytes(), "группа".as_bytes());
}

#[test]
fn the_limits_hold_at_the_limit_and_one_beyond() {
    let guard = guard(&["*"], &["*"]);
    let longest = "x".repeat(NAME_BYTES_MAX);

    assert!(guard.check(&identity(&longest, &vec![longest.as_str(); GROUPS_MAX])).is_ok());
    let refused = guard.check(&identity(&format!("{longest}x"), &[]));
    assert_eq!(refused, Err(GuardRefusal::TooLong(Role::User)));
    let refused = guard.check(&identity("ann", &["g"; GROUPS_MAX + 1]));
    assert_eq!(refused, Err(GuardRefusal::TooManyGroups));
}

#[test]
fn nothing_listed_means_nothing_asserted() {
    assert!(guard(&[], &[]).check(&identity("ann", &[])).is_err());
}

fn guard(users: &[&str], groups: &[&str]) -> Guard {
    Guard::new(&rules(users, groups))
}

fn rules(users: &[&str], groups: &[&str]) -> Impersonation {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    Impersonation { users: owned(users), groups: owned(groups), system_names: Vec::new() }
}

fn identity(user: &str, groups: &[&str]) -> Assert {
    Assert { user: user.to_owned(), groups: groups.iter().map(|&group| group.to_owned()).collect() }
}
