//! Follows the EndpointSlice of the cluster's own API servers, as a caller of this load balancer.
//!
//! So the watch has what every caller has: an API server that is healthy, and an end as soon as that dies.

use std::net::SocketAddr;

use api_servers::list::KUBERNETES_SLICES;
use daemon::Scope;
use tokio::time::sleep;

use super::listing::{Listing, Outcomes};
use crate::balancer::Balancer;
use crate::http_client::HttpClient;
use crate::members::Source;
use crate::tls::Tls;

/// Follows the slice for ever. Without a client certificate it waits for one.
pub(super) async fn follow(own_address: SocketAddr, tls: Tls, balancer: Balancer, scope: Scope) {
    let listing = Listing {
        path: KUBERNETES_SLICES.to_owned(),
        source: Source::Slice,
        remedy: "the client certificate has to list and watch the EndpointSlice kubernetes in the namespace default: apply \
                 deploy/node-lb/rbac.yaml",
    };
    let mut identities = tls.subscribe();
    let mut outcomes = Outcomes::default();
    loop {
        let identity = identities.borrow_and_update().clone();
        if !identity.has_certificate {
            if identities.changed().await.is_err() {
                return;
            }
            continue;
        }
        let connecting = async { Ok(HttpClient::connect(own_address, &identity, &scope).await?) };
        // Each arm is cancel-safe: a list that is dropped is requested again, with the new credential.
        let outcome = tokio::select! {
            outcome = listing.read_and_watch(connecting, &balancer) => outcome,
            _ = identities.changed() => {
                identities.mark_changed();
                continue;
            }
        };
        let pause = outcomes.note(&listing, outcome);
        tokio::select! {
            () = sleep(pause) => {}
            _ = identities.changed() => identities.mark_changed(),
        }
    }
}
