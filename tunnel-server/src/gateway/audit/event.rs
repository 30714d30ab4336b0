//! Audit events from requests: caller, object, identity, end and cause of failure.

use std::borrow::Cow;

use audit::{Event, FailureCause, Identity, ObjectRef};
use http::header::USER_AGENT;
use http::{Method, Request};
use policy::action::{Action, Object};
use proto::wire::Assert;

use crate::exchanges::audit::{Origin, event_of_caller};
use crate::forwarding::audit_id::audit_id;
use crate::gateway::peer::Peer;
use crate::identity::{Caller, NotAuthenticated};

/// The event of a caller's request, with the fields that all requests have in common.
pub(super) fn caller_event<B>(
    request: &Request<B>,
    caller: &Caller,
    from: &Peer,
    verb: impl Into<Cow<'static, str>>,
) -> Event {
    let uri = request.uri();
    // A CONNECT has a target and no path.
    let target = match (uri.path_and_query(), uri.authority()) {
        (None, Some(authority)) => authority.as_str(),
        (path, _) => path.map_or("/", |target| target.as_str()),
    };
    let mode = if request.method() == Method::CONNECT { "dial" } else { "kube-api" };
    let origin = Origin {
        listener: from.listener(),
        source: from.source(),
        address: from.address(),
        audit_id: audit_id(request),
    };
    let mut event = event_of_caller(caller, origin, mode, verb, target);
    let user_agent = request.headers().get(USER_AGENT);
    event.user_agent = user_agent.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    event
}

/// The resource of an action, if it has one.
pub(super) fn object(action: &Action) -> Option<ObjectRef> {
    let Object::Resource(resource) = action.object() else { return None };
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    Some(ObjectRef {
        api_group: resource.group.clone(),
        api_version: String::new(),
        resource: resource.resource.clone(),
        subresource: text(&resource.subresource),
        namespace: text(&resource.namespace),
        name: text(&resource.name),
    })
}

/// The asserted identity in the form of the audit log.
pub(super) fn identity(Assert { user, groups }: Assert) -> Identity {
    Identity { username: user, groups }
}

/// The cause of a failed authentication, as the audit log distinguishes them.
pub(in crate::gateway) fn why(error: &NotAuthenticated) -> FailureCause {
    match error {
        NotAuthenticated::NoCredential(_) => FailureCause::NoCredential,
        NotAuthenticated::TwoCredentials
        | NotAuthenticated::NoCertificate
        | NotAuthenticated::TwoAuthorizations
        | NotAuthenticated::Scheme(_)
        | NotAuthenticated::NotAToken
        | NotAuthenticated::UnknownToken
        | NotAuthenticated::Certificate(_)
        | NotAuthenticated::Subprotocol(_)
        | NotAuthenticated::Token(_)
        | NotAuthenticated::Review(_) => FailureCause::Refused,
        NotAuthenticated::Unreachable(_) => FailureCause::Unavailable,
    }
}
