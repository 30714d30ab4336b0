//! One tunnel from its greeting to its end: serves its streams, speaks for it, drains it when the agent stops.

use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::{Scope, chain};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};
use transport::{Tunnel, TunnelEnded, TunnelEvent};

use super::dial::{Greeted, Route};
use super::backoff::STABLE_AFTER;
use super::connected_servers::Registration;
use super::{ControlPlane, Kit};
use crate::metrics;
use crate::servers::Servers;
use crate::streams::Streams;

/// How soon after its greeting a tunnel is asked whether packets still pass, and how often it is looked at then.
const PROOF_AFTER: Duration = Duration::from_millis(50);
const PROOF_EVERY: Duration = Duration::from_millis(50);

/// After so long without one its heartbeats have judged it.
const PROOF_MAX: Duration = Duration::from_secs(10);

/// Holds a tunnel until it ends, and tells `changed` whenever it does otherwise than before. A tunnel that is on no roll
/// is a second one to its server.
pub(super) async fn hold(
    kit: Arc<Kit>,
    route: Arc<Route>,
    greeted: Greeted,
    listed: Option<Registration>,
    changed: Arc<Notify>,
) -> TunnelEnded {
    let Greeted { tunnel, driver, welcome, endpoint } = greeted;
    let name = route.server.address.to_string();
    let (counted, connected) = (tunnel.clone(), metrics::Connected::to(&name));
    let link = kit.links.open(&name, tunnel.carrier().as_str(), move || metrics::figures(&counted));
    endpoint.iter().for_each(|endpoint| metrics::buffers(endpoint.buffers()));
    let began = Instant::now();
    let (server, address, carrier) = (&name, &*route, tunnel.carrier().as_str());
    info!(server, %address, carrier, server_id = welcome.server_id, version = welcome.version, "tunnel opened");
    if !welcome.trust_bundle.is_empty() {
        // Work, so that what was taken is kept before the process ends.
        kit.scope.spawn(learn(kit.trusted.clone(), welcome.trust_bundle));
    }
    kit.scope.attend(serve_streams(kit.streams.clone(), tunnel.clone(), kit.scope.clone()));
    let driving = driver.run(|event| {
        match event {
            TunnelEvent::Health(health) => {
                info!(server, %address, carrier, ?health, "tunnel's health changed")
            }
            TunnelEvent::PeerDrains => info!(server, %address, "the server is stopping"),
            // Only agents have endpoints, and certificates of a day.
            TunnelEvent::Endpoints(_) | TunnelEvent::Extension(_) => {}
        }
        changed.notify_one();
    });
    let ended = accompany(driving, &tunnel, &kit, listed).await;
    drop((connected, link));
    info!(server, %address, carrier, lasted = ?began.elapsed(), reason = %chain(&ended), "tunnel closed");
    // Work, so that the other side is told before the process ends.
    if let Some(endpoint) = endpoint {
        kit.scope.spawn(async move { endpoint.close(proto::CloseCode::Drained).await });
    }
    ended
}

/// Takes the trust bundle that a server sent with its Welcome.
async fn learn(servers: Servers, bundle: Vec<u8>) {
    let learned = spawn_blocking(move || servers.learn(&bundle)).await;
    match learned {
        Ok(Ok(Some(version))) => {
            info!(bundle = version, "trust bundle taken: servers are trusted by it from now on")
        }
        Ok(Ok(None)) => {}
        Ok(Err(error)) => warn!(error = %chain(&error), "a server's trust bundle was not taken"),
        // Only a runtime that ends cancels it.
        Err(_) => {}
    }
}

/// Whether something is heard on a tunnel that was sent after its greeting: a path may carry a handshake and nothing after
/// it.
pub(super) async fn is_heard(tunnel: Tunnel, control_plane: ControlPlane) -> bool {
    timeout(PROOF_MAX, heard(&tunnel, &control_plane)).await.is_ok()
}

async fn heard(tunnel: &Tunnel, control_plane: &ControlPlane) {
    // What was under way at the greeting has arrived by then.
    sleep(PROOF_AFTER + tunnel.round_trip()).await;
    let before = tunnel.link().wire_bytes_received;
    // Something that has to be acknowledged; the server knows it already.
    tunnel.advertise(control_plane.now());
    while tunnel.link().wire_bytes_received == before {
        sleep(PROOF_EVERY).await;
    }
}

/// Drives a tunnel, advertises changed endpoints, shows newer certificates, and drains it when the agent stops.
async fn accompany(
    driving: impl Future<Output = TunnelEnded>,
    tunnel: &Tunnel,
    kit: &Kit,
    listed: Option<Registration>,
) -> TunnelEnded {
    let (mut control_plane, mut renewals) = (kit.control_plane.clone(), kit.trusted.renewals());
    let draining = kit.scope.draining();
    tokio::pin!(driving, draining);
    let held = sleep(STABLE_AFTER);
    tokio::pin!(held);
    let (mut drains, mut has_held) = (false, false);
    loop {
        // All arms are cancel-safe: the driver is polled by reference, a change that came is kept, a drain that began
        // stays begun, and a sleep has nothing to lose.
        tokio::select! {
            ended = &mut driving => return ended,
            now = control_plane.changed() => tunnel.advertise(now),
            Ok(()) = renewals.changed() => {
                let extension = tunnel.exporter().and_then(|exporter| kit.trusted.extension(&exporter));
                extension.into_iter().for_each(|extension| tunnel.extend(extension));
            }
            () = &mut draining, if !drains => {
                drains = true;
                tunnel.begin_drain();
            }
            () = &mut held, if !has_held => {
                has_held = true;
                if let Some(twins) = listed.as_ref().and_then(Registration::twins) {
                    warn!("{twins}");
                }
            }
        }
    }
}

async fn serve_streams(streams: Streams, tunnel: Tunnel, scope: Scope) {
    // How the tunnel ended is said by its driver.
    let _ = streams.serve(tunnel, scope).await;
}
