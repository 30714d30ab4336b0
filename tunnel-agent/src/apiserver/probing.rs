//! Asks a cluster's API servers whether they are ready, and tells whoever asks them of it when that changes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use bytes::Bytes;
use daemon::Scope;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http::uri::PathAndQuery;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep_until, timeout};
use tracing::{info, warn};

use super::body::{Progress, RequestBody};
use super::connection::{self, Link, Use};
use super::endpoints::{Endpoints, PROBE_MAX, Place};
use super::served::Served;
use super::{ApiServer, ApiServerError, Inner};
use crate::config::API_SERVERS_MAX;
use crate::metrics;

/// What is asked. Who may not ask it is told so by an API server that lives.
const READYZ: &str = "/readyz";

/// More than that says no API server.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The API servers of a cluster, as they are known now. Shared by all that ask them.
pub(super) struct Balance {
    endpoints: Mutex<Endpoints>,
    /// Is told when other ones may be asked, or others are there.
    changed: watch::Sender<()>,
    /// Counts these changes.
    edition: AtomicU64,
    turn: AtomicUsize,
    /// What they show.
    pub(super) served: Served,
}

/// A connection for questions, and of which epoch of the credential it is.
struct Kept {
    epoch: u64,
    link: Link,
}

impl Default for Balance {
    fn default() -> Self {
        Self {
            endpoints: Mutex::default(),
            changed: watch::Sender::new(()),
            edition: AtomicU64::new(0),
            turn: AtomicUsize::new(0),
            served: Served::default(),
        }
    }
}

impl Balance {
    /// From now on these are all.
    pub(super) fn set(&self, addresses: &[SocketAddr]) {
        let mut endpoints = self.lock();
        endpoints.set(addresses, Instant::now());
        self.tell(&endpoints);
        drop(endpoints);
        self.served.keep(addresses);
    }

    /// Where requests may go now, beginning with another one each time; one place at least.
    pub(super) fn places(&self) -> Vec<Place> {
        let mut places = self.lock().places();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % places.len();
        places.rotate_left(turn);
        places
    }

    /// Another number whenever other ones may be asked.
    pub(super) fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    /// The API servers that are ready, beginning with another one each time.
    pub(super) fn ready(&self) -> Vec<SocketAddr> {
        self.places().into_iter().flatten().collect()
    }

    /// Whether an API server is known there, and is not ready.
    pub(super) fn is_down(&self, address: SocketAddr) -> bool {
        self.lock().is_down(address)
    }

    /// Nobody could be connected there.
    pub(super) fn failed(&self, place: Place, error: &ApiServerError) {
        let Some(address) = place else { return };
        let mut endpoints = self.lock();
        if endpoints.failed(address, Instant::now()) {
            warn!(%address, error = %daemon::chain(error), "an API server is not asked any more");
            self.tell(&endpoints);
        }
    }

