//! The raw form of a policy file.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

/// The `kind` of the file.
pub const KIND: &str = "Policy";

/// Most rules of a policy: each request is compared with every one.
pub const RULES_MAX: usize = 5_000;

/// Most entries of any list in a rule.
pub const ENTRIES_MAX: usize = 1_000;

/// A policy file of the kind [`KIND`], without its head, before validation. Reading it refuses unknown and
/// duplicate keys.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Document {
    /// The rules. A request is forbidden unless a rule allows it, and a rule that denies wins, at any position.
    #[cfg_attr(test, schemars(with = "Vec<RawRule>", length(min = 1, max = RULES_MAX)))]
    pub(crate) rules: Spanned<Vec<Spanned<RawRule>>>,
}

/// A value with its position in the file.
pub(crate) type Text = Spanned<String>;
/// A list of such values.
pub(crate) type List = Spanned<Vec<Text>>;

/// A rule of the policy. It has the one list of `actions`, `targets` and `identities` that belongs to its mode.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["name", "effect", "subjects", "clusters", "mode"])))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RawRule {
    /// Name of the rule, which no other rule has: 1 to 63 lower-case letters, digits and `-`. Messages and the audit log say it.
    #[cfg_attr(test, schemars(with = "String"))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) name: Option<Text>,
    /// The outcome for the requests that the rule covers.
    #[cfg_attr(test, schemars(with = "String", extend("enum" = ["Allow", "Deny"])))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) effect: Option<Text>,
    /// The callers to whom the rule applies.
    #[cfg_attr(test, schemars(with = "Vec<RawSubject>", length(min = 1, max = ENTRIES_MAX)))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) subjects: Option<Spanned<Vec<Spanned<RawSubject>>>>,
    /// The clusters to which the rule applies. If `names` and `labelSelector` are both there, both must match.
    #[cfg_attr(test, schemars(with = "RawClusters"))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) clusters: Option<Spanned<RawClusters>>,
    /// The kind of requests: kube-api for the Kubernetes API, dial for connections to addresses, impersonate for `kubectl --as`.
    #[cfg_attr(test, schemars(with = "String", extend("enum" = ["kube-api", "dial", "impersonate"])))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) mode: Option<Text>,
    /// Requests at the Kubernetes API. The mode kube-api requires this list.
    #[cfg_attr(test, schemars(with = "Vec<RawActions>", length(min = 1, max = ENTRIES_MAX)))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) actions: Option<Spanned<Vec<Spanned<RawActions>>>>,
    /// Addresses to connect to in a cluster. The mode dial requires this list.
    #[cfg_attr(test, schemars(with = "Vec<RawTargets>", length(min = 1, max = ENTRIES_MAX)))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) targets: Option<Spanned<Vec<Spanned<RawTargets>>>>,
    /// Identities as which callers may act. The mode impersonate requires this list.
    #[cfg_attr(test, schemars(with = "Vec<RawIdentities>", length(min = 1, max = ENTRIES_MAX)))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) identities: Option<Spanned<Vec<Spanned<RawIdentities>>>>,
}

/// A user or a group of one method of authentication. A subject has either `user` or `group`.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["method"])))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RawSubject {
    /// Method of authentication: client-certificate, token, dial-token, oidc:NAME, token-review:NAME or entry-point:NAME. `*` goes with
    /// the user `*` alone.
    #[cfg_attr(test, schemars(with = "String"))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) method: Option<Text>,
    /// Full name of the user, with the prefix of its method; or `*` for every user of the method.
    #[cfg_attr(test, schemars(with = "String"))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) user: Option<Text>,
    /// Full name of the group, with the prefix of its method.
    #[cfg_attr(test, schemars(with = "String"))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) group: Option<Text>,
}

#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RawClusters {
    /// Names of clusters, in which `*` stands for any text.
    #[cfg_attr(test, schemars(with = "Vec<String>", length(min = 1, max = ENTRIES_MAX)))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) names: Option<List>,
    /// Requirements on the labels that the server keeps for a cluster. All of them must hold.
    #[cfg_attr(test, schemars(with = "RawLabelSelector"))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) label_selector: Option<Spanned<RawLabelSelector>>,
}

