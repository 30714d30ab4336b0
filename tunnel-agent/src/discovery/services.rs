//! The endpoints of Services that the agent's file names. Each Service is watched together with its
//! EndpointSlices.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use api_servers::list::{list_version, watch_path};
use api_servers::slices;
use policy::{ServiceName, Target};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::error::{DiscoveryError, FailureLog};
use super::refresh::{self, ANSWER_BYTES_MAX, RETRY_EVERY, WatchOutcome, pause_after};
use crate::apiserver::{ApiServer, DocumentError};
use crate::guard::services::{Backends, Services};
use crate::metrics::{self, DiscoveryOutcome};

/// Advice for an agent that may not read Services.
const ADVICE: &str = "let the agent list and watch the services and endpointslices that targets in its configuration \
                      names; `tombolo rbac` prints the rules";

/// The type of a Service that is an alias for a DNS name.
const EXTERNAL_NAME: &str = "ExternalName";

#[derive(Deserialize)]
struct ServiceList {
    items: Vec<ServiceItem>,
}

#[derive(Deserialize)]
struct ServiceItem {
    #[serde(default)]
    spec: ServiceItemSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ServiceItemSpec {
    #[serde(rename = "type")]
    kind: Option<String>,
    ports: Option<Vec<ServiceItemPort>>,
}

#[derive(Deserialize)]
struct ServiceItemPort {
    name: Option<String>,
    protocol: Option<String>,
    port: u16,
}

/// The Services among the targets, each with its ports that may be dialed.
pub(super) fn named<'a>(targets: impl Iterator<Item = &'a Target>) -> BTreeMap<ServiceName, BTreeSet<u16>> {
    let mut wanted: BTreeMap<_, BTreeSet<u16>> = BTreeMap::new();
    for target in targets {
        if let Some(name) = target.service() {
            wanted.entry(name).or_default().insert(target.port());
        }
    }
    wanted
}

/// Follows the endpoints of a Service. While the API server does not answer, its last answer holds. The
/// Service is forgotten once the agent may no longer read it.
pub(super) async fn follow(
    api_server: &ApiServer,
    (name, ports): (&ServiceName, &BTreeSet<u16>),
    services: &watch::Sender<Services>,
) {
    let paths = paths(name);
    let mut failures = FailureLog::default();
    loop {
        let pause = match ask(api_server, &paths, ports).await {
            Ok((backends, versions)) => {
                metrics::discovered(DiscoveryOutcome::Answered);
                failures.reset();
                publish(name, backends, services);
                wait(api_server, &paths, &versions).await
            }
            Err(error) => {
                metrics::discovered(DiscoveryOutcome::Failed);
                if is_refused(&error) {
                    services.send_if_modified(|known| known.forget(name));
                }
                failures.log_if_new(&error, |message| {
                    warn!(service = %name, error = message, "the endpoints of a Service are not known");
                });
                RETRY_EVERY
            }
        };
        sleep(pause).await;
    }
}

fn publish(name: &ServiceName, backends: Backends, services: &watch::Sender<Services>) {
    debug!(service = %name, ?backends, "the endpoints of a Service");
    services.send_if_modified(|known| known.set_named(name, backends));
}

fn is_refused(error: &DiscoveryError) -> bool {
    matches!(error, DiscoveryError::Document(DocumentError::Status(status), _) if status.is_client_error())
}

/// The paths of two lists: of the Service, by its name alone so that RBAC can name it, and of its
/// EndpointSlices, whose names are not known.
fn paths(name: &ServiceName) -> [String; 2] {
    let (name, namespace) = (name.name(), name.namespace());
    [
        format!("/api/v1/namespaces/{namespace}/services?fieldSelector=metadata.name%3D{name}"),
        format!(
            "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices\
             ?labelSelector=kubernetes.io%2Fservice-name%3D{name}"
        ),
    ]
}

async fn ask(
    api_server: &ApiServer,
    paths: &[String; 2],
    ports: &BTreeSet<u16>,
) -> Result<(Backends, [String; 2]), DiscoveryError> {
    let document = async |path: &str| {
        let answer = api_server.document(path, ANSWER_BYTES_MAX).await;
        answer.map_err(|error| DiscoveryError::Document(error, ADVICE))
    };
    // The slices last: a new port of the Service is in them by then, or changes them later.
    let service = document(&paths[0]).await?;
    let slices = document(&paths[1]).await?;
    let backends = backends(&service, &slices, ports).map_err(DiscoveryError::Unreadable)?;
    Ok((backends, [list_version(&service), list_version(&slices)]))
}

/// Waits until either list may have changed, and returns the pause before the next request.
async fn wait(api_server: &ApiServer, paths: &[String; 2], versions: &[String; 2]) -> Duration {
    let watch = |index: usize| async move {
        match versions[index].as_str() {
            // A list without a version cannot be watched.
            "" => WatchOutcome::Unavailable,
            version => {
                let path = watch_path(&paths[index], version, refresh::WATCH_FOR.as_secs());
                refresh::wait(api_server, Some(path.as_str())).await
            }
        }
    };
    // Both arms are cancel-safe: a watch that is dropped is cancelled.
    tokio::select! {
        outcome = watch(0) => pause_after(&outcome),
        outcome = watch(1) => pause_after(&outcome),
    }
}

/// The backends of a Service at these ports, from the list of the Service and the list of its slices. A slice
/// has a port's number at the endpoints under the port's name, whatever the Service's `targetPort` is.
fn backends(service: &[u8], slices: &[u8], ports: &BTreeSet<u16>) -> Result<Backends, serde_json::Error> {
    let ServiceList { items } = serde_json::from_slice(service)?;
    let Some(ServiceItem { spec }) = items.into_iter().next() else {
        return Ok(Backends::Absent);
    };
    if spec.kind.as_deref() == Some(EXTERNAL_NAME) {
        return Ok(Backends::ExternalName);
    }
    let slices = slices::parse(slices)?;
    let wanted = spec
        .ports
        .iter()
        .flatten()
        .filter(|port| ports.contains(&port.port) && slices::is_tcp(port.protocol.as_deref()));
    let backends = wanted.map(|port| {
        let ready: BTreeSet<SocketAddr> =
            slices.iter().flat_map(|slice| slice.ready(port.name.as_deref().unwrap_or_default())).collect();
        (port.port, ready.into_iter().collect())
    });
    Ok(Backends::Ports(backends.collect()))
}

#[cfg(test)]
mod tests;
