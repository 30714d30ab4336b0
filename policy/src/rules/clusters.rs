//! Which clusters a rule is about.

use proto::{ClusterId, glob};

use super::ClusterFacts;
use super::choice::Choice;
use super::labels::Selector;
use super::lists::choice;
use crate::document;
use crate::fault::{At, PolicyFault};

/// Those that have one of the names and are selected, where both are said.
#[derive(Debug, Clone)]
pub(super) struct Clusters {
    /// Names in which `*` stands for any text.
    names: Choice<String>,
    selector: Option<Selector>,
}

impl Clusters {
    /// Whether `cluster` is one of them.
    pub(super) fn have(&self, cluster: &ClusterId, facts: &ClusterFacts) -> bool {
        self.names.has(|pattern| glob::matches(pattern, cluster.as_str()))
            && self.selector.as_ref().is_none_or(|selector| selector.selects(&facts.labels))
    }

    pub(super) fn of(at: &At, written: &document::Clusters) -> Result<Self, PolicyFault> {
        let document::Clusters { names, label_selector } = written;
        if names.is_none() && label_selector.is_none() {
            let allowed = "names, labelSelector or both; every cluster is `names: [\"*\"]`";
            return Err(at.fault("nothing", allowed));
        }
        let names =
            names.as_ref().map(|names| choice(&at.below("names", names), names, pattern)).transpose()?;
        let selector = label_selector.as_ref();
        let selector =
            selector.map(|written| Selector::of(&at.below("labelSelector", written), &written.value));
        // Without names the selector alone says which.
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