#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RawLabelSelector {
    /// Labels that a cluster must have, each with this value.
    #[cfg_attr(test, schemars(
        with = "BTreeMap<String, String>",
        extend("minProperties" = 1, "maxProperties" = ENTRIES_MAX)
    ))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) match_labels: Option<Spanned<BTreeMap<String, Text>>>,
    /// Further requirements, as in Kubernetes.
    #[cfg_attr(test, schemars(with = "Vec<RawExpression>", length(min = 1, max = ENTRIES_MAX)))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) match_expressions: Option<Spanned<Vec<Spanned<RawExpression>>>>,
}

/// A requirement on one label.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["key", "operator"])))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RawExpression {
    /// Name of the label, such as stage or example.com/stage.
    #[cfg_attr(test, schemars(with = "String"))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) key: Option<Text>,
    /// The comparison. In and NotIn require `values`.
    #[cfg_attr(test, schemars(with = "String", extend("enum" = ["In", "NotIn", "Exists", "DoesNotExist"])))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) operator: Option<Text>,
    /// Values of the label, for In and NotIn alone.
    #[cfg_attr(test, schemars(with = "Vec<String>", length(min = 1, max = ENTRIES_MAX)))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) values: Option<List>,
}

/// Requests at the Kubernetes API. The entry has `apiGroups`, `resources` and `namespaces` together, or `nonResourceURLs`, or all four.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["verbs"])))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RawActions {
    /// Verbs. exec, attach, portforward, proxy and ephemeralcontainers are connect, with any method. head, options, post and put are
    /// verbs of other paths alone.
    #[cfg_attr(test, schemars(
        with = "Vec<String>",
        length(min = 1, max = ENTRIES_MAX),
        extend("items" = tests::verb_schema())
    ))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) verbs: Option<List>,
    /// API groups without a version, such as apps. The empty text is the core group, and `*` every group.
    #[cfg_attr(test, schemars(with = "Vec<String>", length(min = 1, max = ENTRIES_MAX)))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) api_groups: Option<List>,
    /// Resources and subresources in lower case and the plural, such as pods, pods/log, `pods/*` or `*/log`; or `*` for all.
    #[cfg_attr(test, schemars(with = "Vec<String>", length(min = 1, max = ENTRIES_MAX)))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) resources: Option<List>,
    /// Namespaces by their full names. The empty text covers objects without a namespace and requests over all namespaces, and `*`
    /// everything.
    #[cfg_attr(test, schemars(with = "Vec<String>", length(min = 1, max = ENTRIES_MAX)))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) namespaces: Option<List>,
    /// Other paths of the API server, such as /version. A `*` at the end stands for any text.
    #[cfg_attr(test, schemars(with = "Vec<String>", length(min = 1, max = ENTRIES_MAX)))]
    #[serde(default, deserialize_with = "present", rename = "nonResourceURLs")]
    pub(crate) non_resource_urls: Option<List>,
}

/// Addresses to connect to: each host, on each port.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["hosts", "ports"])))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RawTargets {
    /// IP addresses, networks such as 10.0.0.0/8, and DNS names in full; or `*` for all.
    #[cfg_attr(test, schemars(with = "Vec<String>", length(min = 1, max = ENTRIES_MAX)))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) hosts: Option<List>,
    /// Ports of 1 to 65535, with or without quotes; or `*` for all.
    #[cfg_attr(test, schemars(
        with = "Vec<String>",
        length(min = 1, max = ENTRIES_MAX),
        extend("items" = tests::port_schema())
    ))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) ports: Option<List>,
}

/// Identities as which callers may act, with `kubectl --as` and `--as-group`. Each part of an identity needs a rule.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RawIdentities {
    /// Names of users, in which `*` stands for any text.
    #[cfg_attr(test, schemars(with = "Vec<String>", length(min = 1, max = ENTRIES_MAX)))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) users: Option<List>,
    /// Names of groups, in which `*` stands for any text.
    #[cfg_attr(test, schemars(with = "Vec<String>", length(min = 1, max = ENTRIES_MAX)))]
    #[serde(default, deserialize_with = "present")]
    pub(crate) groups: Option<List>,
}

/// Reads a key that may be absent, but not null: a list that a template left empty must differ from one that nobody wrote.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

#[cfg(test)]
mod tests;
