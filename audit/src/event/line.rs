//! Serializes an event as one line of the log.

use std::time::SystemTime;

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use time::OffsetDateTime;

use super::{
    ANNOTATION_BYTES_MAX, AUDIT_ID_BYTES_MAX, Annotation, Completion, Event, GROUPS_MAX, Identity,
    NAME_BYTES_MAX, ObjectRef, Status, URI_BYTES_MAX, USER_AGENT_BYTES_MAX, User,
};
use crate::json::Truncated;

/// The stage of a request, as `audit.k8s.io/v1` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The request is allowed, and nothing was done for it yet: an intent.
    RequestReceived,
    /// The exchange is over: a completion.
    ResponseComplete,
}

/// An event with its position in the log, as JSON. The annotations are its last key, and the number is the last of them.
pub(crate) struct Line<'a> {
    pub(crate) event: &'a Event,
    pub(crate) stage: Stage,
    pub(crate) completion: Option<&'a Completion>,
    pub(crate) sequence: u64,
    pub(crate) at: SystemTime,
}

impl Stage {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseComplete => "ResponseComplete",
        }
    }
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { event, stage, completion, sequence, at } = *self;
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("kind", "Event")?;
        line.serialize_entry("apiVersion", "audit.k8s.io/v1")?;
        line.serialize_entry("level", "Metadata")?;
        // An event without an id gets one from the line of its intent.
        let intent = completion.and_then(|completion| completion.annotations.get(&Annotation::Intent));
        let by_line = || intent.map_or_else(|| format!("log-{sequence}"), |intent| format!("log-{intent}"));
        let own = if event.audit_id.is_empty() { by_line() } else { String::new() };
        let audit_id = if event.audit_id.is_empty() { &own } else { &event.audit_id };
        line.serialize_entry("auditID", &Truncated(audit_id, AUDIT_ID_BYTES_MAX))?;
        line.serialize_entry("stage", stage.as_str())?;
        line.serialize_entry("requestURI", &Truncated(&event.request_uri, URI_BYTES_MAX))?;
        line.serialize_entry("verb", &Truncated(&event.verb, NAME_BYTES_MAX))?;
        line.serialize_entry("user", &event.user)?;
        if let Some(impersonated) = &event.impersonated {
            line.serialize_entry("impersonatedUser", impersonated)?;
        }
        if let Some(source) = event.source {
            line.serialize_entry("sourceIPs", &[source.ip().to_canonical()])?;
        }
        if let Some(user_agent) = &event.user_agent {
            line.serialize_entry("userAgent", &Truncated(user_agent, USER_AGENT_BYTES_MAX))?;
        }
        if let Some(object) = &event.object {
            line.serialize_entry("objectRef", object)?;
        }
        if let Some(status) = completion.and_then(|completion| completion.status.as_ref()) {
            line.serialize_entry("responseStatus", status)?;
        }
        line.serialize_entry("requestReceivedTimestamp", &micro_time(event.received))?;
        line.serialize_entry("stageTimestamp", &micro_time(at))?;
        line.serialize_entry("annotations", &AnnotationMap { event, completion, sequence })?;
        line.end()
    }
}

struct AnnotationMap<'a> {
    event: &'a Event,
    completion: Option<&'a Completion>,
    sequence: u64,
}

impl Serialize for AnnotationMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut annotations = serializer.serialize_map(None)?;
        let ended = self.completion.map(|completion| &completion.annotations);
        // An annotation of the completion replaces one of the intent.
        let earlier = self
            .event
            .annotations
            .iter()
            .filter(|(annotation, _)| !ended.is_some_and(|ended| ended.contains_key(annotation)));
        for (annotation, value) in earlier.chain(ended.into_iter().flatten()) {
            annotations.serialize_entry(annotation.key(), &Truncated(value, ANNOTATION_BYTES_MAX))?;
        }
        let left_out = self.event.user.groups.len().saturating_sub(GROUPS_MAX);
        if left_out > 0 {
            annotations.serialize_entry(Annotation::GroupsLeftOut.key(), &left_out.to_string())?;
        }
        annotations.serialize_entry(Annotation::Sequence.key(), &self.sequence.to_string())?;
        annotations.end()
    }
}

impl Serialize for User {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut user = serializer.serialize_map(None)?;
        if !self.username.is_empty() {
            user.serialize_entry("username", &Truncated(&self.username, NAME_BYTES_MAX))?;
        }
        if !self.groups.is_empty() {
            user.serialize_entry("groups", &Groups(&self.groups))?;
        }
        if !self.method.is_empty() {
            user.serialize_entry("extra", &Extra(&self.method))?;
        }
        user.end()
    }
}

impl Serialize for Identity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut user = serializer.serialize_map(None)?;
        user.serialize_entry("username", &Truncated(&self.username, NAME_BYTES_MAX))?;
        if !self.groups.is_empty() {
            user.serialize_entry("groups", &Groups(&self.groups))?;
        }
        user.end()
    }
}

struct Groups<'a>(&'a [String]);

impl Serialize for Groups<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut groups = serializer.serialize_seq(None)?;
        for group in self.0.iter().take(GROUPS_MAX) {
            groups.serialize_element(&Truncated(group, NAME_BYTES_MAX))?;
        }
        groups.end()
    }
}

/// The authentication method, in the user's `extra`, where each key has a list.
struct Extra<'a>(&'a str);

impl Serialize for Extra<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut extra = serializer.serialize_map(Some(1))?;
        extra.serialize_entry("tombolo.dev/method", &[Truncated(self.0, NAME_BYTES_MAX)])?;
        extra.end()
    }
}

impl Serialize for ObjectRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        for (key, value) in [
            ("resource", &self.resource),
            ("namespace", &self.namespace),
            ("name", &self.name),
            ("apiGroup", &self.api_group),
            ("apiVersion", &self.api_version),
            ("subresource", &self.subresource),
        ] {
            if !value.is_empty() {
                object.serialize_entry(key, &Truncated(value, NAME_BYTES_MAX))?;
            }
        }
        object.end()
    }
}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut status = serializer.serialize_map(None)?;
        status.serialize_entry("code", &self.code)?;
        if !self.reason.is_empty() {
            status.serialize_entry("reason", self.reason)?;
        }
        status.end()
    }
}

/// `metav1.MicroTime`: RFC 3339 in UTC, to the microsecond.
pub(crate) fn micro_time(at: SystemTime) -> String {
    let at = OffsetDateTime::from(at);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z",
        at.year(),
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second(),
        at.microsecond()
    )
}

#[cfg(test)]
mod tests;
