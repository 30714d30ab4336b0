//! The raw form of a policy file.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

/// The `kind` of the file.
pub const KIND: &str = "Policy";

/// A policy file of the kind [`KIND`], without its head, before validation. Reading it refuses unknown and
/// duplicate keys.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Document {
    pub(crate) rules: Spanned<Vec<Spanned<RawRule>>>,
}

/// A value with its position in the file.
pub(crate) type Text = Spanned<String>;
/// A list of such values.
pub(crate) type List = Spanned<Vec<Text>>;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RawRule {
    #[serde(default, deserialize_with = "present")]
    pub(crate) name: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) effect: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) subjects: Option<Spanned<Vec<Spanned<RawSubject>>>>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) clusters: Option<Spanned<RawClusters>>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) mode: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) actions: Option<Spanned<Vec<Spanned<RawActions>>>>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) targets: Option<Spanned<Vec<Spanned<RawTargets>>>>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) identities: Option<Spanned<Vec<Spanned<RawIdentities>>>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RawSubject {
    #[serde(default, deserialize_with = "present")]
    pub(crate) method: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) user: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) group: Option<Text>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RawClusters {
    #[serde(default, deserialize_with = "present")]
    pub(crate) names: Option<List>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) label_selector: Option<Spanned<RawLabelSelector>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RawLabelSelector {
    #[serde(default, deserialize_with = "present")]
    pub(crate) match_labels: Option<Spanned<BTreeMap<String, Text>>>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) match_expressions: Option<Spanned<Vec<Spanned<RawExpression>>>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RawExpression {
    #[serde(default, deserialize_with = "present")]
    pub(crate) key: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) operator: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) values: Option<List>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RawActions {
    #[serde(default, deserialize_with = "present")]
    pub(crate) verbs: Option<List>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) api_groups: Option<List>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) resources: Option<List>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) namespaces: Option<List>,
    #[serde(default, deserialize_with = "present", rename = "nonResourceURLs")]
    pub(crate) non_resource_urls: Option<List>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RawTargets {
    #[serde(default, deserialize_with = "present")]
    pub(crate) hosts: Option<List>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) ports: Option<List>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RawIdentities {
    #[serde(default, deserialize_with = "present")]
    pub(crate) users: Option<List>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) groups: Option<List>,
}

/// Reads a key that may be absent, but not null: a list that a template left empty must differ from one that nobody wrote.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}
