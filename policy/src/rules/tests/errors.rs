//! Tests of invalid policies: the error names line, key and allowed values.

use super::*;
use crate::document::{self, ENTRIES_MAX, RULES_MAX};

/// A policy in which nothing is wrong; each test changes one thing.
const GOOD: &str = "rules:
- name: admins
  effect: Allow
  subjects:
  - { method: client-certificate, group: \"tombolo:admins\" }
  clusters:
    names: [\"edge-*\"]
    labelSelector:
      matchLabels: { stage: live }
      matchExpressions:
      - { key: example.com/tier, operator: In, values: [\"1\"] }
  mode: kube-api
  actions:
  - verbs: [\"get\"]
    apiGroups: [\"\"]
    resources: [pods]
    namespaces: [shop]
    nonResourceURLs: [/version]
- name: databases
  effect: Allow
  subjects: [{ method: token, user: \"*\" }]
  clusters: { names: [edge-a] }
  mode: dial
  targets:
  - hosts: [10.0.0.0/8]
    ports: [5432]
- name: deputies
  effect: Allow
  subjects: [{ method: token, user: ann }]
  clusters: { names: [edge-a] }
  mode: impersonate
  identities: [{ users: [bob], groups: [ops] }]
";

#[test]
fn a_valid_policy_is_accepted() {
    assert_eq!(rules(GOOD).count(), 3);
}

/// A change of the good policy, and the texts that its error must contain.
type InvalidChange = (&'static str, &'static str, &'static [&'static str]);

const INVALID: &[InvalidChange] = &[
    ("name: admins", "", &["3:", "rules[0].name: nothing", "lower-case letters"]),
    ("name: admins", "name: Admins", &["2:9: rules[0].name: \"Admins\""]),
    ("name: databases", "name: admins", &["19:", "rules[1]:", "\"admins\" a second time"]),
    ("effect: Allow\n  subjects:\n", "subjects:\n", &["2:", "rules[0].effect: nothing", "Allow or Deny"]),
    ("effect: Allow", "effect: allow", &["3:11: rules[0].effect: \"allow\"", "use Allow or Deny"]),
    ("method: client-certificate, ", "", &["5:", "subjects[0].method: nothing", "client-certificate, token"]),
    (
        "client-certificate",
        "certificate",
        &["5:", "method: \"certificate\"", "client-certificate, token, dial-token, oidc:NAME"],
    ),
    ("client-certificate", "way-in:host", &["5:", "method: \"way-in:host\"", "use entry-point:NAME"]),
    ("client-certificate", "\"*\"", &["5:", "method: \"*\"", "goes with `user: \"*\"` alone"]),
    ("group:", "user: a, group:", &["5:", "user and group together"]),
    (", group: \"tombolo:admins\"", "", &["5:", "subjects[0].user: nothing"]),
    ("tombolo:admins", "tombolo:*", &["5:", "group: \"tombolo:*\"", "a name in full"]),
    ("tombolo:admins", "system:masters", &["5:", "does not begin with system:"]),
    ("tombolo:admins", "admins ", &["5:", "white space"]),
    ("tombolo:admins", "", &["5:", "subjects[0].group: \"\""]),
    ("names: [\"edge-*\"]", "names: []", &["7:", "rules[0].clusters.names: 0 entries"]),
    ("edge-*", "edge-**", &["7:13: rules[0].clusters.names[0]: \"edge-**\""]),
    ("edge-*", "Edge", &["7:", "\"Edge\"", "any text"]),
    ("edge-*", "", &["7:", "names[0]: \"\""]),
    ("matchLabels: { stage: live }", "matchLabels: {}", &["9:", "labelSelector.matchLabels: 0 entries"]),
    ("stage: live", "\"-s\": live", &["9:", "\"-s\"", "a label's name"]),
    ("stage: live", "stage: \"li ve\"", &["9:", "matchLabels.stage: \"li ve\"", "at most 63"]),
    ("example.com/tier", "Example.com/tier", &["11:", "key: \"Example.com/tier\""]),
    ("example.com/tier", "example..com/tier", &["11:", "a label's name"]),
    ("example.com/tier", "example.com/", &["11:", "a label's name"]),
    ("operator: In,", "operator: in,", &["11:", "operator: \"in\"", "In, NotIn, Exists or DoesNotExist"]),
    ("operator: In,", "operator: Exists,", &["11:", "values: a list", "no values with Exists"]),
    ("operator: In,", "operator: DoesNotExist,", &["11:", "no values with DoesNotExist"]),
    (", values: [\"1\"]", "", &["11:", "matchExpressions[0].values: nothing"]),
    ("values: [\"1\"]", "values: []", &["11:", "values: 0 entries"]),
    ("key: example.com/tier, ", "", &["11:", "matchExpressions[0].key: nothing"]),
    ("mode: kube-api", "", &["2:", "rules[0].mode: nothing", "kube-api, dial or impersonate"]),
    ("mode: kube-api", "mode: kubeapi", &["12:9: rules[0].mode: \"kubeapi\""]),
    ("mode: kube-api", "mode: dial", &["14:", "rules[0].actions: a list", "targets with the mode dial"]),
    (
        "mode: kube-api",
        "mode: impersonate",
        &["rules[0].actions: a list", "identities with the mode impersonate"],
    ),
    ("mode: impersonate", "mode: kube-api", &["32:", "rules[2].identities: a list", "actions with the mode"]),
    ("  identities: [{ users: [bob], groups: [ops] }]\n", "", &["27:", "rules[2].identities: nothing"]),
    ("users: [bob], groups: [ops]", "", &["32:", "identities[0]: nothing", "users, groups or both"]),
    ("users: [bob]", "users: []", &["32:", "identities[0].users: 0 entries"]),
    ("users: [bob]", "users: [\"bob \"]", &["32:", "users[0]: \"bob \"", "any text"]),
    ("groups: [ops]", "groups: [\"\"]", &["32:", "groups[0]: \"\""]),
    ("mode: dial", "mode: kube-api", &["rules[1].targets: a list", "actions with the mode kube-api"]),
    (
        "verbs: [\"get\"]",
        "verbs: [\"ge*\"]",
        &["14:", "rules[0].actions[0].verbs[0]: \"ge*\"", "deletecollection"],
    ),
    ("verbs: [\"get\"]", "verbs: [GET]", &["14:", "\"GET\""]),
    ("verbs: [\"get\"]", "verbs: []", &["14:", "verbs: 0 entries", "1 to 1000"]),
    ("apiGroups: [\"\"]", "", &["actions[0].apiGroups: nothing"]),
    ("apiGroups: [\"\"]", "apiGroups: [apps/v1]", &["15:", "\"apps/v1\"", "without a version"]),
    ("resources: [pods]", "", &["actions[0].resources: nothing"]),
    ("resources: [pods]", "resources: [Pod]", &["16:", "\"Pod\"", "in the plural"]),
    ("resources: [pods]", "resources: [\"po*\"]", &["16:", "\"po*\""]),
    ("resources: [pods]", "resources: [pods/log/x]", &["16:", "\"pods/log/x\""]),
    ("resources: [pods]", "resources: [pods/]", &["16:", "\"pods/\""]),
    ("resources: [pods]", "resources: [pods/exec]", &["16:", "reaches into a workload", "the verb connect"]),
    ("resources: [pods]", "resources: [pods, \"*/proxy\"]", &["16:", "the verb connect"]),
    ("verbs: [\"get\"]", "verbs: [get, connect]", &["14:", "connect", "pods/exec"]),
    ("namespaces: [shop]", "", &["actions[0].namespaces: nothing"]),
    ("namespaces: [shop]", "namespaces: [\"shop-*\"]", &["17:", "\"shop-*\"", "in full"]),
    ("/version", "version", &["18:", "\"version\"", "'*' at the end alone"]),
    ("/version", "/a*b", &["18:", "\"/a*b\""]),
    ("/version", "/a/../b", &["18:", "\"/a/../b\""]),
    ("/version", "/a//b", &["18:", "\"/a//b\""]),
    ("/version", "/%61", &["18:", "\"/%61\""]),
    ("10.0.0.0/8", "10.0.0.1/8", &["25:", "\"10.0.0.1/8\"", "no bit set behind the mask"]),
    ("10.0.0.0/8", "10.0.0.0/33", &["25:", "\"10.0.0.0/33\""]),
    ("10.0.0.0/8", "\"::ffff:10.0.0.0/104\"", &["25:", "networks such as"]),
    ("10.0.0.0/8", "\"*.example\"", &["25:", "DNS names and IP addresses in full"]),
    ("10.0.0.0/8", "127.1", &["25:", "\"127.1\""]),
    ("ports: [5432]", "ports: [0]", &["26:", "\"0\"", "1 to 65535"]),
    ("ports: [5432]", "ports: [5000-6000]", &["26:", "\"5000-6000\""]),
    ("    ports: [5432]\n", "", &["25:", "targets[0].ports: nothing"]),
    ("hosts: [10.0.0.0/8]\n    ", "", &["25:", "targets[0].hosts: nothing"]),
];

#[test]
fn an_invalid_policy_is_refused_with_line_and_key() {
    let mut wrong = Vec::new();
    for (from, to, words) in INVALID {
        let text = changed(from, to);
        let error = Rules::from_document(&read(&text)).expect_err(&text).to_string();
        let is_placed = error.starts_with(|first: char| first.is_ascii_digit() && first != '0');
        if !is_placed || words.iter().any(|word| !error.contains(word)) {
            wrong.push(format!("{to:?} gave {error:?}, not {words:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn actions_with_verbs_alone_are_refused() {
    let text = "rules: [{ name: a, effect: Deny, subjects: [{ method: token, user: a }], clusters: { names: [a] }, \
                mode: kube-api, actions: [{ verbs: ['*'] }] }]";
    assert!(Rules::from_document(&read(text)).unwrap_err().to_string().contains("only verbs"));
    let never = text.replace("'*'] }", "list, connect], nonResourceURLs: [/version] }");
    assert!(
        Rules::from_document(&read(&never))
            .unwrap_err()
            .to_string()
            .contains("verbs: a verb of resources alone"),
        "{never}"
    );
    let text = text.replace("names: [a]", "");
    assert!(
        Rules::from_document(&read(&text)).unwrap_err().to_string().contains("rules[0].clusters: nothing")
    );
    let text = text.replace("clusters: {  }", "clusters: { labelSelector: {} }");
    assert!(Rules::from_document(&read(&text)).unwrap_err().to_string().contains("labelSelector: nothing"));
}

#[test]
fn unknown_duplicate_and_empty_keys_are_refused() {
    for (from, to) in [
        ("rules:", "rulez:"),
        ("name: admins", "name: admins\n  nam: x"),
        ("name: admins", "name: admins\n  name: admins"),
        ("effect: Allow", "effect: [Allow]"),
        ("{ method: client-certificate,", "{ method: client-certificate, method: token,"),
        ("mode: kube-api", "mode:"),
        ("names: [\"edge-*\"]", "names:"),
        ("names: [\"edge-*\"]", "names: edge-a"),
        ("names: [\"edge-*\"]", "names: [~]"),
        ("labelSelector:", "labelselector:"),
        ("labelSelector:\n", "labelSelector: ~\n    labelSelector:\n"),
        ("stage: live", "stage: live, stage: test"),
        ("nonResourceURLs", "nonResourceUrls"),
        ("apiGroups: [\"\"]", "apiGroups: [\"\"]\n    resourceNames: [x]"),
        ("hosts:", "host:"),
        (GOOD, ""),
        (GOOD, "rules:"),
        (GOOD, "rules: {}"),
        (GOOD, "[]"),
    ] {
        let text = changed(from, to);
        let document = serde_saphyr::from_str::<Document>(&text);
        assert!(document.is_err(), "{to:?} was read as {document:?}");
    }
}

#[test]
fn rules_and_list_entries_are_bounded() {
    let rule: document::RawRule = serde_saphyr::from_str(
        "{ name: r, effect: Deny, subjects: [{ method: token, user: a }], clusters: { names: [a] }, mode: dial, \
         targets: [{ hosts: [a], ports: [1] }] }",
    )
    .unwrap();
    let numbered =
        |number: usize| document::RawRule { name: Some(spanned(format!("r{number}"))), ..rule.clone() };
    let of = |count: usize| Document {
        rules: spanned((0..count).map(|number| spanned(numbered(number))).collect()),
    };
    assert_eq!(Rules::from_document(&of(RULES_MAX)).unwrap().count(), RULES_MAX);
    let error = Rules::from_document(&of(RULES_MAX + 1)).unwrap_err();
    assert_eq!((error.key.as_str(), error.value.as_str()), ("rules", "5001 rules"));
    assert!(Rules::from_document(&of(0)).unwrap_err().to_string().contains("0 rules"));

    let listed =
        |count: usize| changed("names: [\"edge-*\"]", &format!("names: [{}]", vec!["a"; count].join(", ")));
    assert!(Rules::from_document(&read(&listed(ENTRIES_MAX))).is_ok());
    let error = Rules::from_document(&read(&listed(ENTRIES_MAX + 1))).unwrap_err();
    assert_eq!((error.key.as_str(), error.value.as_str()), ("rules[0].clusters.names", "1001 entries"));
}

fn spanned<T>(value: T) -> serde_saphyr::Spanned<T> {
    let nowhere = serde_saphyr::Location::UNKNOWN;
    serde_saphyr::Spanned { value, referenced: nowhere, defined: nowhere }
}

/// The good policy with the first `from` replaced.
fn changed(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from:?} is not there");
    GOOD.replacen(from, to, 1)
}
