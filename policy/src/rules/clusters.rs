//! The clusters that a rule applies to.

use proto::{ClusterId, glob};

use super::choice::Choice;
use super::labels;
use super::lists::choice;
use super::request::ClusterFacts;
use crate::document;
use crate::error::{DocumentError, FieldPath};
use crate::label::LabelSelector;

/// Clusters that match one of the names and the selector, where both are present.
#[derive(Debug, Clone)]
pub(super) struct Clusters {
    /// Names in which `*` stands for any text.
    names: Choice<String>,
    selector: Option<LabelSelector>,
}

impl Clusters {
    /// Returns true if `cluster` is one of these clusters.
    pub(super) fn contain(&self, cluster: &ClusterId, facts: &ClusterFacts) -> bool {
        self.names.has(|pattern| glob::matches(pattern, cluster.as_str()))
            && self.selector.as_ref().is_none_or(|selector| selector.selects(&facts.labels))
    }

    pub(super) fn validate(at: &FieldPath, raw: &document::RawClusters) -> Result<Self, DocumentError> {
        let document::RawClusters { names, label_selector } = raw;
        if names.is_none() && label_selector.is_none() {
            let allowed = "names, labelSelector or both; every cluster is `names: [\"*\"]`";
            return Err(at.invalid("nothing", allowed));
        }
        let names =
            names.as_ref().map(|names| choice(&at.child("names", names), names, pattern)).transpose()?;
        let selector = label_selector.as_ref();
        let selector = selector.map(|raw| labels::selector(&at.child("labelSelector", raw), &raw.value));
        // Without names the selector alone decides.
        Ok(Self { names: names.unwrap_or(Choice::Any), selector: selector.transpose()? })
    }
}

fn pattern(text: &str) -> Result<String, &'static str> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-*".contains(&byte);
    if !text.is_empty() && text.bytes().all(fits) && !text.contains("**") {
        return Ok(text.to_owned());
    }
    Err("names of clusters, in which '*' stands for any text")
}