    /// Is told when other ones may be asked.
    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Returns once requests may not go there any more.
    pub(super) async fn lost(&self, place: Place) {
        let mut changed = self.subscribe();
        while self.lock().places().contains(&place) {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    fn heard(&self, address: SocketAddr, is_ready: bool) {
        let mut random = [0];
        // Without chance agents ask at the same time, which does no harm.
        let _ = aws_lc_rs::rand::fill(&mut random);
        let mut endpoints = self.lock();
        if endpoints.heard(address, is_ready, Instant::now(), random[0]) {
            if is_ready {
                info!(%address, "an API server is ready, and asked from now on");
            } else {
                warn!(%address, "an API server does not say that it is ready, and is not asked any more");
            }
            self.tell(&endpoints);
        }
    }

    fn tell(&self, endpoints: &Endpoints) {
        let (ready, not_ready) = endpoints.count();
        metrics::api_servers(ready, not_ready);
        self.edition.fetch_add(1, Ordering::Release);
        self.changed.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, Endpoints> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks whoever is to be asked, as long as somebody holds the API server.
pub(super) async fn keep(balance: Arc<Balance>, api_server: Weak<Inner>, scope: Scope) {
    let seats = Arc::new(Semaphore::new(2 * API_SERVERS_MAX));
    let mut changed = balance.subscribe();
    let mut kept: HashMap<SocketAddr, Kept> = HashMap::new();
    let mut asking = FuturesUnordered::new();
    while api_server.strong_count() > 0 {
        let (due, next) = {
            let mut endpoints = balance.lock();
            (endpoints.due(Instant::now()), endpoints.next_due())
        };
        for address in due {
            let (api_server, seats, scope) = (api_server.clone(), seats.clone(), scope.clone());
            let kept = kept.remove(&address);
            asking.push(async move {
                let asked = timeout(PROBE_MAX, probe(&api_server, address, kept, &seats, &scope)).await;
                (address, asked.ok().flatten())
            });
        }
        let next_due = async {
            match next {
                Some(next) => sleep_until(next.into()).await,
                None => std::future::pending().await,
            }
        };
        // All arms are cancel-safe: questions are polled by reference, and the others have nothing to lose.
        tokio::select! {
            Some((address, answered)) = asking.next() => {
                balance.heard(address, answered.as_ref().is_some_and(|(_, is_ready)| *is_ready));
                kept.extend(answered.and_then(|(link, _)| Some((address, link?))));
                kept.retain(|address, _| balance.lock().has(*address));
            }
            () = next_due => {}
            told = changed.changed() => if told.is_err() { return },
        }
    }
}

/// Whether the API server at `address` is ready, if it says; with a connection for the next question.
async fn probe(
    api_server: &Weak<Inner>,
    address: SocketAddr,
    kept: Option<Kept>,
    seats: &Arc<Semaphore>,
    scope: &Scope,
) -> Option<(Option<Kept>, bool)> {
    let api_server = ApiServer(api_server.upgrade()?);
    let snapshot = api_server.0.credential.current().await;
    if let Some(Kept { epoch, link }) = kept
        && epoch == snapshot.epoch
        && let Some((link, is_ready)) = api_server.ask_ready(link, &snapshot).await
    {
        return Some((link.map(|link| Kept { epoch, link }), is_ready));
    }
    let seat = seats.clone().acquire_owned().await.ok()?;
    let (to, served) = ((Some(address), snapshot.target.at(Some(address))), &api_server.0.balance.served);
    let tls = snapshot.tls.pooled.clone();
    let link = connection::connect((&to, served), tls, Use::Pooled, PROBE_MAX, seat, scope).await.ok()?;
    let (link, is_ready) = api_server.ask_ready(link, &snapshot).await?;
    Some((link.map(|link| Kept { epoch: snapshot.epoch, link }), is_ready))
}

impl ApiServer {
    /// The answer, and the connection if it is good for another question. `None` if there is none.
    async fn ask_ready(
        &self,
        mut link: Link,
        snapshot: &super::credential::Snapshot,
    ) -> Option<(Option<Link>, bool)> {
        let mut request = Request::new(RequestBody::new(Empty::<Bytes>::new(), &Progress::default()));
        let multiplexed = matches!(link, Link::Multiplexed { .. });
        self.address(&mut request, &PathAndQuery::from_static(READYZ), snapshot, multiplexed);
        let response = match &mut link {
            Link::Multiplexed { streams, .. } => streams.try_send_request(request).await,
            Link::Single(single) => single.send(request).await,
        };
        let response = response.ok()?;
        let is_ready = is_alive(response.status());
        let whole = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await.is_ok();
        let is_good = whole
            && match &mut link {
                Link::Multiplexed { .. } => true,
                Link::Single(single) => single.ready().await,
            };
        Some((is_good.then_some(link), is_ready))
    }
}

/// Who does not let the agent ask has authenticated and authorized it, or tried to: it lives.
fn is_alive(status: StatusCode) -> bool {
    status.is_success() || status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN
}
