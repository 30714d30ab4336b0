//! What the audit log learns of a request to the gateway.

mod body;
mod words;

use audit::{Completion, EndReason, Event, NotRecorded, Note, Status};
use http::{Method, Request, StatusCode};
use proto::ClusterId;
use proto::upgrade::Protocol;
use proto::wire::Assert;

use super::refusal::Refusal;
use super::{Peer, connect};
use crate::authz::{Dial, Forbidden, NotDelegated, Permit};
use crate::dialing::DialError;
use crate::exchanges::record::Recorder;
use crate::identity::Caller;

pub(super) use body::RecordedBody;
use words::{asked, identity, object};
pub(super) use words::{end_of, why};

/// What is about to be done, and as whom if that may be asserted.
pub(super) fn intended<B>(
    permit: &Permit,
    asserted: Option<Assert>,
    from: &Peer,
    upgrade: Option<Protocol>,
    request: &Request<B>,
) -> Event {
    let action = permit.action();
    let mut event = asked(request, permit.caller(), from, action.verb().as_str());
    event.object = object(action);
    event.asserted = asserted.map(identity);
    if let Some(upgrade) = upgrade {
        event.note(Note::Upgrade, upgrade.token().to_str().unwrap_or_default());
    }
    event
}

/// To what is about to be connected.
pub(super) fn dialed<B>(permit: &Permit<Dial>, from: &Peer, request: &Request<B>) -> Event {
    let event =
        asked(request, permit.caller(), from, "dial").with(Note::Target, permit.what().target.to_string());
    in_network(event, request)
}

/// Says that a request of somebody known was refused, or that all of the answer to it is ours.
pub(super) async fn answered<B>(
    recorder: &Recorder,
    request: &Request<B>,
    caller: &Caller,
    from: &Peer,
    refusal: Option<&Refusal>,
) -> Result<(), NotRecorded> {
    let verb = request.method().as_str().to_ascii_lowercase();
    let mut event = in_network(asked(request, caller, from, verb), request);
    let (status, end) = match refusal {
        Some(refusal) => (status_of(refusal), EndReason::Refused),
        None => (Status::code(StatusCode::OK.as_u16()), EndReason::Clean),
    };
    let (forbidden, delegated) = (refusal.and_then(forbidden), refusal.and_then(not_delegated));
    let untold = refusal.and_then(untold);
    let is_forbidden = forbidden.is_some() || delegated.is_some() || untold.is_some();
    event.note(Note::Decision, if is_forbidden { "forbid" } else { "allow" });
    if let Some(cluster) = delegated {
        event.note(Note::Cluster, cluster.as_str());
    }
    if let Some(among) = untold.and_then(DialError::among) {
        event.note(Note::Among, among);
    }
    if let Some(forbidden) = forbidden {
        if let Some(rule) = &forbidden.rule {
            event.note(Note::Rule, &**rule);
        }
        event.note(Note::Cluster, forbidden.cluster().as_str());
        event.asserted = forbidden.identity().cloned().map(identity);
    }
    recorder.told(event, Completion::new(Some(status), end)).await
}

/// What policy has refused.
fn forbidden(refusal: &Refusal) -> Option<&Forbidden> {
    if let Refusal::Forbidden(forbidden) | Refusal::NotConnected(DialError::Forbidden(forbidden)) = refusal {
        return Some(forbidden);
    }
    None
}

/// The same event with the network that the request names in place of a cluster, if it does.
fn in_network<B>(event: Event, request: &Request<B>) -> Event {
    if request.method() != Method::CONNECT {
        return event;
    }
    match connect::network(request) {
        Ok(Some(network)) => event.with(Note::Network, network.as_str()),
        Ok(None) | Err(_) => event,
    }
}

/// Why it was not told which cluster is meant, if it was that.
fn untold(refusal: &Refusal) -> Option<&DialError> {
    let Refusal::NotConnected(fault) = refusal else { return None };
    matches!(fault, DialError::Ambiguous(..) | DialError::NotFound(_)).then_some(fault)
}

/// The cluster of what the cluster that is asked about callers has refused.
fn not_delegated(refusal: &Refusal) -> Option<&ClusterId> {
    if let Refusal::NotDelegated(NotDelegated::Forbidden { cluster, .. })
    | Refusal::NotConnected(DialError::NotDelegated(NotDelegated::Forbidden { cluster, .. })) = refusal
    {
        return Some(cluster);
    }
    None
}

/// A refusal as the log has it.
pub(super) fn status_of(refusal: &Refusal) -> Status {
    Status { code: refusal.status().as_u16(), reason: refusal.cause() }
}
