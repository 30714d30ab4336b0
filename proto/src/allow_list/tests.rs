//! Tables of identities and lists, with the verdict that each must get.

use super::*;

#[test]
fn names_that_match_a_pattern_may_be_asserted() {
    let guard = guard(&["*@example.org", "bot-*", "a*b*c", "exact"], &["tombolo:*"]);

    for user in ["ann@example.org", "bot-", "bot-7", "abc", "a-b-b-c", "exact"] {
        assert!(guard.check(&identity(user, &["tombolo:dev"])).is_ok(), "{user}");
    }
    for user in ["ann@example.com", "Bot-7", "ac", "acb", "exactly", "inexact", "@example.org.evil"] {
        let refusal = guard.check(&identity(user, &[])).unwrap_err();
        assert_eq!(refusal, NotAssertable::Unlisted(NameKind::User, user.to_owned()));
    }
}

#[test]
fn a_list_returns_its_entries() {
    let listed = |entries: &[&str]| entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>();
    let system = listed(&["system:serviceaccount:ci:deployer"]);
    let list = AllowList { system_names: system.clone(), ..guard(&["ann", "bot-*"], &["dev:*"]) };
    assert_eq!(list.users(), listed(&["ann", "bot-*"]));
    assert_eq!(list.groups(), listed(&["dev:*"]));
    assert_eq!(list.system_names(), system);
}

#[test]
fn each_reason_has_a_label_and_a_text_of_its_own() {
    let guard = guard(&["ann"], &["dev"]);
    let too_long = "x".repeat(NAME_BYTES_MAX + 1);
    let groups = vec!["dev"; GROUPS_MAX + 1];
    for (user, groups, label, text) in [
        ("", &[][..], "empty", "user"),
        (&too_long, &[], "too_long", "user"),
        ("ann", &groups, "too_many_groups", "groups"),
        ("ann\n", &[], "unfit", "user"),
        ("system:masters", &[], "never", "user"),
        ("ann", &["system:x"], "system", "group"),
        ("ann", &["ops"], "unlisted", "group"),
    ] {
        let refusal = guard.check(&identity(user, groups)).unwrap_err();
        assert_eq!(refusal.reason(), label);
        assert!(refusal.to_string().contains(text), "{label}: {refusal}");
    }
}

#[test]
fn one_group_too_much_refuses_the_whole_identity() {
    let guard = guard(&["*"], &["tombolo:*"]);

    let refusal = guard.check(&identity("ann", &["tombolo:dev", "admins"])).unwrap_err();

    assert_eq!(refusal, NotAssertable::Unlisted(NameKind::Group, "admins".to_owned()));
}

#[test]
fn names_of_kubernetes_pass_no_pattern_and_only_in_full() {
    let deployer = "system:serviceaccount:ci:deployer";
    let guard = AllowList { system_names: vec![deployer.to_owned()], ..guard(&["*"], &["*"]) };

    assert!(guard.check(&identity(deployer, &[])).is_ok());
    for name in [
        "system:admin",
        "system:serviceaccount:ci:deployer2",
        "system:",
        "system:authenticated",
        "kubeadm:cluster-admins",
        "kubeadm:",
    ] {
        let refused = guard.check(&identity(name, &[]));
        assert_eq!(refused, Err(NotAssertable::System(NameKind::User, name.to_owned())));
        let refused = guard.check(&identity("ann", &[name]));
        assert_eq!(refused, Err(NotAssertable::System(NameKind::Group, name.to_owned())));
    }
}

#[test]
fn masters_and_nodes_are_refused_even_if_named() {
    let named = NEVER.map(str::to_owned).to_vec();
    let guard = AllowList { system_names: named, ..guard(&["*"], &["*"]) };

    for group in ["system:masters", "system:nodes"] {
        let refused = guard.check(&identity("ann", &[group]));
        assert_eq!(refused, Err(NotAssertable::Never(NameKind::Group, group.to_owned())));
        assert!(guard.check(&identity(group, &[])).is_err());
    }
}

#[test]
fn names_that_a_header_would_change_are_refused() {
    let guard = guard(&["*"], &["*"]);

    for name in [
        "a\r\nImpersonate-Group: x",
        "a\nb",
        "a\0",
        "a\tb",
        "a\u{7f}",
        "a\u{85}b",
        " a",
        "a ",
        "\u{a0}a",
        "a\u{200b}b",
        "\u{202e}ba",
        "a\u{ad}b",
        "a\u{2066}b",
    ] {
        let refused = guard.check(&identity(name, &[]));
        assert_eq!(refused, Err(NotAssertable::Unfit(NameKind::User, name.to_owned())));
        assert!(guard.check(&identity("ann", &[name])).is_err());
    }
    assert_eq!(guard.check(&identity("", &[])), Err(NotAssertable::Empty(NameKind::User)));
    assert_eq!(guard.check(&identity("ann", &[""])), Err(NotAssertable::Empty(NameKind::Group)));
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
    assert_eq!(refused, Err(NotAssertable::TooLong(NameKind::User)));
    let refused = guard.check(&identity("ann", &["g"; GROUPS_MAX + 1]));
    assert_eq!(refused, Err(NotAssertable::TooManyGroups));
}

#[test]
fn nothing_listed_means_nothing_asserted() {
    assert!(guard(&[], &[]).check(&identity("ann", &[])).is_err());
}

#[test]
fn by_default_only_names_under_tombolo_may_be_asserted() {
    let guard = AllowList::new(None, None, None).unwrap();

    assert!(guard.check(&identity("tombolo:ann", &["tombolo:dev"])).is_ok());
    for name in ["ann", "tombolo", "atombolo:ann", " tombolo:ann", "Tombolo:ann", "system:tombolo:ann"] {
        assert!(guard.check(&identity(name, &[])).is_err(), "{name:?}");
        assert!(guard.check(&identity("tombolo:ann", &[name])).is_err(), "{name:?}");
    }
}

#[test]
fn an_invalid_list_entry_is_refused() {
    let list = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
    for (users, system_names, wrong) in [
        (list(&["system:*"]), None, "users"),
        (list(&["kubeadm:*"]), None, "users"),
        (list(&[""]), None, "users"),
        (Some(vec!["a".to_owned(); PATTERNS_MAX + 1]), None, "users"),
        (None, list(&["system:node:*"]), "systemNames"),
        (None, list(&["ann"]), "systemNames"),
        (None, list(&["system:masters"]), "systemNames"),
        (None, list(&["system:nodes"]), "systemNames"),
    ] {
        let error = AllowList::new(users.clone(), None, system_names).unwrap_err();
        assert_eq!(error.list, wrong, "{error}");
    }
    let named = list(&["kubeadm:cluster-admins", "system:serviceaccount:ci:deployer"]);
    assert!(AllowList::new(Some(vec!["a".to_owned(); PATTERNS_MAX]), None, named).is_ok());
}

fn guard(users: &[&str], groups: &[&str]) -> AllowList {
    let owned = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
    AllowList::new(owned(users), owned(groups), None).unwrap()
}

fn identity(user: &str, groups: &[&str]) -> Assert {
    Assert { user: user.to_owned(), groups: groups.iter().map(|&group| group.to_owned()).collect() }
}
