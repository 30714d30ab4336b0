//! The callers' door: who asks, what for, whether they may, through which tunnel, and then the exchange itself.

mod audit;
mod body;
mod clusters;
mod connect;
mod connection;
mod cross_origin;
mod disconnect;
mod entry_point;
mod forward;
mod guarded_body;
mod head_timeout;
mod linger;
mod login_throttle;
mod low_priority;
mod park_timeout;
mod refusal;
mod retry;
mod stack;
mod upgrade_pipe;
mod watch;

use std::sync::Arc;
use std::time::SystemTime;

use ::audit::{Log, Why};
use daemon::Scope;
use daemon::metrics::exchanges::Exchanges;
use http::header::{AUTHORIZATION, CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use policy::ClusterFacts;
use policy::action::{Action, Asked, Head, Names};
use proto::headers::{self, HeaderFault};
use proto::upgrade::Protocol;
use proto::wire::Assert;
use proto::wire::http_open::Identity;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::{Span, debug, field};

use crate::assertion::Assertions;
use crate::config::{self, Limits, PARKED_MAX, Parking};
use crate::dialing::{self, Dials, NotConnected, reason};
use crate::exchanges::audit::{AuditLog, Audited};
use crate::exchanges::slow_readers::SlowReaders;
use crate::exchanges::{ExchangeTable, RunningExchange};
use crate::identity::{Authenticated, Authenticator, Caller, NotAuthenticated};
use crate::metrics;
use crate::permit::{Delegation, Permit, Policy};
use crate::registry::{self, Registry};
use crate::shares::{EXCHANGES_MAX, Kind, Limit, Shares, Use};
use audit::{AuditedBody, end_of, status_of};
use body::AnswerBody;
use forward::{ForwardContext, OpenedExchange, RequestBody};
use login_throttle::LoginThrottle;
use park_timeout::{ParkTimeout, ParkWait};
use stack::CallerBody;
use watch::{ResumableWatch, WatchResources};

pub use connect::ConnectRequestError;
pub use connection::Peer;
pub use cross_origin::CrossOriginError;
pub use entry_point::{EntryPoint, EntryPointSlots};
pub use head_timeout::CALLER_SILENCE_MAX;
pub use park_timeout::NotAParkLimit;
pub use refusal::Refusal;

/// The callers' door. Clones are the same door.
#[derive(Clone)]
pub struct Gateway(Arc<GatewayShared>);

/// Who decides about a request before it goes anywhere.
#[derive(Debug)]
pub struct AccessControl {
    /// Who asks.
    pub authenticator: Authenticator,
    /// For which cluster.
    pub names: Names,
    /// Whether it may.
    pub policy: Policy,
    /// Whom else to ask whether it may.
    pub delegation: Delegation,
    /// As whom the cluster sees it.
    pub assertions: Assertions,
    /// And whether that stays so.
    pub exchanges: ExchangeTable,
    /// The origins whose pages may make a browser ask, such as `https://console.example`.
    pub browser_origins: Vec<String>,
}

/// How callers are served.
#[derive(Debug, Clone, Copy)]
pub struct GatewaySettings {
    /// How requests wait for a cluster that is away.
    pub parking: Parking,
    /// How watches outlive that.
    pub watches: config::Watches,
    /// How much one caller and one cluster may take at once.
    pub limits: Limits,
}

struct GatewayShared {
    browser_origins: Arc<[String]>,
    authenticator: Authenticator,
    names: Names,
    policy: Policy,
    delegation: Delegation,
    context: ForwardContext,
    parking: Parking,
    /// What goes on.
    table: ExchangeTable,
    slots: Arc<Semaphore>,
    exchanges: Exchanges,
    shares: Shares,
    login_throttle: LoginThrottle,
    watches: WatchResources,
    dials: Dials,
    recorder: AuditLog,
}

/// A request that may be served, with the proof.
enum Admitted {
    /// `GET /clusters`.
    List,
    /// Everything for a cluster.
    OpenedExchange(Box<AdmittedRequest>),
}

struct AdmittedRequest {
    permit: Permit,
    live: RunningExchange,
    options: RequestOptions,
}

/// How it is to be served.
struct RequestOptions {
    /// With which the caller has proved who it is, where its certificate has not.
    authorization: Option<HeaderValue>,
    upgrade: Option<Protocol>,
    /// Whether its own credential passes through to the cluster: it is asked once, now or not at all.
    passes_through: bool,
}

impl Gateway {
    /// A door for callers whom `admission` admits, to clusters that `registry` reaches, as `terms` say. What cannot be recorded
    /// in `log` is not served.
    #[must_use]
    pub fn new(
        admission: AccessControl,
        registry: Registry,
        terms: GatewaySettings,
        log: Log,
        scope: Scope,
    ) -> Self {
        let GatewaySettings { parking, watches, limits } = terms;
        let AccessControl {
            authenticator,
            names,
            policy,
            delegation,
            assertions,
            exchanges: table,
            browser_origins,
        } = admission;
        scope.attend(table.clone().enforce());
        scope.attend(table.clone().reauthorize());
        let slots = Arc::new(Semaphore::new(EXCHANGES_MAX));
        metrics::describe_refusals(&Refusal::CAUSES);
        metrics::describe_refusals(&NotConnected::CAUSES);
        let slow_readers = SlowReaders::new();
        scope.attend(slow_readers.clone().end_excess());
        let recorder = AuditLog::new(log, scope.clone());
        scope.attend(recorder.clone().watch(slow_readers.clone()));
        let places = registry::Places::new(parking.per_cluster, PARKED_MAX);
        let shares = Shares::new(limits);
        let dials = Dials::new(dialing::Parts {
            shares: shares.clone(),
            registry: registry.clone(),
            policy: policy.clone(),
            delegation: delegation.clone(),
            table: table.clone(),
            recorder: recorder.clone(),
            stalls: slow_readers.clone(),
            places: places.clone(),
            patience: parking.limit,
            scope: scope.clone(),
        });
        let context = ForwardContext { registry, assertions, places, slow_readers, scope };
        Self(Arc::new(GatewayShared {
            browser_origins: browser_origins.into(),
            authenticator,
            names,
            policy,
            delegation,
            context,
            parking,
            table,
            slots,
            exchanges: metrics::exchanges(),
            shares,
            login_throttle: LoginThrottle::new(limits.source.failed_logins),
            watches: WatchResources::new(watches),
            dials,
            recorder,
        }))
    }

    /// What connects callers to targets, for other doors: within the limits of this one.
    #[must_use]
    pub fn dials(&self) -> Dials {
        self.0.dials.clone()
    }

    /// The places in which requests wait for clusters that are away.
    #[must_use]
    pub fn places(&self) -> registry::Places {
        self.0.context.places.clone()
    }

    /// How much of each limit of callers and clusters is used.
    #[must_use]
    pub fn uses(&self) -> Vec<Use> {
        let max = self.0.shares.limits().source.failed_logins as usize;
        let most = self.0.login_throttle.most(std::time::Instant::now());
        let of_sources = Use { limit: Limit::SourceFailures(0).as_str(), max, most };
        [of_sources].into_iter().chain(self.0.shares.uses()).collect()
    }

    /// Serves one request. Whatever goes wrong before the answer's head becomes a `Status`; what goes wrong after it
    /// breaks the body off.
    async fn serve(&self, peer: &Arc<Peer>, request: Request<CallerBody>) -> Response<AnswerBody> {
        let slot = request.body().guard().clone();
        let connects = request.method() == Method::CONNECT;
        let asks_upgrade = request.headers().contains_key(UPGRADE) || connects;
        let served = self.served(peer, request).await;
        let record = slot.audit_entry();
        if let (Err(refusal), Some(record)) = (&served, record) {
            record.set_refused(status_of(refusal), end_of(refusal));
        }
        let mut response = served.unwrap_or_else(|refusal| {
            let mut answer = refused(&refusal);
            if connects {
                reason::say(&refusal, &mut answer);
            }
            answer
        });
        if disconnect::is_protocol_switch(connects, response.status()) {
            // What comes now is the pipe's.
            return response;
        }
        if asks_upgrade {
            // What stands behind the request was meant for another protocol, and is no next request.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let Some(record) = record.cloned() else { return response };
        record.set_status(response.status());
        response.map(|body| AnswerBody::Audited(Box::new(AuditedBody::new(body, record))))
    }

    async fn served(
        &self,
        peer: &Arc<Peer>,
        mut request: Request<CallerBody>,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let recorder = &self.0.recorder;
        let now = SystemTime::now();
        let known = self.known(peer, request.headers(), now).await?;
        let caller = known.claimed();
        // Before anything is written of it: who asks too fast fills no log.
        self.0.shares.ask(caller)?;
        if request.method() == Method::CONNECT {
            return self.connect(&known, peer, request).await;
        }
        if peer.entry_point.is_some() {
            let refusal = ConnectRequestError::NothingElse.into();
            audit::answered(recorder, &request, caller, peer, Some(&refusal)).await?;
            return Err(refusal);
        }
        let sort = request.body().guard().clone();
        match self.admit(&known, peer, &mut request).await {
            Ok(Admitted::List) => {
                sort.active().set_sort("list");
                audit::answered(recorder, &request, caller, peer, None).await?;
                Ok(clusters::list(&self.0.context.registry, &self.0.policy.edition(), caller))
            }
            Ok(Admitted::OpenedExchange(admitted)) => {
                sort.active().set_sort(admitted.permit.action().verb().as_str());
                self.exchange(peer, *admitted, request).await
            }
            Err(refusal) => {
                audit::answered(recorder, &request, caller, peer, Some(&refusal)).await?;
                Err(refusal)
            }
        }
    }

    /// Who asks, unless too many of its source have failed to say so of late.
    async fn known(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        now: SystemTime,
    ) -> Result<Authenticated, Refusal> {
        if let Some(entry_point) = &peer.entry_point {
            // Whoever came by it is who it is for: nothing that is sent makes another of it.
            return Ok(entry_point.principal.clone());
        }
        let GatewayShared { login_throttle, recorder, authenticator, shares, .. } = &*self.0;
        let (source, certified) = (peer.address.ip(), peer.certified.as_ref());
        if !login_throttle.is_allowed(source, certified.is_some(), headers, std::time::Instant::now()) {
            recorder.count_unauthenticated(source, Why::Refused);
            peer.low_priority.switch();
            return Err(shares.refused(Limit::SourceFailures(shares.limits().source.failed_logins)).into());
        }
        match authenticator.authenticate(certified, headers, now).await {
            Ok(known) => {
                if certified.is_none() {
                    login_throttle.succeeded(headers);
                }
                Ok(known)
            }
            Err(error) => {
                recorder.count_unauthenticated(source, audit::why(&error));
                // Who cannot be asked has not said no.
                if !matches!(error, NotAuthenticated::Away(_)) {
                    login_throttle.failed(source, std::time::Instant::now());
                }
                Err(error.into())
            }
        }
    }

    /// Each step takes the proof of the one before; nothing is sent before the last. ConnectionWaits only for whom else it asks.
    async fn admit(
        &self,
        known: &Authenticated,
        peer: &Peer,
        request: &mut Request<CallerBody>,
    ) -> Result<Admitted, Refusal> {
        let inner = &self.0;
        inner.table.check_revoked(known.claimed())?;
        let authorization = request.headers().get(AUTHORIZATION).cloned();
        let upgrade = Protocol::asked(request.method(), request.headers())?;
        // For its caller alone: what crosses the tunnel of it is said in the stream's first frame.
        let assumed = headers::take_impersonation(request.headers_mut());
        headers::clean_request(request.headers_mut())?;
        let (version, method) = (request.version(), request.method());
        let server_name = peer.server_name.as_deref();
        let head = Head::received(server_name, version, method, request.uri(), request.headers(), upgrade)?;
        match Action::parse(&inner.names, &head)? {
            // The list is the caller's own.
            Asked::ClusterList if assumed.is_some() => Err(impersonation().into()),
            Asked::ClusterList => known.alone().map(|_| Admitted::List).map_err(Refusal::from),
            Asked::Cluster(action) => {
                let passes_through = inner.context.assertions.pass_through(action.cluster());
                let caller = match (passes_through, &assumed) {
                    (false, _) => known.alone()?,
                    (true, None) => known.by_certificate()?,
                    // Nobody is asserted there, and so nobody else either.
                    (true, Some(_)) => return Err(impersonation().into()),
                };
                let permit = self.authorize(caller, assumed, action).await?;
                let live = inner.table.enter(&permit)?;
                if let Some(credential) = authorization.as_ref().filter(|_| passes_through) {
                    request.headers_mut().insert(AUTHORIZATION, headers::secret(credential));
                }
                let options = RequestOptions { authorization, upgrade, passes_through };
                Ok(Admitted::OpenedExchange(Box::new(AdmittedRequest { permit, live, options })))
            }
        }
    }

    /// The policy's verdict, and that of whom else is asked. The log learns which rule made it, the caller does not.
    async fn authorize(
        &self,
        caller: &Caller,
        assumed: Option<Assert>,
        action: Action,
    ) -> Result<Permit, Refusal> {
        // What the server's own store says, and nothing that an agent does.
        let labels = self.0.context.registry.directory().labels(action.cluster());
        let verdict = self.0.policy.edition().authorize(caller, assumed, action, &ClusterFacts { labels });
        let allowed =
            verdict.inspect_err(|forbidden| debug!(rule = forbidden.rule.as_deref(), "policy forbids it"))?;
        Ok(self.0.delegation.grant(allowed).await?)
    }

    async fn exchange(
        &self,
        peer: &Arc<Peer>,
        admitted: AdmittedRequest,
        request: Request<CallerBody>,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let AdmittedRequest { permit, live, options } = admitted;
        Span::current().record("cluster", field::display(permit.action().cluster()));
        let assertions = &self.0.context.assertions;
        let asserted = match assertions.of(permit.caller(), permit.assumed(), permit.action().cluster()) {
            Ok(Identity::Assert(identity)) => Some(identity),
            Ok(Identity::PassThrough(_)) | Err(_) => None,
        };
        let upgrade = options.upgrade;
        let event = audit::intended(&permit, asserted, peer, upgrade, &request);
        let audited = self.0.recorder.write_intent((permit, live), event).await?;
        request.body().guard().set_audit_entry(audited.entry().clone());
        let ended = audited.entry().terminated();
        // Both arms are cancel-safe: an exchange that is dropped is aborted.
        tokio::select! {
            served = self.audited(peer, audited, options, request) => served,
            why = ended => Err(why.into()),
        }
    }

    /// What the log knows of.
    async fn audited(
        &self,
        peer: &Arc<Peer>,
        audited: Audited,
        RequestOptions { authorization, upgrade, passes_through }: RequestOptions,
        request: Request<CallerBody>,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let (query, now) = (audited.permit().action().path().query(), Instant::now());
        let park_timeout = ParkTimeout::of(&self.0.parking, query, request.headers(), now)?;
        let wait =
            ParkWait::new(if passes_through { park_timeout.none(now) } else { park_timeout }, &peer.waits);
        let (caller, action) = (audited.permit().caller(), audited.permit().action());
        let share = self.0.shares.take(caller, action.cluster(), Kind::of(action, upgrade))?;
        let mut share = share.seated().await?;
        let context = &self.0.context;
        if let Some(protocol) = upgrade {
            let exchange = OpenedExchange::begin(audited, &request, context, wait).await?;
            return exchange.upgrade(protocol, request, share).await;
        }
        if passes_through {
            let exchange = OpenedExchange::begin(audited, &request, context, wait).await?;
            let answered = exchange.ask(request.map(RequestBody::Caller)).await?;
            share.begun();
            return Ok(answered.passed(share));
        }
        let mut watch = ResumableWatch::of(self, peer, authorization, &audited, &request);
        let answered = if retry::is_repeatable(audited.permit(), &request) {
            let path = watch
                .as_mut()
                .map_or_else(|| audited.permit().action().path().clone(), ResumableWatch::begin);
            retry::read(audited, request, path, context, wait).await?
        } else {
            OpenedExchange::begin(audited, &request, context, wait)
                .await?
                .ask(request.map(RequestBody::Caller))
                .await?
        };
        share.begun();
        Ok(match watch {
            Some(watch) => watch.follow(answered, share),
            None => answered.passed(share),
        })
    }
}

/// Impersonation by a caller where there is none.
fn impersonation() -> HeaderFault {
    HeaderFault::Impersonation("Impersonate-User".to_owned())
}

/// The answer to a request that is not served.
fn refused(refusal: &Refusal) -> Response<AnswerBody> {
    debug!(%refusal, "refused");
    metrics::refused(refusal.cause());
    refusal.response().map(AnswerBody::text)
}
