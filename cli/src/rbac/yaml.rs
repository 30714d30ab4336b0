//! Formats roles, their bindings and the ServiceAccount of an agent as YAML.

use crate::args::Profile;

/// All verbs for resources, and all verbs for non-resource paths.
const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
const METHODS: [&str; 7] = ["get", "head", "options", "post", "put", "patch", "delete"];

/// A Role or ClusterRole, with the binding that gives it to the agent.
#[derive(Debug)]
pub(super) struct Role<'a> {
    pub(super) name: &'static str,
    pub(super) namespace: Option<&'a str>,
    pub(super) rules: Rules,
}

/// The rules of one role, as YAML.
#[derive(Debug, Default)]
pub(super) struct Rules(String);

impl Rules {
    /// Adds a rule with its reason. Adds none for an empty list of names, which RBAC would take for all names.
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

    /// Adds the rules for every action in this mode of constrained impersonation (KEP-5284).
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

/// The manifest: namespace, ServiceAccount, roles and bindings.
pub(super) fn manifest(profile: Profile, roles: &[Role<'_>]) -> String {
    let description = match profile {
        Profile::Named => "named: impersonate the names that its own file lists",
        Profile::Open => "open: impersonate anybody, which is as much as cluster-admin may",
        Profile::Constrained => {
            "constrained: impersonate the names that its own file lists, by constrained impersonation"
        }
    };
    let mut text = format!(
        "# What a tunnel-agent may do in its cluster. Profile {description}; read where the\n# control plane is, and its own \
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

/// A YAML list of quoted names, without its brackets.
fn listed(names: &[&str]) -> String {
    names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
}

/// A quoted YAML string, which has the form of a JSON string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
