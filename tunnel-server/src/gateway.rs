//! The callers' door: who asks, what for, whether they may, through which tunnel, and then the exchange itself.

mod aside;
mod body;
mod browsers;
mod clusters;
mod connect;
mod connection;
mod forward;
mod hangup;
mod head;
mod held;
mod linger;
mod patience;
mod recorded;
mod refusal;
mod retry;
mod stack;
mod strangers;
mod upgrade;
mod watch;
mod way_in;

use std::sync::Arc;
use std::time::SystemTime;

use audit::{Log, Why};
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
use crate::config::{self, LimitsConfig, PARKED_MAX, Parking};
use crate::dialing::{self, Dials, NotConnected, reason};
use crate::exchanges::record::{Recorded, Recorder};
use crate::exchanges::stalls::Stalls;
use crate::exchanges::{Live, Table};
use crate::identity::{Authenticated, Authenticator, Caller, NotAuthenticated};
use crate::metrics;
use crate::permit::{Delegation, Permit, Policy};
use crate::registry::{self, Registry};
use crate::shares::{EXCHANGES_MAX, Kind, Limit, Shares, Use};
use body::AnswerBody;
use forward::{Exchange, Passage, Sent};
use patience::{Patience, Wait};
use recorded::{RecordedBody, end_of, status_of};
use stack::CallerBody;
use strangers::Strangers;
use watch::{Watch, Watches};

pub use browsers::BrowserFault;
pub use connect::ConnectFault;
pub use connection::Peer;
pub use head::CALLER_SILENCE_MAX;
pub use patience::NotAParkLimit;
pub use refusal::Refusal;
pub use way_in::{Places, WayIn};

/// The callers' door. Clones are the same door.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

/// Who decides about a request before it goes anywhere.
#[derive(Debug)]
pub struct Admission {
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
    pub exchanges: Table,
    /// The origins whose pages may make a browser ask, such as `https://console.example`.
    pub browser_origins: Vec<String>,
}

/// How callers are served.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// How requests wait for a cluster that is away.
    pub parking: Parking,
    /// How watches outlive that.
    pub watches: config::WatchesConfig,
    /// How much one caller and one cluster may take at once.
    pub limits: LimitsConfig,
}

struct Inner {
    browser_origins: Arc<[String]>,
    authenticator: Authenticator,
    names: Names,
    policy: Policy,
    delegation: Delegation,
    passage: Passage,
    parking: Parking,
    /// What goes on.
    table: Table,
    slots: Arc<Semaphore>,
    exchanges: Exchanges,
    shares: Shares,
    strangers: Strangers,
    watches: Watches,
    dials: Dials,
    recorder: Recorder,
}

/// A request that may be served, with the proof.
enum Admitted {
    /// `GET /clusters`.
    List,
    /// Everything for a cluster.
    Exchange(Box<ForCluster>),
}

struct ForCluster {
    permit: Permit,
    live: Live,
    manner: Manner,
}

