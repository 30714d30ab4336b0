//! The server's policy in a test, and changes of it while the server runs.

use super::{GROUP, Rig};

/// Everything that can be asked of a Kubernetes API.
const EVERYTHING: &str = "{ verbs: [\"*\"], apiGroups: [\"*\"], resources: [\"*\"], namespaces: [\"*\"], nonResourceURLs: [\"*\"] }";

/// The generation of the policy in force.
const GENERATION: &str = "tombolo_server_policy_generation";

/// The file that a rig's servers read.
pub const FILE: &str = "policy.yaml";

impl Rig {
    /// Puts other rules in force, each as YAML of one line, and waits until the server has taken them.
    pub async fn put_policy(&self, rules: &[String]) {
        let before = self.metric(self.probes(), GENERATION).await;
        self.write_policy(rules);
        self.measured(GENERATION, |generation| generation > before).await;
    }

    /// Writes other rules, which a server that runs takes some time later, if they are valid.
    pub fn write_policy(&self, rules: &[String]) {
        self.write(FILE, &document(rules));
    }
}

/// The default policy of a rig.
pub(super) fn ours() -> String {
    document(&usual())
}

/// Its rules: [`GROUP`] may everything everywhere, by certificate and by token. Without the second the rig
/// itself sees no cluster.
pub fn usual() -> [String; 2] {
    let token_group = format!("token:{GROUP}");
    [
        allow_all("admins", ("client-certificate", GROUP), &["*"]),
        allow_all("token-admins", ("token", &token_group), &["*"]),
    ]
}

/// A rule that lets a group of a method do everything in these clusters.
pub fn allow_all(name: &str, subject: (&str, &str), clusters: &[&str]) -> String {
    rule(name, "Allow", subject, clusters, EVERYTHING)
}

/// A rule that lets a group of a method assume identities in these clusters.
pub fn may_assume(name: &str, (method, group): (&str, &str), clusters: &[&str], identities: &str) -> String {
    format!(
        "{{ name: {name}, effect: Allow, subjects: [{{ method: {method}, group: {group:?} }}], \
         clusters: {{ names: {clusters:?} }}, mode: impersonate, identities: [{identities}] }}"
    )
}

/// A rule that lets a group of a method dial all targets of these clusters.
pub fn may_dial(name: &str, (method, group): (&str, &str), clusters: &[&str]) -> String {
    format!(
        "{{ name: {name}, effect: Allow, subjects: [{{ method: {method}, group: {group:?} }}], \
         clusters: {{ names: {clusters:?} }}, mode: dial, targets: [{{ hosts: [\"*\"], ports: [\"*\"] }}] }}"
    )
}

/// A rule that lets a user of a method dial all targets of these clusters.
pub fn user_may_dial(name: &str, (method, user): (&str, &str), clusters: &[&str]) -> String {
    format!(
        "{{ name: {name}, effect: Allow, subjects: [{{ method: {method}, user: {user:?} }}], \
         clusters: {{ names: {clusters:?} }}, mode: dial, targets: [{{ hosts: [\"*\"], ports: [\"*\"] }}] }}"
    )
}

/// A rule about what a group of a method does in these clusters.
pub fn rule(
    name: &str,
    effect: &str,
    (method, group): (&str, &str),
    clusters: &[&str],
    actions: &str,
) -> String {
    format!(
        "{{ name: {name}, effect: {effect}, subjects: [{{ method: {method}, group: {group:?} }}], \
         clusters: {{ names: {clusters:?} }}, mode: kube-api, actions: [{actions}] }}"
    )
}

fn document(rules: &[String]) -> String {
    let rules: String = rules.iter().map(|rule| format!("- {rule}\n")).collect();
    format!("apiVersion: tombolo.dev/v1alpha1\nkind: Policy\nrules:\n{rules}")
}
