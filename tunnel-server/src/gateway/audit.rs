//! The audit events of requests to the gateway.

mod body;
mod event;

use audit::{Annotation, AuditError, Completion, EndReason, Event, Status};
use http::{Method, Request, StatusCode};
use policy::action::Verb;
use proto::ClusterId;
use proto::upgrade_protocol::UpgradeProtocol;
use proto::wire::Assert;

use super::connect_target::named_network;
use super::peer::Peer;
use super::refusal::Refusal;
use crate::authz::{Dial, Forbidden, NotDelegated, Permit};
use crate::dialing::DialError;
use crate::exchanges::audit::AuditLog;
use crate::identity::Caller;

pub(super) use body::AuditedBody;
pub(super) use event::why;
use event::{caller_event, identity, object};

/// The intent of a request for a cluster, with the identity that is asserted there, if one is.
pub(super) fn request_intent<B>(
    permit: &Permit,
    asserted: Option<Assert>,
    from: &Peer,
    upgrade: Option<UpgradeProtocol>,
    request: &Request<B>,
) -> Event {
    let action = permit.action();
    let mut event = caller_event(request, permit.caller(), from, action.verb().as_str());
    event.object = object(action);
    event.impersonated = asserted.map(identity);
    if let Some(upgrade) = upgrade {
        event.annotate(Annotation::Upgrade, upgrade.token().to_str().unwrap_or_default());
    }
    event
}

/// The intent of a watch of the list of clusters.
pub(super) fn list_watch_intent<B>(caller: &Caller, from: &Peer, request: &Request<B>) -> Event {
    caller_event(request, caller, from, Verb::Watch.as_str())
}

/// The intent of a connection to a target.
pub(super) fn dial_intent<B>(permit: &Permit<Dial>, from: &Peer, request: &Request<B>) -> Event {
    let event = caller_event(request, permit.caller(), from, "dial")
        .with(Annotation::Target, permit.what().target.to_string());
    with_network(event, request)
}

/// Writes the entry of an authenticated request that this server answers by itself: with `refusal`, or else
/// with a list.
///
/// # Errors
/// The audit log cannot be written.
pub(super) async fn write_answered<B>(
    audit_log: &AuditLog,
    request: &Request<B>,
    caller: &Caller,
    from: &Peer,
    refusal: Option<&Refusal>,
) -> Result<(), AuditError> {
    let verb = request.method().as_str().to_ascii_lowercase();
    let mut event = with_network(caller_event(request, caller, from, verb), request);
    let (status, end) = match refusal {
        Some(refusal) => (status_of(refusal), EndReason::Refused),
        None => (Status::code(StatusCode::OK.as_u16()), EndReason::Clean),
    };
    let (forbidden, delegated) = (refusal.and_then(forbidden), refusal.and_then(forbidding_cluster));
    let unresolved = refusal.and_then(unresolved_target);
    let is_forbidden = forbidden.is_some() || delegated.is_some() || unresolved.is_some();
    event.annotate(Annotation::Decision, if is_forbidden { "forbid" } else { "allow" });
    if let Some(cluster) = delegated {
        event.annotate(Annotation::Cluster, cluster.as_str());
    }
    if let Some(among) = unresolved.and_then(DialError::among) {
        event.annotate(Annotation::Among, among);
    }
    if let Some(forbidden) = forbidden {
        if let Some(rule) = &forbidden.rule {
            event.annotate(Annotation::Rule, &**rule);
        }
        event.annotate(Annotation::Cluster, forbidden.cluster().as_str());
        event.impersonated = forbidden.identity().cloned().map(identity);
    }
    audit_log.write_completed(event, Completion::new(Some(status), end)).await
}

/// The decision of the policy, if it is what refused.
fn forbidden(refusal: &Refusal) -> Option<&Forbidden> {
    if let Refusal::Forbidden(forbidden) | Refusal::DialError(DialError::Forbidden(forbidden)) = refusal {
        return Some(forbidden);
    }
    None
}

/// Adds the network that a CONNECT names instead of a cluster, if it names one.
fn with_network<B>(event: Event, request: &Request<B>) -> Event {
    if request.method() != Method::CONNECT {
        return event;
    }
    match named_network(request) {
        Ok(Some(network)) => event.with(Annotation::Network, network.as_str()),
        Ok(None) | Err(_) => event,
    }
}

/// The fault of a target that belongs to no cluster or to several, if that is what refused.
fn unresolved_target(refusal: &Refusal) -> Option<&DialError> {
    let Refusal::DialError(fault) = refusal else { return None };
    matches!(fault, DialError::Ambiguous(..) | DialError::NotFound(_)).then_some(fault)
}

/// The cluster for which the cluster of `policy.delegation` has refused.
fn forbidding_cluster(refusal: &Refusal) -> Option<&ClusterId> {
    if let Refusal::NotDelegated(NotDelegated::Forbidden { cluster, .. })
    | Refusal::DialError(DialError::NotDelegated(NotDelegated::Forbidden { cluster, .. })) = refusal
    {
        return Some(cluster);
    }
    None
}

/// The status of a refusal in the audit log.
pub(super) fn status_of(refusal: &Refusal) -> Status {
    let facts = refusal.facts();
    Status { code: facts.status.as_u16(), reason: facts.cause }
}
