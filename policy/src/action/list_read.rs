//! A read of the list of clusters, once or as a watch.

use std::collections::BTreeMap;
use std::time::Duration;

use super::error::ActionError;
use super::query::{Query, RESOURCE_VERSION, TIMEOUT_SECONDS};
use crate::label::LabelSelector;

/// The parameter that chooses clusters by their labels.
const LABEL_SELECTOR: &str = "labelSelector";

/// The parameter that says how much of an object the row of a table has: `None`, `Metadata` or `Object`.
const INCLUDE_OBJECT: &str = "includeObject";

/// A read of the list of clusters. Only [`Action::parse`](super::Action::parse) makes one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListRead {
    selector: Option<LabelSelector>,
    is_watch: bool,
    timeout: Option<Duration>,
    row_object: RowObject,
}

/// The part of an object that goes with the row of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RowObject {
    /// Nothing of the object goes with the row.
    None,
    /// Its metadata, as Kubernetes sends where nothing is asked for.
    #[default]
    Metadata,
    /// The whole object goes with the row.
    Whole,
}

impl ListRead {
    /// Parses the text behind the `?` of the list's path. Unknown parameters are ignored, as Kubernetes does: clients send `limit`, and
    /// the list has no pages.
    pub(super) fn parse(raw: &str) -> Result<Self, ActionError> {
        let mut query = Query::parse(raw)?;
        let selector = query.take_one(LABEL_SELECTOR)?;
        let selector = selector.map(|text| text.parse().map_err(ActionError::LabelSelector)).transpose()?;
        let timeout = query.take_number(TIMEOUT_SECONDS)?.filter(|seconds| *seconds > 0);
        if query.take_one(RESOURCE_VERSION)?.is_some_and(|version| !matches!(version.as_str(), "" | "0")) {
            return Err(ActionError::ListVersion);
        }
        let row_object = match query.take_one(INCLUDE_OBJECT)?.as_deref() {
            None | Some("" | "Metadata") => RowObject::Metadata,
            Some("None") => RowObject::None,
            Some("Object") => RowObject::Whole,
            Some(_) => return Err(ActionError::IncludeObject),
        };
        Ok(Self {
            selector,
            is_watch: query.asks_to_watch(),
            timeout: timeout.map(Duration::from_secs),
            row_object,
        })
    }

    /// Returns true if a cluster with these labels is in the list.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.as_ref().is_none_or(|selector| selector.selects(labels))
    }

    /// Returns true if the list is to be followed.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        self.is_watch
    }

    /// The time after which a watch ends.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// The part of each cluster that goes with its row of a table.
    #[must_use]
    pub fn row_object(&self) -> RowObject {
        self.row_object
    }
}
