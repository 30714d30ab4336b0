//! Where Services lead that the agent's file names: each is watched beside its EndpointSlices.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use policy::{ServiceName, Target};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::bell::{self, Bell};
use super::source::{versioned, watched};
use super::{ANSWER_BYTES_MAX, DiscoveryError, Failing, RETRY_EVERY, pause_after, slices};
use crate::apiserver::{ApiServer, DocumentError};
use crate::guard::services::{Backends, Services};
use crate::metrics;

/// What an agent does about it where it may not ask.
const ADVICE: &str = "let the agent list and watch the services and endpointslices that targets in its configuration \
                      names; `tombolo rbac` says how";

/// The type of a Service that is another name of something elsewhere.
const EXTERNAL_NAME: &str = "ExternalName";

#[derive(Deserialize)]
struct List {
    items: Vec<Service>,
}

#[derive(Deserialize)]
struct Service {
    #[serde(default)]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(rename = "type")]
    kind: Option<String>,
    ports: Option<Vec<Port>>,
}

#[derive(Deserialize)]
struct Port {
    name: Option<String>,
    protocol: Option<String>,
    port: u16,
}

/// The Services among what may be dialed, each with the ports that are wanted of it.
pub(super) fn wanted<'a>(targets: impl Iterator<Item = &'a Target>) -> BTreeMap<ServiceName, BTreeSet<u16>> {
    let mut wanted: BTreeMap<_, BTreeSet<u16>> = BTreeMap::new();
    for target in targets {
        if let Some(name) = target.service() {
            wanted.entry(name).or_default().insert(target.port());
        }
    }
    wanted
}

/// Asks where a Service leads, and again whenever that may have changed. What was said last holds while nobody answers, and is
/// forgotten where the agent may ask no more.
pub(super) async fn follow(
    api_server: &ApiServer,
    (name, ports): (&ServiceName, &BTreeSet<u16>),
    services: &watch::Sender<Services>,
) {
    let paths = paths(name);
    let mut failing = Failing::default();
    loop {
        let pause = match ask(api_server, &paths, ports).await {
            Ok((backends, versions)) => {
                metrics::discovered(true);
                failing.settle();
                learn(name, backends, services);
                rung(api_server, &paths, &versions).await
            }
            Err(error) => {
                metrics::discovered(false);
                if is_refused(&error) {
                    services.send_if_modified(|known| known.forget(name));
                }
                failing.tell(&error, |said| {
                    warn!(service = %name, error = said, "where a Service leads is not known");
                });
                RETRY_EVERY
            }
        };
        sleep(pause).await;
    }
}

fn learn(name: &ServiceName, backends: Backends, services: &watch::Sender<Services>) {
    debug!(service = %name, ?backends, "where a Service leads");
    services.send_if_modified(|known| known.learn(name, backends));
}

fn is_refused(error: &DiscoveryError) -> bool {
    matches!(error, DiscoveryError::Document(DocumentError::Status(status), _) if status.is_client_error())
}

/// The lists of the Service, by its name alone so that RBAC can name it, and of its EndpointSlices, whose names nobody knows.
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
    // The slices last: a port that the Service has gained is in them by then, or rings.
    let service = document(&paths[0]).await?;
    let slices = document(&paths[1]).await?;
    let backends = backends(&service, &slices, ports).map_err(DiscoveryError::Unreadable)?;
    Ok((backends, [versioned(&service), versioned(&slices)]))
}

/// Waits until either may have changed, and says for how long not to ask even so.
async fn rung(api_server: &ApiServer, paths: &[String; 2], versions: &[String; 2]) -> Duration {
    let bell = |place: usize| async move {
        match versions[place].as_str() {
            // What keeps no versions has no watches.
            "" => Bell::None,
            version => {
                let path = watched(&paths[place], version, bell::WATCH_FOR.as_secs());
                bell::wait(api_server, Some(path.as_str())).await
            }
        }
    };
    // Both arms are cancel-safe: a watch that is dropped is cancelled.
    tokio::select! {
        bell = bell(0) => pause_after(&bell),
        bell = bell(1) => pause_after(&bell),
    }
}

/// What a list of one Service and one of its slices say of these of its ports. A slice has the number that a port has at its
/// endpoints, whatever the Service calls that (`targetPort`), under the port's name.
fn backends(service: &[u8], slices: &[u8], ports: &BTreeSet<u16>) -> Result<Backends, serde_json::Error> {
    let List { items } = serde_json::from_slice(service)?;
    let Some(Service { spec }) = items.into_iter().next() else {
        return Ok(Backends::Absent);
    };
    if spec.kind.as_deref() == Some(EXTERNAL_NAME) {
        return Ok(Backends::Elsewhere);
    }
    let slices = slices::of(slices)?;
    let found = spec
        .ports
        .iter()
        .flatten()
        .filter(|port| ports.contains(&port.port) && slices::is_tcp(port.protocol.as_deref()));
    let led = found.map(|port| {
        let ready: BTreeSet<SocketAddr> =
            slices.iter().flat_map(|slice| slice.ready(port.name.as_deref().unwrap_or_default())).collect();
        (port.port, ready.into_iter().collect())
    });
    Ok(Backends::Ports(led.collect()))
}

#[cfg(test)]
mod tests;
