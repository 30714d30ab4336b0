//! The steps of a request: authenticate, admit, authorize, begin, forward. Each step takes the proof of the
//! one before.

use std::sync::Arc;
use std::time::SystemTime;

use ::audit::{AuditError, FailureCause};
use http::header::{AUTHORIZATION, CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use policy::ClusterFacts;
use policy::action::{Action, Head, ListRead, ParsedRequest};
use proto::headers::{self, HeaderError};
use proto::upgrade_protocol::UpgradeProtocol;
use proto::wire::Assert;
use proto::wire::http_open::Identity;
use summary::Question;
use tokio::time::Instant;
use tracing::{Span, debug, field};

use super::audit::{self, AuditedBody, status_of};
use super::body::{AnswerBody, passed, refused};
use super::cluster_sets::{AdmittedSetRead, report_of_one};
use super::connect::AdmittedDial;
use super::connect_target::ConnectRequestError;
use super::disconnect;
use super::guarded_body::CallerBody;
use super::peer::Peer;
use super::refusal::Refusal;
use super::state::{Gateway, GatewayShared};
use super::summaries;
use super::upgrade_pipe::UpgradeContext;
use super::watch::resumable::ResumableWatch;
use crate::authz::Permit;
use crate::dialing::reason_phrase;
use crate::exchanges::RunningExchange;
use crate::exchanges::audit::Audited;
use crate::forwarding::exchange::OpenedExchange;
use crate::forwarding::park_timeout::{ParkTimeout, ParkWait};
use crate::forwarding::request_body::RequestBody;
use crate::forwarding::retry;
use crate::forwarding::send_again;
use crate::identity::{Authenticated, Caller, Certified, NotAuthenticated};
use crate::limits::{ExchangeKind, LimitExceeded};

/// A request that may be served, with the proof.
enum Admitted {
    /// `GET /clusters`, which this server answers itself.
    ClusterList(Box<ListRead>),
    /// A read of a cluster set, whose clusters are still to be permitted one by one.
    SetRead(Box<AdmittedSetRead>),
    /// A request for a cluster.
    Exchange(Box<AdmittedExchange>),
    /// A connection to a target.
    Dial(Box<AdmittedDial>),
}

/// A request for a cluster, with its permit.
struct AdmittedExchange {
    permit: Permit,
    exchange: RunningExchange,
    options: RequestOptions,
}

/// The options of a request for a cluster.
struct RequestOptions {
    /// The caller's `Authorization`, with which a watch is authenticated again when it is resumed.
    authorization: Option<HeaderValue>,
    upgrade: Option<UpgradeProtocol>,
    /// True if the caller's own credential passes through to the cluster. Such a request is sent once and
    /// never waits.
    passes_through: bool,
    /// The question by which the agent reduces the list, if the caller wants a summary.
    question: Option<Question>,
}

impl Gateway {
    /// Answers one request. A failure before the head of the answer becomes a `Status`; a later one breaks
    /// the body off.
    pub(super) async fn respond(
        &self,
        peer: &Arc<Peer>,
        request: Request<CallerBody>,
    ) -> Response<AuditedBody> {
        let slot = request.body().guard().clone();
        let is_connect = request.method() == Method::CONNECT;
        let asks_upgrade = request.headers().contains_key(UPGRADE) || is_connect;
        let served = self.serve(peer, request).await;
        if served.is_err()
            && let Some(caller) = peer.certified.as_ref().and_then(Certified::caller)
            && self.0.exchanges.check_revoked(caller).is_err()
        {
            // Every later request would be refused, too.
            peer.end.request();
        }
        let entry = slot.audit_entry();
        if let (Err(refusal), Some(entry)) = (&served, entry) {
            entry.set_refused(status_of(refusal), refusal.facts().audit_end);
        }
        let mut response = served.unwrap_or_else(|refusal| {
            let mut answer = refused(&refusal);
            if is_connect {
                reason_phrase::set(&refusal, &mut answer);
            }
            answer
        });
        if disconnect::is_protocol_switch(is_connect, response.status()) {
            // The bytes after this answer belong to the pipe, which audits itself.
            return response.map(AuditedBody::from);
        }
        if asks_upgrade {
            // The bytes after the request were meant for another protocol and are no next request.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let Some(entry) = entry.cloned() else { return response.map(AuditedBody::from) };
        entry.set_status(response.status());
        response.map(|body| AuditedBody::new(body, entry))
    }

    /// Takes a request through its steps. Every request of an authenticated caller leaves it in one of three
    /// ways: as an exchange or a watch of clusters or a dial, which have an audit entry of their own, or by the one exit
    /// below, which writes the entry.
    async fn serve(
        &self,
        peer: &Arc<Peer>,
        mut request: Request<CallerBody>,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let authenticated = self.authenticate(peer, request.headers(), SystemTime::now()).await?;
        let caller = authenticated.claimed();
        if let Some(limited) = peer.end.limited {
            peer.end.request();
            return Err(limited.into());
        }
        // Before the audit log, which a caller that exceeds its rate must not fill.
        self.0.limiter.check_rate(caller)?;
        if request.method() == Method::CONNECT {
            // Two credentials: the one refusal of an authenticated caller that is not in the audit log.
            authenticated.require_single_credential()?;
        }
        let slot = request.body().guard().clone();
        let answered_here = match self.admit(&authenticated, peer, &mut request).await {
            Ok(Admitted::Exchange(admitted)) => {
                slot.active().set_kind(admitted.permit.action().verb().as_str());
                return self.begin(peer, *admitted, request).await;
            }
            Ok(Admitted::Dial(admitted)) => return self.dial(peer, *admitted, request).await,
            Ok(Admitted::SetRead(admitted)) => {
                slot.active().set_kind("list");
                self.read_set(peer, &admitted, &request).await
            }
            Ok(Admitted::ClusterList(read)) if read.is_watch() => {
                slot.active().set_kind("watch");
                match self.watch_clusters(peer, caller, *read, &request).await {
                    Ok(answer) => return Ok(answer),
                    Err(refusal) => Err(refusal),
                }
            }
            Ok(Admitted::ClusterList(read)) => {
                slot.active().set_kind("list");
                Ok(self.list_clusters(caller, &read, request.headers()))
            }
            Err(refusal) => Err(refusal),
        };
        let refusal = answered_here.as_ref().err();
        audit::write_answered(&self.0.audit_log, &request, caller, peer, refusal).await?;
        answered_here
    }

    /// Authenticates the caller, unless too many logins of its source have failed.
    async fn authenticate(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        now: SystemTime,
    ) -> Result<Authenticated, Refusal> {
        if let Some(entry_point) = &peer.entry_point {
            // The entry point fixes the principal. Request headers cannot change it.
            return Ok(entry_point.principal.clone());
        }
        let GatewayShared { login_throttle, audit_log, authenticator, limiter, .. } = &*self.0;
        let (source, certified) = (peer.address.ip(), peer.certified.as_ref());
        if !login_throttle.is_allowed(source, certified.is_some(), headers, std::time::Instant::now()) {
            audit_log.count_unauthenticated(source, FailureCause::Refused);
            peer.low_priority.switch();
            return Err(limiter
                .count_exceeded(LimitExceeded::SourceFailures(limiter.limits().source.failed_logins))
                .into());
        }
        match authenticator.authenticate(certified, headers, now).await {
            Ok(authenticated) => {
                if certified.is_none() {
                    login_throttle.succeeded(headers);
                }
                Ok(authenticated)
            }
            Err(error) => {
                audit_log.count_unauthenticated(source, audit::why(&error));
                // An unreachable authenticator does not count as a failed login.
                if !matches!(error, NotAuthenticated::Unreachable(_)) {
                    login_throttle.failed(source, std::time::Instant::now());
                }
                Err(error.into())
            }
        }
    }

    /// Reads what the request asks for and has it permitted. Nothing is sent to the cluster before the end of
    /// this step. It waits only for a review by another cluster.
    async fn admit(
        &self,
        authenticated: &Authenticated,
        peer: &Peer,
        request: &mut Request<CallerBody>,
    ) -> Result<Admitted, Refusal> {
        if request.method() == Method::CONNECT {
            let admitted = self.admit_dial(authenticated.require_single_credential()?, peer, request).await?;
            return Ok(Admitted::Dial(Box::new(admitted)));
        }
        if peer.entry_point.is_some() {
            return Err(ConnectRequestError::NothingElse.into());
        }
        self.admit_request(authenticated, peer, request).await
    }

    /// Reads the action of a request and has it permitted.
    async fn admit_request(
        &self,
        authenticated: &Authenticated,
        peer: &Peer,
        request: &mut Request<CallerBody>,
    ) -> Result<Admitted, Refusal> {
        let shared = &self.0;
        shared.exchanges.check_revoked(authenticated.claimed())?;
        let authorization = request.headers().get(AUTHORIZATION).cloned();
        let upgrade = UpgradeProtocol::requested(request.method(), request.headers())?;
        // Impersonation is for this server alone. The first frame of the stream carries the identity across
        // the tunnel.
        let assumed = headers::take_impersonation(request.headers_mut());
        headers::clean_request(request.headers_mut())?;
        let (version, method) = (request.version(), request.method());
        let server_name = peer.server_name.as_deref();
        let head =
            Head::from_request(server_name, version, method, request.uri(), request.headers(), upgrade)?;
        match Action::parse(&shared.names, &head)? {
            // Each caller has its own list.
            ParsedRequest::ClusterList(_) if assumed.is_some() => Err(impersonation().into()),
            ParsedRequest::ClusterList(read) => authenticated
                .require_single_credential()
                .map(|_| Admitted::ClusterList(Box::new(read)))
                .map_err(Refusal::from),
            ParsedRequest::ClusterSet(read) => {
                let caller = authenticated.require_single_credential()?.clone();
                let question = read.reduce().map(Question::parse).transpose()?;
                Ok(Admitted::SetRead(Box::new(AdmittedSetRead { caller, assumed, read: *read, question })))
            }
            ParsedRequest::Cluster(action) => {
                let question = action.reduce().map(Question::parse).transpose()?;
                let passes_through = shared.forwarding.impersonation_rules.pass_through(action.cluster());
                let caller = match (passes_through, &assumed) {
                    (false, _) => authenticated.require_single_credential()?,
                    (true, None) => authenticated.require_certificate()?,
                    // No identity is asserted at that cluster, so none can be assumed either.
                    (true, Some(_)) => return Err(impersonation().into()),
                };
                let permit = self.authorize(caller, assumed, action).await?;
                let exchange = shared.exchanges.enter(&permit)?;
                if let Some(credential) = authorization.as_ref().filter(|_| passes_through) {
                    request.headers_mut().insert(AUTHORIZATION, headers::secret(credential));
                }
                let options = RequestOptions { authorization, upgrade, passes_through, question };
                Ok(Admitted::Exchange(Box::new(AdmittedExchange { permit, exchange, options })))
            }
        }
    }

    /// Asks the policy, and the cluster of `policy.delegation`. The log names the deciding rule, the answer
    /// to the caller does not.
    pub(super) async fn authorize(
        &self,
        caller: &Caller,
        assumed: Option<Assert>,
        action: Action,
    ) -> Result<Permit, Refusal> {
        // Labels come from the server's own store. An agent cannot set them.
        let labels = self.0.forwarding.registry.directory().labels(action.cluster());
        let decision = self.0.policy.snapshot().authorize(caller, assumed, action, &ClusterFacts { labels });
        let allowed = decision
            .inspect_err(|forbidden| debug!(rule = forbidden.rule.as_deref(), "policy forbids it"))?;
        Ok(self.0.delegation.grant(allowed).await?)
    }

    /// Writes the intent to the audit log and forwards the request. Ends early if the exchange is no longer
    /// permitted.
    async fn begin(
        &self,
        peer: &Arc<Peer>,
        admitted: AdmittedExchange,
        request: Request<CallerBody>,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let AdmittedExchange { permit, exchange, options } = admitted;
        Span::current().record("cluster", field::display(permit.action().cluster()));
        let audited = self.record(peer, (permit, exchange), options.upgrade, &request).await?;
        request.body().guard().set_audit_entry(audited.entry().clone());
        let terminated = audited.entry().terminated();
        // Both arms are cancel-safe: an exchange that is dropped is aborted.
        tokio::select! {
            served = self.forward(peer, audited, options, request) => served,
            why = terminated => Err(why.into()),
        }
    }

    /// Writes the intent of a permitted request to the audit log.
    pub(super) async fn record<B>(
        &self,
        peer: &Peer,
        (permit, exchange): (Permit, RunningExchange),
        upgrade: Option<UpgradeProtocol>,
        request: &Request<B>,
    ) -> Result<Audited, AuditError> {
        let impersonation_rules = &self.0.forwarding.impersonation_rules;
        let asserted = match impersonation_rules.identity_for(
            permit.caller(),
            permit.assumed(),
            permit.action().cluster(),
        ) {
            Ok(Identity::Assert(identity)) => Some(identity),
            Ok(Identity::PassThrough(_)) | Err(_) => None,
        };
        let event = audit::request_intent(&permit, asserted, peer, upgrade, request);
        self.0.audit_log.write_intent((permit, exchange), event).await
    }

    /// Forwards an audited request to its cluster, within the limits and once the cluster is connected.
    async fn forward(
        &self,
        peer: &Arc<Peer>,
        audited: Audited,
        RequestOptions { authorization, upgrade, passes_through, question }: RequestOptions,
        request: Request<CallerBody>,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let (query, now) = (audited.permit().action().path().query(), Instant::now());
        let park_timeout = ParkTimeout::parse(&self.0.parking, query, request.headers(), now)?;
        let park_timeout = if passes_through { park_timeout.none(now) } else { park_timeout };
        let wait = ParkWait::new(park_timeout, &peer.waits);
        let (caller, action) = (audited.permit().caller(), audited.permit().action());
        let limit_guard =
            self.0.limiter.admit(caller, action.cluster(), ExchangeKind::from_action(action, upgrade))?;
        let mut limit_guard = limit_guard.wait_for_seat().await?;
        let (context, cluster) = (&self.0.forwarding, action.cluster().clone());
        if let Some(protocol) = upgrade {
            let again_max = if passes_through { 0 } else { send_again::SENT_AGAIN_MAX };
            let forwarding = UpgradeContext { context, wait, again_max };
            return Ok(forwarding.upgrade(audited, protocol, request, limit_guard).await?);
        }
        let (answer, watch) = if passes_through {
            let entry = audited.entry().clone();
            let opened = OpenedExchange::open(audited, &request, context, wait).await?;
            (opened.send(request.map(|body| RequestBody::of_caller(body, &entry))).await?, None)
        } else {
            let mut watch = ResumableWatch::new(self, peer, authorization, &audited, &request);
            let answer = if retry::is_repeatable(audited.permit(), &request) {
                let path = match &mut watch {
                    Some(watch) => watch.begin(),
                    None => audited.permit().action().path().clone(),
                };
                retry::read(audited, request, path, context, wait).await?
            } else {
                send_again::send(audited, request, context, wait).await?
            };
            (answer, watch)
        };
        if let Some(question) = &question {
            let of = (&cluster, &report_of_one(&cluster));
            return Ok(summaries::of_cluster(answer, of, question, limit_guard).await?);
        }
        limit_guard.response_started();
        Ok(match watch {
            Some(watch) => watch.follow(answer, limit_guard),
            None => passed(answer, limit_guard),
        })
    }
}

/// The fault of a request that impersonates where no impersonation is possible.
fn impersonation() -> HeaderError {
    HeaderError::Impersonation("Impersonate-User".to_owned())
}
