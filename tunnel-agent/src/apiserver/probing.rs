//! Probes a cluster's API servers for readiness, over connections that are kept between probes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use api_servers::is_ready;
use api_servers::readiness::READYZ;
use bytes::Bytes;
use daemon::Scope;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http::Request;
use http::uri::PathAndQuery;
use http_body_util::{BodyExt as _, Empty, Limited};
use tokio::sync::Semaphore;
use tokio::time::{sleep_until, timeout};

use super::balancer::Balancer;
use super::connection::{self, Connection, Purpose};
use super::credential::{Credential, Snapshot};
use super::endpoints::PROBE_MAX;
use super::request_body::{Progress, RequestBody};
use super::serving_certificates::ServingCertificates;
use crate::config::API_SERVERS_MAX;

/// Largest answer to a probe. Real ones are smaller.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// A connection for probes, with the epoch of the credential that it was made with.
struct ProbeConnection {
    epoch: u64,
    connection: Connection,
}

/// Probes every API server when it is due, as long as somebody uses the credential.
pub(super) async fn run(balancer: Arc<Balancer>, credential: Weak<Credential>, scope: Scope) {
    let permits = Arc::new(Semaphore::new(2 * API_SERVERS_MAX));
    let mut changed = balancer.subscribe();
    let mut connections: HashMap<SocketAddr, ProbeConnection> = HashMap::new();
    let mut probes = FuturesUnordered::new();
    while credential.strong_count() > 0 {
        let (due, next) = balancer.due();
        for address in due {
            let (credential, permits, scope) = (credential.clone(), permits.clone(), scope.clone());
            let (kept, certificates) = (connections.remove(&address), &balancer.certificates);
            probes.push(async move {
                let probe = probe(&credential, certificates, address, kept, &permits, &scope);
                (address, timeout(PROBE_MAX, probe).await.ok().flatten())
            });
        }
        let next_due = async {
            match next {
                Some(next) => sleep_until(next.into()).await,
                None => std::future::pending().await,
            }
        };
        // All arms are cancel-safe: probes are polled by reference, and the others have nothing to lose.
        tokio::select! {
            Some((address, answer)) = probes.next() => {
                balancer.probed(address, answer.as_ref().is_some_and(|(_, is_ready)| *is_ready));
                connections.extend(answer.and_then(|(kept, _)| Some((address, kept?))));
                connections.retain(|address, _| balancer.has(*address));
            }
            () = next_due => {}
            changed = changed.changed() => if changed.is_err() { return },
        }
    }
}

/// Says whether the API server at `address` is ready, if it answers, with a connection for the next probe.
async fn probe(
    credential: &Weak<Credential>,
    certificates: &ServingCertificates,
    address: SocketAddr,
    kept: Option<ProbeConnection>,
    permits: &Arc<Semaphore>,
    scope: &Scope,
) -> Option<(Option<ProbeConnection>, bool)> {
    let credential = credential.upgrade()?;
    let snapshot = credential.current().await;
    let epoch = snapshot.epoch;
    if let Some(kept) = kept
        && kept.epoch == epoch
        && let Some((connection, is_ready)) = request_readyz(&credential, kept.connection, &snapshot).await
    {
        return Some((connection.map(|connection| ProbeConnection { epoch, connection }), is_ready));
    }
    let permit = permits.clone().acquire_owned().await.ok()?;
    let target = (Some(address), snapshot.target.at(Some(address)));
    let tls = snapshot.tls.pooled.clone();
    let dialing =
        connection::connect((&target, certificates), tls, Purpose::Pooled, PROBE_MAX, permit, scope);
    let (connection, is_ready) = request_readyz(&credential, dialing.await.ok()?, &snapshot).await?;
    Some((connection.map(|connection| ProbeConnection { epoch, connection }), is_ready))
}

/// The answer to one probe, and the connection if it can be used again. `None` if there is no answer.
async fn request_readyz(
    credential: &Credential,
    mut connection: Connection,
    snapshot: &Snapshot,
) -> Option<(Option<Connection>, bool)> {
    let mut request = Request::new(RequestBody::once(Empty::<Bytes>::new(), &Progress::default()));
    let is_multiplexed = matches!(connection, Connection::Http2 { .. });
    credential.set_address(&mut request, &PathAndQuery::from_static(READYZ), snapshot, is_multiplexed);
    let response = match &mut connection {
        Connection::Http2 { sender, .. } => sender.try_send_request(request).await,
        Connection::Http1(connection) => connection.send(request).await,
    };
    let response = response.ok()?;
    let is_ready = is_ready(response.status());
    let is_complete = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await.is_ok();
    let is_reusable = is_complete
        && match &mut connection {
            Connection::Http2 { .. } => true,
            Connection::Http1(connection) => connection.ready().await,
        };
    Some((is_reusable.then_some(connection), is_ready))
}
