//! Properties that hold for every policy.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proto::glob;

use super::*;

/// A rule as plain data, over few enough words that rules and requests meet.
#[derive(Debug, Clone)]
struct Plain {
    denies: bool,
    method: &'static str,
    who: &'static str,
    clusters: Vec<&'static str>,
    selector: Option<(&'static str, Vec<&'static str>)>,
    verbs: Vec<&'static str>,
    groups: Vec<&'static str>,
    resources: Vec<&'static str>,
    namespaces: Vec<&'static str>,
    paths: Vec<&'static str>,
}

/// A request as plain data.
#[derive(Debug, Clone)]
struct Question {
    method: &'static str,
    user: &'static str,
    groups: Vec<String>,
    cluster: &'static str,
    stage: Option<&'static str>,
    verb: Verb,
    object: Object,
}

/// A method that an allowing rule must name.
const ENTRY_POINT: &str = "entry-point:host";

proptest! {
    /// The engine agrees with a slow and literal reading of the rules.
    #[test]
    fn the_engine_decides_as_the_plain_reading_does(plain in some(plain()), question in question()) {
        let about: Vec<&Plain> = plain.iter().filter(|rule| rule.is_about(&question)).collect();
        let expected = match (about.iter().any(|rule| rule.denies), about.is_empty()) {
            (_, true) => "no rule",
            (true, false) => "denied",
            (false, false) => "allowed",
        };
        let rules = built(&plain);
        let decided = match question.decide(&rules) {
            Verdict::NoRule => "no rule",
            Verdict::Denied(_) | Verdict::DeniedInPart(_) => "denied",
            Verdict::Allowed(_) => "allowed",
        };
        prop_assert_eq!(decided, expected);
    }

    #[test]
    fn one_more_denial_never_permits_more(plain in some(plain()), one in plain(), question in question()) {
        let denial = Plain { denies: true, ..one };
        let more: Vec<Plain> = plain.iter().cloned().chain([denial]).collect();
        let permits = |rules: &[Plain]| question.decide(&built(rules)).is_allowed();
        prop_assert!(!permits(&more) || permits(&plain));
    }

    #[test]
    fn the_order_of_rules_changes_no_verdict(plain in some(plain()), question in question(), by in 0_usize..8) {
        let rules = built(&plain);
        let verdict = question.decide(&rules);
        let mut turned = plain;
        let by = by % turned.len().max(1);
        turned.rotate_left(by);
        turned.reverse();
        let turned = built(&turned);
        let other = question.decide(&turned);
        let kind = |verdict: Verdict<'_>| (verdict.is_allowed(), verdict == Verdict::NoRule);
        prop_assert_eq!(kind(verdict), kind(other));
    }

    #[test]
    fn the_rule_that_is_named_decides_alone(plain in some(plain()), question in question()) {
        let rules = built(&plain);
        if let Some(name) = question.decide(&rules).rule() {
            let index: usize = name.strip_prefix('r').unwrap().parse().unwrap();
            let alone = built(&plain[index..=index]);
            let verdict = question.decide(&alone);
            prop_assert!(verdict.rule().is_some());
            prop_assert_eq!(verdict.is_allowed(), question.decide(&rules).is_allowed());
            prop_assert_eq!(verdict.is_allowed(), !plain[index].denies);
        }
    }

    #[test]
    fn without_a_rule_nothing_is_permitted_or_reached(question in question()) {
        let rules = Rules::default();
        prop_assert_eq!(question.decide(&rules), Verdict::NoRule);
        prop_assert!(!question.reaches(&rules));
    }

    /// The list of clusters contains every cluster where something is permitted.
    #[test]
    fn where_something_is_permitted_the_cluster_is_reached(plain in some(plain()), question in question()) {
        let rules = built(&plain);
        prop_assert!(!question.decide(&rules).is_allowed() || question.reaches(&rules));
    }

    /// No text panics; it is accepted, or refused with an error.
    #[test]
    fn any_text_is_survived(text in "(rules|name|effect|subjects|clusters|names|mode|actions|verbs|[-:,*{}\\[\\] \n\"'~a-z]){0,60}") {
        if let Ok(document) = serde_saphyr::from_str::<Document>(&text) {
            let _ = Rules::from_document(&document);
        }
    }

    #[test]
    fn a_pattern_means_what_it_says(pattern in "[ab*]{0,6}", text in "[ab]{0,6}") {
        prop_assert_eq!(glob::matches(&pattern, &text), slow_match(pattern.as_bytes(), text.as_bytes()));
    }
}

