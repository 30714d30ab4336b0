//! One tunnel from its greeting to its end: serves its streams, keeps the server informed, drains when the
//! agent stops.

use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::error_chain;
use futures::FutureExt as _;
use proto::CloseCode;
use proto::server_list::ServerList;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};
use transport::{Tunnel, TunnelEnded, TunnelEvent};

use super::backoff::STABLE_AFTER;
use super::connected_servers::Registration;
use super::control_plane::ControlPlane;
use super::dependencies::{Dependencies, SharedDialer};
use super::dial::{Greeted, Route};
use crate::metrics;
use crate::server_trust::ServerTrust;
use crate::streams::ledgers::ServerIdentity;

/// Time after the greeting at which a tunnel is probed for packets that pass, and the interval at which it is
/// looked at then.
const PROOF_AFTER: Duration = Duration::from_millis(50);
const PROOF_EVERY: Duration = Duration::from_millis(50);

/// Longest wait for a packet. By then the heartbeats have found the tunnel dead.
const PROOF_MAX: Duration = Duration::from_secs(10);

/// Runs a tunnel until it ends, and notifies `changed` whenever its health or draining changes. A tunnel
/// without a registration is a second one to its server.
pub(super) async fn run_tunnel(
    shared: Arc<SharedDialer>,
    route: Arc<Route>,
    greeted: Greeted,
    registration: Option<Registration>,
    changed: Arc<Notify>,
) -> TunnelEnded {
    let Greeted { tunnel, driver, welcome, sequence, endpoint } = greeted;
    let name = route.server.address.to_string();
    let (counted, connected) = (tunnel.clone(), metrics::ConnectedTunnel::to(&name));
    let Dependencies { streams, links, .. } = &shared.dependencies;
    let link = links.open(&name, tunnel.carrier().as_str(), move || metrics::figures(&counted));
    endpoint.iter().for_each(|endpoint| metrics::buffers(endpoint.buffers()));
    let began = Instant::now();
    let (server, address, carrier) = (&name, &*route, tunnel.carrier().as_str());
    info!(server, %address, carrier, server_id = welcome.server_id, version = welcome.version, "tunnel opened");
    let (ledgers, server_process) = (&shared.ledgers, ServerIdentity::from_welcome(&welcome));
    let closed = tunnel.clone();
    let ledger = ledgers.open(server_process.clone(), sequence, move || closed.close(CloseCode::Lost));
    shared.known.heard(sequence, welcome.servers.map(ServerList::from_wire).unwrap_or_default());
    if !welcome.trust_bundle.is_empty() {
        // Work of the scope, so that the bundle is on disk before the process ends.
        shared.scope.spawn(accept_trust_bundle(shared.trust.clone(), welcome.trust_bundle));
    }
    let serving = streams.clone().serve(tunnel.clone(), ledger.ledger(), shared.scope.clone());
    // The driver reports how the tunnel ended.
    shared.scope.spawn_background(serving.map(drop));
    let driving = driver.run(|event| {
        match event {
            TunnelEvent::Health(health) => {
                info!(server, %address, carrier, ?health, "tunnel's health changed")
            }
            TunnelEvent::PeerDrains => info!(server, %address, "the server is stopping"),
            TunnelEvent::StreamQuery(query) => {
                debug!(
                    server,
                    tunnel = query.tunnel,
                    streams = query.streams.len(),
                    "the server asks for streams"
                );
                tunnel.report(ledgers.answer(&server_process, &query));
                return;
            }
            TunnelEvent::Servers(servers) => {
                shared.known.heard(sequence, servers);
                return;
            }
            // Only agents send endpoints, certificate extensions and reports, and messages of servers end an agent's
            // tunnel.
            TunnelEvent::Endpoints(_)
            | TunnelEvent::Extension(_)
            | TunnelEvent::StreamReport(_)
            | TunnelEvent::Peer(_) => {}
        }
        changed.notify_one();
    });
    let ended = drive(driving, &tunnel, &shared, registration).await;
    drop((connected, link, ledger));
    shared.known.ended(sequence);
    info!(server, %address, carrier, lasted = ?began.elapsed(), reason = %error_chain(&ended), "tunnel closed");
    // Work of the scope, so that the close is sent before the process ends.
    if let Some(endpoint) = endpoint {
        shared.scope.spawn(async move { endpoint.close(CloseCode::Drained).await });
    }
    ended
}

/// Accepts the trust bundle that a server sent with its Welcome, if it is newer and valid.
async fn accept_trust_bundle(trust: ServerTrust, bundle: Vec<u8>) {
    let accepted = spawn_blocking(move || trust.accept_bundle(&bundle)).await;
    match accepted {
        Ok(Ok(Some(version))) => {
            info!(bundle = version, "trust bundle accepted: servers are trusted by it from now on")
        }
        Ok(Ok(None)) => {}
        Ok(Err(error)) => warn!(error = %error_chain(&error), "a server's trust bundle was not accepted"),
        // Cancelled, because the runtime ends.
        Err(_) => {}
    }
}

/// Returns true if packets still pass after the greeting: a path may carry a handshake and nothing after it.
pub(super) async fn passes_packets(tunnel: Tunnel, control_plane: ControlPlane) -> bool {
    timeout(PROOF_MAX, first_packet(&tunnel, &control_plane)).await.is_ok()
}

/// Waits for a packet that was sent after the greeting.
async fn first_packet(tunnel: &Tunnel, control_plane: &ControlPlane) {
    // Packets that were under way at the greeting have arrived by then.
    sleep(PROOF_AFTER + tunnel.round_trip()).await;
    let before = tunnel.link_stats().wire_bytes_received;
    // A frame that has to be acknowledged. The server knows its content already.
    tunnel.advertise(control_plane.current());
    while tunnel.link_stats().wire_bytes_received == before {
        sleep(PROOF_EVERY).await;
    }
}

/// Drives a tunnel, advertises changed endpoints, shows newer certificates, and drains it when the agent
/// stops.
async fn drive(
    driving: impl Future<Output = TunnelEnded>,
    tunnel: &Tunnel,
    shared: &SharedDialer,
    registration: Option<Registration>,
) -> TunnelEnded {
    let mut control_plane = shared.dependencies.control_plane.clone();
    let mut renewals = shared.trust.renewals();
    let draining = shared.scope.draining();
    tokio::pin!(driving, draining);
    let stable = sleep(STABLE_AFTER);
    tokio::pin!(stable);
    let (mut is_draining, mut is_stable) = (false, false);
    loop {
        // All arms are cancel-safe: the driver is polled by reference, a change that came is kept, a drain
        // that began stays begun, and a sleep has nothing to lose.
        tokio::select! {
            ended = &mut driving => return ended,
            endpoints = control_plane.changed() => tunnel.advertise(endpoints),
            Ok(()) = renewals.changed() => {
                let extension = tunnel.exporter().and_then(|exporter| shared.trust.extension(&exporter));
                extension.into_iter().for_each(|extension| tunnel.extend(extension));
            }
            () = &mut draining, if !is_draining => {
                is_draining = true;
                tunnel.begin_drain();
            }
            () = &mut stable, if !is_stable => {
                is_stable = true;
                if let Some(conflict) = registration.as_ref().and_then(Registration::conflict) {
                    warn!("{conflict}");
                }
            }
        }
    }
}
