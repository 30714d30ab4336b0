//! RBAC as YAML.

use crate::args::Profile;

/// What can be done with resources, and with other paths.
const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
const METHODS: [&str; 7] = ["get", "head", "options", "post", "put", "patch", "delete"];

/// A role, in one namespace or in all, and what binds the agent to it.
#[derive(Debug)]
pub(super) struct Role<'a> {
    pub(super) name: &'static str,
    pub(super) namespace: Option<&'a str>,
    pub(super) rules: Rules,
}

/// The rules of one role.
#[derive(Debug, Default)]
pub(super) struct Rules(String);

impl Rules {
    /// A rule with its reason. None at all where no name is listed: to RBAC a list without names is one of all names.
    pub(super) fn add(
        &mut self,
        reason: &str,
        group: &str,
        resources: &str,
        verbs: &[&str],
        names: Option<&[&str]>,
    ) {
        if names.is_some_and(<[&str]>::is_empty) {
            return;
        }
        self.reason(reason);
        let verbs = listed(verbs);
        self.0 += &format!("- apiGroups: [{group}]\n  resources: [{resources}]\n  verbs: [{verbs}]\n");
        if let Some(names) = names {
            self.0 += &format!("  resourceNames: [{}]\n", listed(names));
        }
    }

    /// Everything that can be done by this mode of constrained impersonation.
    pub(super) fn add_acts(&mut self, reason: &str, mode: &str) {
        let acts = |verbs: &[&str]| {
            let acts: Vec<_> = verbs.iter().map(|verb| format!("impersonate-on:{mode}:{verb}")).collect();
            listed(&acts.iter().map(String::as_str).collect::<Vec<_>>())
        };
        self.reason(reason);
        self.0 += &format!("- apiGroups: [\"*\"]\n  resources: [\"*\"]\n  verbs: [{}]\n", acts(&VERBS));
        self.0 += &format!("- nonResourceURLs: [\"*\"]\n  verbs: [{}]\n", acts(&METHODS));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn reason(&mut self, reason: &str) {
        for line in reason.lines() {
            self.0 += &format!("# {line}\n");
        }
    }
}

/// All documents.
pub(super) fn manifest(profile: Profile, roles: &[Role<'_>]) -> String {
    let what = match profile {
        Profile::Named => "named: assert the names that its own file lists",
        Profile::Open => "open: assert anybody, which is as much as cluster-admin may",
        Profile::Constrained => {
            "constrained: assert the names that its own file lists, by constrained impersonation"
        }
    };
    let mut text = format!(
        "# What a tunnel-agent may do in its cluster. Profile {what}; read where the\n# control plane is, and its own \
         Secret. Nothing else. Written by `tombolo rbac` from the agent's configuration.\n\
         apiVersion: v1\nkind: Namespace\nmetadata:\n  name: tombolo\n---\n\
         apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: tunnel-agent\n  namespace: tombolo\n"
    );
    text.extend(roles.iter().map(ToString::to_string));
    text
}

impl std::fmt::Display for Role<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, namespace, rules: Rules(rules) } = self;
        let (kind, within) = match namespace {
            Some(namespace) => ("Role", format!("\n  namespace: {}", quoted(namespace))),
            None => ("ClusterRole", String::new()),
        };
        write!(
            f,
            "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name}{within}\nrules:\n\
             {rules}---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}Binding\nmetadata:\n  name: {name}{within}\n\
             roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {kind}\n  name: {name}\n\
             subjects:\n- kind: ServiceAccount\n  name: tunnel-agent\n  namespace: tombolo\n"
        )
    }
}

/// Names for a list of YAML, whatever is in them.
fn listed(names: &[&str]) -> String {
    names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
}

/// JSON's strings are YAML's, too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