impl Plain {
    fn is_about(&self, question: &Question) -> bool {
        // A rule for everybody does not allow entry points.
        let may_match = self.denies || question.method != ENTRY_POINT;
        let everybody = (self.method, self.who) == ("*", "user *") && may_match;
        let who = match self.who.split_once(' ').unwrap() {
            ("user", "*") => true,
            ("user", user) => user == question.user,
            (_, group) => question.groups.iter().any(|one| one == group),
        };
        let selected =
            self.selector.as_ref().is_none_or(|(operator, values)| match (*operator, question.stage) {
                ("In", stage) => stage.is_some_and(|stage| values.contains(&stage)),
                ("NotIn", stage) => stage.is_none_or(|stage| !values.contains(&stage)),
                ("Exists", stage) => stage.is_some(),
                (_, stage) => stage.is_none(),
            });
        let named = self.clusters.iter().any(|name| slow_match(name.as_bytes(), question.cluster.as_bytes()));
        let one_of = |list: &[&str], word: &str| list.iter().any(|entry| *entry == "*" || *entry == word);
        let object = match &question.object {
            Object::Path(path) => {
                self.paths.iter().any(|entry| slow_match(entry.as_bytes(), path.as_bytes()))
            }
            Object::Resource(resource) => {
                let complete = match &resource.subresource {
                    None => resource.resource.clone(),
                    Some(subresource) => format!("{}/{subresource}", resource.resource),
                };
                let fits = |entry: &&&str| {
                    let slashes = |text: &str| text.matches('/').count();
                    **entry == "*"
                        || slashes(entry) == slashes(&complete)
                            && slow_match(entry.as_bytes(), complete.as_bytes())
                };
                one_of(&self.groups, &resource.group)
                    && self.resources.iter().find(fits).is_some()
                    && (one_of(&self.namespaces, resource.namespace.as_deref().unwrap_or_default())
                        || self.denies
                            && question.spans()
                            && self.namespaces.iter().any(|one| !one.is_empty()))
            }
        };
        let method = everybody || self.method == question.method;
        method && who && selected && named && one_of(&self.verbs, question.verb.as_str()) && object
    }

    fn yaml(&self, index: usize) -> String {
        let (kind, name) = self.who.split_once(' ').unwrap();
        let selector = self.selector.as_ref().map_or(String::new(), |(operator, values)| {
            let values =
                if operator.ends_with("In") { format!(", values: {values:?}") } else { String::new() };
            format!(
                ", labelSelector: {{ matchExpressions: [{{ key: stage, operator: {operator}{values} }}] }}"
            )
        });
        format!(
            "- {{ name: r{index}, effect: {}, subjects: [{{ method: {:?}, {kind}: {name:?} }}], clusters: {{ names: \
             {:?}{selector} }}, mode: kube-api, actions: [{{ verbs: {:?}, apiGroups: {:?}, resources: {:?}, namespaces: \
             {:?}, nonResourceURLs: {:?} }}] }}\n",
            if self.denies { "Deny" } else { "Allow" },
            self.method,
            self.clusters,
            self.verbs,
            self.groups,
            self.resources,
            self.namespaces,
            self.paths,
        )
    }
}

impl Question {
    fn decide<'a>(&self, rules: &'a Rules) -> Verdict<'a> {
        rules.decide(
            self.principal(),
            &self.cluster(),
            &self.facts(),
            Request::KubeApi(self.verb, &self.object),
        )
    }

    /// True for lists and watches of all namespaces together. Nodes are in none.
    fn spans(&self) -> bool {
        let object = self.object.resource();
        let is_node = |group: &str, resource: &str| group.is_empty() && resource == "nodes";
        let in_all = object.is_some_and(|one| one.namespace.is_none() && !is_node(&one.group, &one.resource));
        in_all && [Verb::List, Verb::Watch].contains(&self.verb)
    }

    fn reaches(&self, rules: &Rules) -> bool {
        rules.reaches(self.principal(), &self.cluster(), &self.facts())
    }

    fn principal(&self) -> Principal<'_> {
        Principal { method: self.method, user: self.user, groups: &self.groups }
    }

    fn cluster(&self) -> ClusterId {
        self.cluster.parse().unwrap()
    }

    fn facts(&self) -> ClusterFacts {
        ClusterFacts {
            labels: self.stage.map(|stage| ("stage".to_owned(), stage.to_owned())).into_iter().collect(),
        }
    }
}