/// How it is to be served.
struct Manner {
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
    pub fn new(admission: Admission, registry: Registry, terms: Terms, log: Log, scope: Scope) -> Self {
        let Terms { parking, watches, limits } = terms;
        let Admission {
            authenticator,
            names,
            policy,
            delegation,
            assertions,
            exchanges: table,
            browser_origins,
        } = admission;
        scope.attend(table.clone().keep());
        scope.attend(table.clone().keep_asking());
        let slots = Arc::new(Semaphore::new(EXCHANGES_MAX));
        metrics::describe_refusals(&Refusal::CAUSES);
        metrics::describe_refusals(&NotConnected::CAUSES);
        let stalls = Stalls::new();
        scope.attend(stalls.clone().watch());
        let recorder = Recorder::new(log, scope.clone());
        scope.attend(recorder.clone().watch(stalls.clone()));
        let places = registry::Places::new(parking.per_cluster, PARKED_MAX);
        let shares = Shares::new(limits);
        let dials = Dials::new(dialing::Parts {
            shares: shares.clone(),
            registry: registry.clone(),
            policy: policy.clone(),
            delegation: delegation.clone(),
            table: table.clone(),
            recorder: recorder.clone(),
            stalls: stalls.clone(),
            places: places.clone(),
            patience: parking.limit,
            scope: scope.clone(),
        });
        let passage = Passage { registry, assertions, places, stalls, scope };
        Self(Arc::new(Inner {
            browser_origins: browser_origins.into(),
            authenticator,
            names,
            policy,
            delegation,
            passage,
            parking,
            table,
            slots,
            exchanges: metrics::exchanges(),
            shares,
            strangers: Strangers::new(limits.source.failed_logins),
            watches: Watches::new(watches),
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
        self.0.passage.places.clone()
    }

    /// How much of each limit of callers and clusters is used.
    #[must_use]
    pub fn uses(&self) -> Vec<Use> {
        let max = self.0.shares.limits().source.failed_logins as usize;
        let most = self.0.strangers.most(std::time::Instant::now());
        let of_sources = Use { limit: Limit::SourceFailures(0).as_str(), max, most };
        [of_sources].into_iter().chain(self.0.shares.uses()).collect()
    }

    /// Serves one request. Whatever goes wrong before the answer's head becomes a `Status`; what goes wrong after it
    /// breaks the body off.
    async fn serve(&self, peer: &Arc<Peer>, request: Request<CallerBody>) -> Response<AnswerBody> {
        let slot = request.body().held().clone();
        let connects = request.method() == Method::CONNECT;
        let asks_upgrade = request.headers().contains_key(UPGRADE) || connects;
        let served = self.served(peer, request).await;
        let record = slot.record();
        if let (Err(refusal), Some(record)) = (&served, record) {
            record.refused(status_of(refusal), end_of(refusal));
        }
        let mut response = served.unwrap_or_else(|refusal| {
            let mut answer = refused(&refusal);
            if connects {
                reason::say(&refusal, &mut answer);
            }
            answer
        });
        if hangup::is_handed_over(connects, response.status()) {
            // What comes now is the pipe's.
            return response;
        }
        if asks_upgrade {
            // What stands behind the request was meant for another protocol, and is no next request.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let Some(record) = record.cloned() else { return response };
        record.answered(response.status());
        response.map(|body| AnswerBody::Recorded(Box::new(RecordedBody::new(body, record))))
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
        if peer.way_in.is_some() {
            let refusal = ConnectFault::NothingElse.into();
            recorded::answered(recorder, &request, caller, peer, Some(&refusal)).await?;
            return Err(refusal);
        }
        let sort = request.body().held().clone();
        match self.admit(&known, peer, &mut request).await {
            Ok(Admitted::List) => {
                sort.active().set_sort("list");
                recorded::answered(recorder, &request, caller, peer, None).await?;
                Ok(clusters::list(&self.0.passage.registry, &self.0.policy.edition(), caller))
            }
            Ok(Admitted::Exchange(admitted)) => {
                sort.active().set_sort(admitted.permit.action().verb().as_str());
                self.exchange(peer, *admitted, request).await
            }
            Err(refusal) => {
                recorded::answered(recorder, &request, caller, peer, Some(&refusal)).await?;
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
        if let Some(way_in) = &peer.way_in {
            // Whoever came by it is who it is for: nothing that is sent makes another of it.
            return Ok(way_in.principal.clone());
        }
        let Inner { strangers, recorder, authenticator, shares, .. } = &*self.0;
        let (source, certified) = (peer.address.ip(), peer.certified.as_ref());
        if !strangers.may_try(source, certified.is_some(), headers, std::time::Instant::now()) {
            recorder.stranger(source, Why::Refused);
            peer.aside.go();
            return Err(shares.refused(Limit::SourceFailures(shares.limits().source.failed_logins)).into());
        }
        match authenticator.authenticate(certified, headers, now).await {
            Ok(known) => {
                if certified.is_none() {
                    strangers.succeeded(headers);
                }
                Ok(known)
            }
            Err(error) => {
                recorder.stranger(source, recorded::why(&error));
                // Who cannot be asked has not said no.
                if !matches!(error, NotAuthenticated::Unreachable(_)) {
                    strangers.failed(source, std::time::Instant::now());
                }
                Err(error.into())
            }
        }
    }

    /// Each step takes the proof of the one before; nothing is sent before the last. Waits only for whom else it asks.
    async fn admit(
        &self,
        known: &Authenticated,
        peer: &Peer,
        request: &mut Request<CallerBody>,
    ) -> Result<Admitted, Refusal> {
        let inner = &self.0;
        inner.table.admits(known.claimed())?;
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
            Asked::ClusterList => {
                known.require_single_credential().map(|_| Admitted::List).map_err(Refusal::from)
            }
            Asked::Cluster(action) => {
                let passes_through = inner.passage.assertions.pass_through(action.cluster());
                let caller = match (passes_through, &assumed) {
                    (false, _) => known.require_single_credential()?,
                    (true, None) => known.require_certificate()?,
                    // Nobody is asserted there, and so nobody else either.
                    (true, Some(_)) => return Err(impersonation().into()),
                };
                let permit = self.authorize(caller, assumed, action).await?;
                let live = inner.table.enter(&permit)?;
                if let Some(credential) = authorization.as_ref().filter(|_| passes_through) {
                    request.headers_mut().insert(AUTHORIZATION, headers::secret(credential));
                }
                let manner = Manner { authorization, upgrade, passes_through };
                Ok(Admitted::Exchange(Box::new(ForCluster { permit, live, manner })))
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
        let labels = self.0.passage.registry.directory().labels(action.cluster());
        let verdict = self.0.policy.edition().authorize(caller, assumed, action, &ClusterFacts { labels });
        let allowed =
            verdict.inspect_err(|forbidden| debug!(rule = forbidden.rule.as_deref(), "policy forbids it"))?;
        Ok(self.0.delegation.grant(allowed).await?)
    }

    async fn exchange(
        &self,
        peer: &Arc<Peer>,
        admitted: ForCluster,
        request: Request<CallerBody>,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let ForCluster { permit, live, manner } = admitted;
        Span::current().record("cluster", field::display(permit.action().cluster()));
        let assertions = &self.0.passage.assertions;
        let asserted = match assertions.of(permit.caller(), permit.assumed(), permit.action().cluster()) {
            Ok(Identity::Assert(identity)) => Some(identity),
            Ok(Identity::PassThrough(_)) | Err(_) => None,
        };
        let upgrade = manner.upgrade;
        let event = recorded::intended(&permit, asserted, peer, upgrade, &request);
        let recorded = self.0.recorder.intent((permit, live), event).await?;
        request.body().held().keep(recorded.record().clone());
        let ended = recorded.record().ended();
        // Both arms are cancel-safe: an exchange that is dropped is aborted.
        tokio::select! {
            served = self.recorded(peer, recorded, manner, request) => served,
            why = ended => Err(why.into()),
        }
    }

    /// What the log knows of.
    async fn recorded(
        &self,
        peer: &Arc<Peer>,
        recorded: Recorded,
        Manner { authorization, upgrade, passes_through }: Manner,
        request: Request<CallerBody>,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let (query, now) = (recorded.permit().action().path().query(), Instant::now());
        let patience = Patience::of(&self.0.parking, query, request.headers(), now)?;
        let wait = Wait::new(if passes_through { patience.none(now) } else { patience }, &peer.waits);
        let (caller, action) = (recorded.permit().caller(), recorded.permit().action());
        let share = self.0.shares.take(caller, action.cluster(), Kind::of(action, upgrade))?;
        let mut share = share.seated().await?;
        let passage = &self.0.passage;
        if let Some(protocol) = upgrade {
            let exchange = Exchange::begin(recorded, &request, passage, wait).await?;
            return exchange.upgrade(protocol, request, share).await;
        }
        if passes_through {
            let exchange = Exchange::begin(recorded, &request, passage, wait).await?;
            let answered = exchange.ask(request.map(Sent::Caller)).await?;
            share.begun();
            return Ok(answered.passed(share));
        }
        let mut watch = Watch::of(self, peer, authorization, &recorded, &request);
        let answered = if retry::is_repeatable(recorded.permit(), &request) {
            let path = watch.as_mut().map_or_else(|| recorded.permit().action().path().clone(), Watch::begin);
            retry::read(recorded, request, path, passage, wait).await?
        } else {
            Exchange::begin(recorded, &request, passage, wait).await?.ask(request.map(Sent::Caller)).await?
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
