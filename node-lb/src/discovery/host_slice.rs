//! Follows the EndpointSlices of the Service by which a host cluster runs the API servers of this worker's cluster.
//!
//! The host cluster may be away for days. Then its list is not read, and those API servers that are known stay.

use std::path::Path;
use std::sync::Arc;

use daemon::{Scope, read_bounded};
use http::HeaderValue;
use tokio::time::sleep;

use super::listing::{ListError, Listing, Outcomes};
use crate::balancer::Balancer;
use crate::config::HostCluster;
use crate::http_client::HttpClient;
use crate::members::Source;
use crate::tls::Identity;

/// Largest file with a token. 64 KiB.
const TOKEN_BYTES_MAX: u64 = 64 * 1024;

/// Follows the slices until the process ends.
pub(super) async fn follow(host: HostCluster, balancer: Balancer, scope: Scope) {
    let HostCluster { namespace, service, .. } = &host;
    let listing = Listing {
        path: format!(
            "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D{service}"
        ),
        source: Source::HostSlice,
        remedy: "the token of hostCluster has to list and watch EndpointSlices in hostCluster.namespace of the host cluster",
    };
    let mut outcomes = Outcomes::default();
    loop {
        let outcome = listing.read_and_watch(connect(&host, &scope), &balancer).await;
        let pause = outcomes.note(&listing, outcome);
        // Both arms are cancel-safe: neither holds anything.
        tokio::select! {
            () = sleep(pause) => {}
            () = scope.draining() => return,
        }
    }
}

/// Connects with the CA and the token as the files have them now: both may be exchanged at any time.
async fn connect(host: &HostCluster, scope: &Scope) -> Result<HttpClient, ListError> {
    let identity = Identity::read(&host.tls)
        .map_err(|error| ListError::Credential(daemon::error_chain(&error).to_string()))?;
    let token = token(&host.token)?;
    let (name, port) = &host.address;
    let client = HttpClient::connect((name.as_str(), *port), &Arc::new(identity), scope).await?;
    Ok(client.with_authorization(token))
}

fn token(path: &Path) -> Result<HeaderValue, ListError> {
    let refused = |fault: &str| ListError::Credential(format!("{} {fault}", path.display()));
    let bytes =
        read_bounded(path, TOKEN_BYTES_MAX).map_err(|error| refused(&format!("cannot be read: {error}")))?;
    let bytes = bytes.ok_or_else(|| refused("is too large for a token"))?;
    let text = String::from_utf8(bytes).map_err(|_| refused("is no text"))?;
    let mut value =
        HeaderValue::from_str(&format!("Bearer {}", text.trim())).map_err(|_| refused("holds no token"))?;
    value.set_sensitive(true);
    Ok(value)
}
