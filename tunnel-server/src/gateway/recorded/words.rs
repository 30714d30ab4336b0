//! How a request, who asked it and how it ended read in the log.

use std::borrow::Cow;

use audit::{EndReason, Event, Identity, ObjectRef, Why};
use http::header::USER_AGENT;
use http::{Method, Request};
use policy::action::{Action, Object};
use proto::wire::Assert;

use crate::exchanges::record::{Origin, end_of_code, ended_by, of_caller};
use crate::gateway::Peer;
use crate::gateway::refusal::Refusal;
use crate::gateway::stack::audit_id;
use crate::identity::{Caller, NotAuthenticated};

/// Who asks for what, as far as it is the same for all.
pub(super) fn asked<B>(
    request: &Request<B>,
    caller: &Caller,
    from: &Peer,
    verb: impl Into<Cow<'static, str>>,
) -> Event {
    let uri = request.uri();
    // Of a CONNECT there is no path, but a target.
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
    let mut event = of_caller(caller, origin, mode, verb, target);
    let user_agent = request.headers().get(USER_AGENT);
    event.user_agent = user_agent.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    event
}

pub(super) fn object(action: &Action) -> Option<ObjectRef> {
    let Object::Resource(resource) = action.object() else { return None };
    let said = |text: &Option<String>| text.clone().unwrap_or_default();
    Some(ObjectRef {
        api_group: resource.group.clone(),
        api_version: String::new(),
        resource: resource.resource.clone(),
        subresource: said(&resource.subresource),
        namespace: said(&resource.namespace),
        name: said(&resource.name),
    })
}

pub(super) fn identity(Assert { user, groups }: Assert) -> Identity {
    Identity { username: user, groups }
}

/// How a refusal ends what it refuses.
pub(in crate::gateway) fn end_of(refusal: &Refusal) -> EndReason {
    match refusal {
        Refusal::Browser(_)
        | Refusal::NotAuthenticated(_)
        | Refusal::Action(_)
        | Refusal::Forbidden(_)
        | Refusal::NotDelegated(_)
        | Refusal::NotAsserted(_)
        | Refusal::Headers(_)
        | Refusal::Upgrade(_)
        | Refusal::ParkLimit(_)
        | Refusal::NoTunnel(_)
        | Refusal::NoStream(_)
        | Refusal::Busy
        | Refusal::Connect(_)
        | Refusal::Limited(_) => EndReason::Refused,
        Refusal::NotConnected(fault) => fault.end(),
        Refusal::NotRecorded(_) => EndReason::AuditFailed,
        Refusal::Ended(why) => ended_by(*why),
        Refusal::Lost(_) | Refusal::AgentSilent(_) | Refusal::LinkSilent(_) => EndReason::AgentLost,
        Refusal::CallerSilent | Refusal::BrokenBody => EndReason::ClientCancel,
        Refusal::Aborted(_, code) => end_of_code(*code),
        Refusal::Redirect(_) | Refusal::Nonsense(_) | Refusal::NotWatchedAgain(..) => {
            EndReason::UpstreamReset
        }
    }
}

/// Why somebody is not known, as the log tells them apart.
pub(in crate::gateway) fn why(error: &NotAuthenticated) -> Why {
    match error {
        NotAuthenticated::NoCredential(_) => Why::NoCredential,
        NotAuthenticated::TwoCredentials
        | NotAuthenticated::NoCertificate
        | NotAuthenticated::TwoAuthorizations
        | NotAuthenticated::Scheme(_)
        | NotAuthenticated::NotAToken
        | NotAuthenticated::UnknownToken
        | NotAuthenticated::Certificate(_)
        | NotAuthenticated::Subprotocol(_)
        | NotAuthenticated::Token(_)
        | NotAuthenticated::Review(_) => Why::Refused,
        NotAuthenticated::Unreachable(_) => Why::Unavailable,
    }
}
