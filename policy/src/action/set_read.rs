//! A read of the clusters of a set: one request, which becomes an action at each of its clusters.

use std::time::Duration;

use http::Method;
use http::uri::PathAndQuery;
use proto::ClusterId;
use proto::cluster::is_dns_label;
use proto::upgrade_protocol::UpgradeProtocol;

use super::error::ActionError;
use super::query::{Query, RESOURCE_VERSION, TIMEOUT_SECONDS};
use super::resource::Object;
use super::verb::{self, Verb};
use super::{Action, CONTINUE, LIMIT, OwnTarget, check_reduced, path};
use crate::label::LabelSelector;

/// The parameters that are for the set, and not for its clusters.
const CLUSTER_SELECTOR: &str = "clusterSelector";

/// The subresources that a set answers for. Others are no JSON, or connect to a workload.
const SUBRESOURCES: [&str; 2] = ["status", "scale"];

/// A read of a cluster set. Only [`Action::parse`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetRead {
    set: String,
    selector: Option<LabelSelector>,
    kind: SetReadKind,
    limit: Option<u64>,
    continue_token: Option<String>,
    timeout: Option<Duration>,
    object: Object,
    verb: Verb,
    /// The path as it was received, without a query.
    path: PathAndQuery,
    /// The parameters for the clusters.
    query: Query,
    reduce: Option<String>,
}

/// The answer that a read of a set asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetReadKind {
    /// The objects of a resource.
    List,
    /// One object by its name.
    Name,
    /// The API groups, versions or resources that there are.
    Discovery,
    /// A document of which the first answer is as good as any: `/version`, `/openapi/…`.
    Document,
}

impl SetRead {
    /// Parses the rest of a target after the name of the set. `rest` begins with the name.
    pub(super) fn parse(
        method: &Method,
        rest: &str,
        upgrade: Option<UpgradeProtocol>,
    ) -> Result<Self, ActionError> {
        if upgrade.is_some() || !matches!(*method, Method::GET | Method::HEAD) {
            return Err(ActionError::SetOnlyRead);
        }
        let (set, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if !is_dns_label(set) {
            return Err(ActionError::NotASetName);
        }
        let OwnTarget { object, legacy, mut query, canonical, reduce } = OwnTarget::read(rest)?;
        let verb = Verb::from_request(&Method::GET, &object, legacy, &query);
        let kind = SetReadKind::of(&object, verb)?;
        if reduce.is_some() {
            check_reduced(verb, &query)?;
        }
        let path = path::with_query(canonical, "")?;
        let selector = query.take_one(CLUSTER_SELECTOR)?;
        let selector = selector.map(|text| text.parse().map_err(ActionError::ClusterSelector)).transpose()?;
        let limit = query.take_number(LIMIT)?.filter(|limit| *limit > 0);
        let timeout = query.take_number(TIMEOUT_SECONDS)?;
        let continue_token = query.take_one(CONTINUE)?.filter(|token| !token.is_empty());
        // Each cluster counts by itself, so no version is one of the set.
        if query.take_one(RESOURCE_VERSION)?.is_some_and(|version| !matches!(version.as_str(), "" | "0")) {
            return Err(ActionError::SetVersion);
        }
        Ok(Self {
            set: set.to_owned(),
            selector,
            kind,
            limit,
            continue_token,
            timeout: timeout.filter(|seconds| *seconds > 0).map(Duration::from_secs),
            object,
            verb,
            path,
            query,
            reduce,
        })
    }

    /// The name of the set.
    #[must_use]
    pub fn set(&self) -> &str {
        &self.set
    }

    /// The labels by which the caller narrows the set (`clusterSelector`).
    #[must_use]
    pub fn selector(&self) -> Option<&LabelSelector> {
        self.selector.as_ref()
    }

    /// The answer that is asked for.
    #[must_use]
    pub fn kind(&self) -> SetReadKind {
        self.kind
    }

    /// The most objects of one page, if the caller wants pages.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// The token of the page before, if there is one.
    #[must_use]
    pub fn continue_token(&self) -> Option<&str> {
        self.continue_token.as_deref()
    }

    /// The time within which the caller wants the answer.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// The question by which each cluster's agent is to reduce the list, as it was received and unread.
    #[must_use]
    pub fn reduce(&self) -> Option<&str> {
        self.reduce.as_deref()
    }

    /// The path and the query for each cluster, without the parameters of a page. Equal reads have equal ones.
    #[must_use]
    pub fn target(&self) -> String {
        format!("{}?{}", self.path, self.query.encoded())
    }

    /// The path for each cluster, without a query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path.path()
    }

    /// The action at one cluster of the set, for one page of it.
    ///
    /// # Errors
    ///
    /// [`ActionError::TooLong`]: the token of the cluster's own page makes the target too long.
    pub fn action(
        &self,
        cluster: ClusterId,
        limit: Option<u64>,
        continue_token: Option<&str>,
    ) -> Result<Action, ActionError> {
        let mut query = self.query.clone();
        if let Some(limit) = limit {
            query.push(LIMIT, limit.to_string());
        }
        if let Some(token) = continue_token {
            query.push(CONTINUE, token.to_owned());
        }
        let path = path::with_query(self.path.clone(), &query.encoded())?;
        let (verb, object, reduce) = (self.verb, self.object.clone(), self.reduce.clone());
        Ok(Action { cluster, verb, object, long_running: false, path, reduce })
    }
}

impl SetReadKind {
    fn of(object: &Object, verb: Verb) -> Result<Self, ActionError> {
        let resource = match object {
            Object::Resource(resource) => resource,
            Object::Path(path) => return Self::of_path(path),
        };
        let is_answered = resource.subresource.as_deref().is_none_or(|part| SUBRESOURCES.contains(&part));
        match verb {
            Verb::List => Ok(Self::List),
            Verb::Get if is_answered && !verb::is_long_running(verb, object) => Ok(Self::Name),
            Verb::Get
            | Verb::Watch
            | Verb::Create
            | Verb::Update
            | Verb::Patch
            | Verb::Delete
            | Verb::DeleteCollection
            | Verb::Connect
            | Verb::Options
            | Verb::Head
            | Verb::Post
            | Verb::Put => Err(ActionError::SetOnlyRead),
        }
    }

    fn of_path(path: &str) -> Result<Self, ActionError> {
        let mut segments = path.trim_matches('/').split('/');
        match (segments.next(), segments.count()) {
            (Some("api"), 0..=1) | (Some("apis"), 0..=2) => Ok(Self::Discovery),
            (Some("version"), 0) | (Some("openapi"), _) => Ok(Self::Document),
            _ => Err(ActionError::NotOfASet),
        }
    }
}