/// The rules, each named by its place.
fn built(plain: &[Plain]) -> Rules {
    if plain.is_empty() {
        return Rules::default();
    }
    let text: String = plain.iter().enumerate().map(|(index, rule)| rule.yaml(index)).collect();
    rules(&format!("rules:\n{text}"))
}

fn some<T: std::fmt::Debug>(one: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
    proptest::collection::vec(one, 0..5)
}

fn plain() -> impl Strategy<Value = Plain> {
    let subject = select(vec![
        ("*", "user *"),
        ("token", "user *"),
        (ENTRY_POINT, "user *"),
        ("token", "user ann"),
        ("client-certificate", "user ann"),
        ("token", "group ops"),
        ("client-certificate", "group ops"),
    ]);
    let selector = proptest::option::of((
        select(vec!["In", "NotIn", "Exists", "DoesNotExist"]),
        words(&["live", "test"]),
    ));
    // With connect and every subresource among them, so that verbs and resources agree.
    let what = (
        words(&["*", "get", "list", "watch", "create"]),
        words(&["pods", "*/log", "pods/*", "*"]),
        any::<bool>(),
    );
    let what = what.prop_map(|(mut verbs, mut resources, connects)| {
        if connects {
            verbs.push("connect");
            resources.push("pods/*");
        }
        (verbs, resources)
    });
    (
        (any::<bool>(), subject, words(&["a*", "ab", "*"]), selector),
        (what, words(&["*", "", "apps"]), words(&["*", "", "shop"]), words(&["*", "/version", "/healthz/*"])),
    )
        .prop_map(
            |(
                (denies, (method, who), clusters, selector),
                ((verbs, resources), groups, namespaces, paths),
            )| Plain {
                denies,
                method,
                who,
                clusters,
                selector,
                verbs,
                groups,
                resources,
                namespaces,
                paths,
            },
        )
}

fn question() -> impl Strategy<Value = Question> {
    let resource = (
        select(vec!["", "apps"]),
        select(vec!["pods", "nodes"]),
        select(vec![None, Some("log"), Some("exec")]),
        select(vec![None, Some("shop"), Some("bank")]),
    );
    let object = prop_oneof![
        3 => resource.prop_map(|(group, resource, subresource, namespace)| {
            Object::Resource(crate::action::Resource {
                group: group.to_owned(),
                resource: resource.to_owned(),
                subresource: subresource.map(str::to_owned),
                namespace: namespace.map(str::to_owned),
                name: None,
            })
        }),
        1 => select(vec!["/version", "/healthz/etcd", "/"]).prop_map(|path| Object::Path(path.to_owned())),
    ];
    (
        select(vec!["token", "client-certificate", ENTRY_POINT]),
        select(vec!["ann", "bob"]),
        subsequence(vec!["ops".to_owned(), "dev".to_owned()], 0..=2),
        select(vec!["a", "ab", "b"]),
        select(vec![None, Some("live"), Some("test")]),
        select(vec![Verb::Get, Verb::List, Verb::Watch, Verb::Create, Verb::Connect]),
        object,
    )
        .prop_map(|(method, user, groups, cluster, stage, verb, object)| {
            let connects = object.resource().is_some_and(crate::action::Resource::connects);
            // As for an action: connect is exactly the verb of what reaches into a workload.
            let verb = match (connects, verb) {
                (true, _) => Verb::Connect,
                (false, Verb::Connect) => Verb::Get,
                (false, verb) => verb,
            };
            Question { method, user, groups, cluster, stage, verb, object }
        })
}

fn words(all: &[&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    subsequence(all.to_vec(), 1..=all.len())
}

/// A slow and literal reading of a pattern.
fn slow_match(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|taken| slow_match(rest, &text[taken..])),
        [byte, rest @ ..] => text.first() == Some(byte) && slow_match(rest, &text[1..]),
    }
}
