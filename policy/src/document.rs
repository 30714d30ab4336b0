//! A policy as people write it.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

/// The `kind` of the file.
pub const KIND: &str = "Policy";

/// What a file of the kind [`KIND`] says behind its head; nothing of it is valid yet. Unknown and doubled keys are
/// refused while it is read.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Document {
    pub(crate) rules: Spanned<Vec<Spanned<Rule>>>,
}

/// A value with the place where it stands.
pub(crate) type Text = Spanned<String>;
/// The same of several.
pub(crate) type List = Spanned<Vec<Text>>;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Rule {
    #[serde(default, deserialize_with = "present")]
    pub(crate) name: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) effect: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) subjects: Option<Spanned<Vec<Spanned<Subject>>>>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) clusters: Option<Spanned<Clusters>>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) mode: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) actions: Option<Spanned<Vec<Spanned<Actions>>>>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) targets: Option<Spanned<Vec<Spanned<Targets>>>>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) identities: Option<Spanned<Vec<Spanned<Identities>>>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Subject {
    #[serde(default, deserialize_with = "present")]
    pub(crate) method: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) user: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) group: Option<Text>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Clusters {
    #[serde(default, deserialize_with = "present")]
    pub(crate) names: Option<List>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) label_selector: Option<Spanned<LabelSelector>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct LabelSelector {
    #[serde(default, deserialize_with = "present")]
    pub(crate) match_labels: Option<Spanned<BTreeMap<String, Text>>>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) match_expressions: Option<Spanned<Vec<Spanned<Expression>>>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Expression {
    #[serde(default, deserialize_with = "present")]
    pub(crate) key: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) operator: Option<Text>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) values: Option<List>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Actions {
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
pub(crate) struct Targets {
    #[serde(default, deserialize_with = "present")]
    pub(crate) hosts: Option<List>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) ports: Option<List>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Identities {
    #[serde(default, deserialize_with = "present")]
    pub(crate) users: Option<List>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) groups: Option<List>,
}

/// A key may be absent, but not there with nothing behind it: a list that a template has left empty must not read as one
/// that nobody wrote.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}
