//! An audit event, as an Event of `audit.k8s.io/v1` (`k8s.io/apiserver/pkg/apis/audit/v1`).
//!
//! The level is Metadata: who, what, when and the outcome. Bodies, credentials and the bytes of upgraded
//! connections are never in it.

mod annotations;
pub(crate) mod line;
mod uri;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::SystemTime;

pub use annotations::{Annotation, EndReason};
pub use uri::without_values;

use annotations::Annotations;

/// Longest id of an exchange, in bytes.
pub const AUDIT_ID_BYTES_MAX: usize = 64;

/// Longest path with query, in bytes; longer texts are cut, here and below.
pub const URI_BYTES_MAX: usize = 16 * 1024;

/// Longest name of a user, a group or an object, in bytes.
pub const NAME_BYTES_MAX: usize = 256;

/// Most groups of a user that a line names; the number of further ones is an annotation.
pub const GROUPS_MAX: usize = 64;

/// Longest user agent, in bytes.
pub const USER_AGENT_BYTES_MAX: usize = 512;

/// Longest value of one [`Annotation`], in bytes.
pub const ANNOTATION_BYTES_MAX: usize = 512;

/// Longest line, with its line break, in bytes.
pub const LINE_BYTES_MAX: usize = 512 * 1024;

/// An escaped character takes at most this many bytes for each of its own.
const ESCAPED_MAX: usize = 6;

/// Bytes for everything around the texts: keys, brackets, times, addresses and the MAC.
const FRAME_BYTES_MAX: usize = 16 * 1024;

const _: () = {
    let names = 2 * (1 + GROUPS_MAX) + 8;
    let texts = AUDIT_ID_BYTES_MAX
        + URI_BYTES_MAX
        + USER_AGENT_BYTES_MAX
        + names * NAME_BYTES_MAX
        + Annotation::ALL.len() * ANNOTATION_BYTES_MAX;
    assert!(texts * ESCAPED_MAX + FRAME_BYTES_MAX <= LINE_BYTES_MAX);
};

/// A request and its user. Texts may hold any characters; they are escaped, and cut at their limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The id of the exchange in all logs. If it is empty, the line's number is used.
    pub audit_id: String,
    /// The path, with the query's values taken out by [`without_values`].
    pub request_uri: String,
    /// The verb, as Kubernetes names it.
    pub verb: Cow<'static, str>,
    /// The authenticated user who sent the request.
    pub user: User,
    /// The impersonated user, if any.
    pub impersonated: Option<Identity>,
    /// The address and port of the peer.
    pub source: Option<SocketAddr>,
    /// The `User-Agent` header of the request.
    pub user_agent: Option<String>,
    /// The Kubernetes object of the request, if it has one.
    pub object: Option<ObjectRef>,
    /// The time at which the request arrived.
    pub received: SystemTime,
    /// All further facts, as annotations.
    annotations: Annotations,
}

/// The user who sent a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The user name; empty for an unauthenticated request.
    pub username: String,
    /// The groups of the user.
    pub groups: Vec<String>,
    /// The authentication method; empty for an unauthenticated request.
    pub method: String,
}

/// The identity that a user impersonates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The name of the impersonated user.
    pub username: String,
    /// The groups of the impersonated user.
    pub groups: Vec<String>,
}

/// The Kubernetes object of a request; empty fields are left out of the line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectRef {
    /// The API group; empty for the core one.
    pub api_group: String,
    /// The version of the API group.
    pub api_version: String,
    /// The resource: a plural in lower case.
    pub resource: String,
    /// The subresource, such as `log` or `exec`.
    pub subresource: String,
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
}

/// The status of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// The HTTP status code of the answer.
    pub code: u16,
    /// The reason, Kubernetes' or ours; empty for none.
    pub reason: &'static str,
}

/// The outcome of an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// The status of the answer, if one was sent.
    pub status: Option<Status>,
    /// All further facts, as annotations.
    annotations: Annotations,
}

impl Event {
    /// An event that is received now: `user` sends `verb` to `request_uri`.
    #[must_use]
    pub fn new(verb: impl Into<Cow<'static, str>>, request_uri: impl Into<String>, user: User) -> Self {
        Self {
            audit_id: String::new(),
            request_uri: request_uri.into(),
            verb: verb.into(),
            user,
            impersonated: None,
            source: None,
            user_agent: None,
            object: None,
            received: SystemTime::now(),
            annotations: Annotations::default(),
        }
    }

    /// Returns the event with this annotation, which replaces an earlier value.
    #[must_use]
    pub fn with(mut self, annotation: Annotation, value: impl Into<String>) -> Self {
        self.annotate(annotation, value);
        self
    }

    /// Sets this annotation, which replaces an earlier value.
    pub fn annotate(&mut self, annotation: Annotation, value: impl Into<String>) {
        self.annotations.insert(annotation, value.into());
    }
}

impl Completion {
    /// A completion with this status and end reason.
    #[must_use]
    pub fn new(status: Option<Status>, end: EndReason) -> Self {
        let mut annotations = Annotations::default();
        annotations.insert(Annotation::EndReason, end.as_str().to_owned());
        Self { status, annotations }
    }

    /// Returns the completion with this annotation, which replaces an earlier value.
    #[must_use]
    pub fn with(mut self, annotation: Annotation, value: impl Into<String>) -> Self {
        self.annotations.insert(annotation, value.into());
        self
    }
}

impl Status {
    /// A status without a reason.
    #[must_use]
    pub fn code(code: u16) -> Self {
        Self { code, reason: "" }
    }
}
