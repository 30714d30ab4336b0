//! Where the cluster says its control plane answers, asked from the cluster itself.

use std::net::Ipv6Addr;
use std::time::Duration;

use daemon::{Scope, chain};
use policy::TargetEntry;
use proto::greeting::ENDPOINTS_MAX;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::apiserver::{ApiServer, DocumentError};
use crate::metrics;

/// How often the cluster is asked.
const REFRESH_EVERY: Duration = Duration::from_secs(60);

/// How often it is asked while it does not answer.
const RETRY_EVERY: Duration = Duration::from_secs(10);

/// Largest answer: a thousand endpoints would fit.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// The EndpointSlice of the Service `kubernetes`, which every apiserver keeps itself, alone, so that RBAC can name it.
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices\
                      ?fieldSelector=metadata.name%3Dkubernetes";

/// The port of a slice that is the API.
const PORT_NAME: &str = "https";

/// What the cluster says of its endpoints, as it changes.
#[derive(Debug)]
pub struct Discovery {
    api_server: ApiServer,
    configured: bool,
    /// What else is advertised.
    targets: Vec<String>,
    endpoints: watch::Sender<Vec<String>>,
}

/// Why the cluster did not say where its control plane is.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// The API server.
    #[error(
        "the API server does not say where the control plane is; let the agent list the endpointslice kubernetes in the \
         namespace default, or set advertise"
    )]
    Document(#[from] DocumentError),
    /// Something else.
    #[error("the API server's answer is not a list of EndpointSlices")]
    NotSlices(#[source] serde_json::Error),
}

#[derive(Deserialize)]
struct Slices {
    items: Vec<Slice>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Slice {
    address_type: String,
    #[serde(default)]
    endpoints: Option<Vec<Endpoint>>,
    #[serde(default)]
    ports: Option<Vec<Port>>,
}

#[derive(Deserialize)]
struct Endpoint {
    addresses: Vec<String>,
    #[serde(default)]
    conditions: Conditions,
}

#[derive(Default, Deserialize)]
struct Conditions {
    /// Absent means ready, says the API.
    ready: Option<bool>,
}

#[derive(Deserialize)]
struct Port {
    name: Option<String>,
    port: Option<u16>,
}

impl Discovery {
    /// A discovery that knows `advertise` and, if that is empty, nothing before [`Discovery::run`] has asked; and what else
    /// is dialed, in any case.
    #[must_use]
    pub fn new(api_server: ApiServer, advertise: Vec<String>, targets: &[TargetEntry]) -> Self {
        let configured = !advertise.is_empty();
        let targets: Vec<String> = targets.iter().map(TargetEntry::to_string).collect();
        let endpoints = together(advertise, &targets);
        metrics::endpoints(endpoints.len());
        Self { api_server, configured, targets, endpoints: watch::Sender::new(endpoints) }
    }

    /// The endpoints now, and whenever they change, with the targets behind them: `host:port` or `network/bits:port`, at most
    /// [`ENDPOINTS_MAX`].
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Vec<String>> {
        self.endpoints.subscribe()
    }

    /// Asks again and again, until the drain. Returns at once where the endpoints are configured. A cluster that does
    /// not answer keeps what it last said.
    pub async fn run(self, scope: Scope) {
        if self.configured {
            return;
        }
        let mut failing = None;
        let mut draining = std::pin::pin!(scope.draining());
        loop {
            // Both arms are cancel-safe: an exchange that is dropped is cancelled, and so is a sleep.
            let pause = tokio::select! {
                () = &mut draining => return,
                asked = ask(&self.api_server) => self.learn(asked, &mut failing),
            };
            tokio::select! {
                () = &mut draining => return,
                () = sleep(pause) => {}
            }
        }
    }

    /// Publishes a change, says a failure once, and tells when to ask again.
    fn learn(&self, asked: Result<Vec<String>, DiscoveryError>, failing: &mut Option<String>) -> Duration {
        metrics::discovered(asked.is_ok());
        match asked {
            Ok(endpoints) => {
                let endpoints = together(endpoints, &self.targets);
                metrics::endpoints(endpoints.len());
                *failing = None;
                self.endpoints.send_if_modified(|known| {
                    let changed = *known != endpoints;
                    if changed {
                        info!(?endpoints, "the control plane's endpoints");
                        *known = endpoints;
                    }
                    changed
                });
                REFRESH_EVERY
            }
            Err(error) => {
                let said = chain(&error).to_string();
                if failing.as_ref() != Some(&said) {
                    warn!(error = said, "the control plane's endpoints are not known");
                    *failing = Some(said);
                }
                RETRY_EVERY
            }
        }
    }
}

/// What is advertised: endpoints first, and as many as may be.
fn together(mut endpoints: Vec<String>, targets: &[String]) -> Vec<String> {
    endpoints.truncate(ENDPOINTS_MAX - targets.len().min(ENDPOINTS_MAX));
    endpoints.extend_from_slice(targets);
    endpoints
}

/// Asks once.
///
/// # Errors
///
/// [`DiscoveryError`].
pub async fn ask(api_server: &ApiServer) -> Result<Vec<String>, DiscoveryError> {
    endpoints(&api_server.document(SLICES, ANSWER_BYTES_MAX).await?)
}

fn endpoints(answer: &[u8]) -> Result<Vec<String>, DiscoveryError> {
    let Slices { items } = serde_json::from_slice(answer).map_err(DiscoveryError::NotSlices)?;
    let mut endpoints: Vec<String> = items.iter().flat_map(of_slice).collect();
    endpoints.sort_unstable();
    endpoints.dedup();
    endpoints.truncate(ENDPOINTS_MAX);
    Ok(endpoints)
}

fn of_slice(slice: &Slice) -> Vec<String> {
    let named = |port: &&Port| port.name.as_deref().is_none_or(|name| name.is_empty() || name == PORT_NAME);
    let port = slice.ports.iter().flatten().find(named).and_then(|port| port.port);
    let (Some(port), "IPv4" | "IPv6" | "FQDN") = (port, slice.address_type.as_str()) else {
        return Vec::new();
    };
    let ready = slice.endpoints.iter().flatten().filter(|endpoint| endpoint.conditions.ready != Some(false));
    ready.flat_map(|endpoint| &endpoint.addresses).map(|address| joined(address, port)).collect()
}

fn joined(address: &str, port: u16) -> String {
    match address.parse::<Ipv6Addr>() {
        Ok(address) => format!("[{address}]:{port}"),
        Err(_) => format!("{address}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_endpoints_are_found_with_their_port() {
        let answer = r#"{"kind":"EndpointSliceList","items":[
            {"addressType":"IPv4","endpoints":[
                {"addresses":["192.168.1.11"],"conditions":{"ready":true}},
                {"addresses":["192.168.1.10"],"conditions":{}},
                {"addresses":["192.168.1.12"],"conditions":{"ready":false}}],
             "ports":[{"name":"metrics","port":9},{"name":"https","port":6443,"protocol":"TCP"}]},
            {"addressType":"IPv6","endpoints":[{"addresses":["fd00::a"]}],"ports":[{"name":"https","port":6443}]}]}"#;

        let found = endpoints(answer.as_bytes()).unwrap();

        assert_eq!(found, ["192.168.1.10:6443", "192.168.1.11:6443", "[fd00::a]:6443"]);
    }

    #[test]
    fn slices_without_endpoints_or_ports_say_nothing() {
        let answer = r#"{"items":[{"addressType":"IPv4","endpoints":null,"ports":[{"port":6443}]},
            {"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}],"ports":null}]}"#;

        assert_eq!(endpoints(answer.as_bytes()).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn more_endpoints_than_may_be_advertised_are_cut_off() {
        let addresses: Vec<String> = (0..100).map(|n| format!("\"10.0.0.{n}\"")).collect();
        let answer = format!(
            r#"{{"items":[{{"addressType":"IPv4","endpoints":[{{"addresses":[{}]}}],"ports":[{{"port":6443}}]}}]}}"#,
            addresses.join(",")
        );

        assert_eq!(endpoints(answer.as_bytes()).unwrap().len(), ENDPOINTS_MAX);
    }

    #[test]
    fn a_status_is_no_list() {
        assert!(matches!(endpoints(b"{\"kind\":\"Status\"}"), Err(DiscoveryError::NotSlices(_))));
    }
}
