//! Parts of a trial's own tunnel server, which breaks limits or closes what it should keep.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use proto::greeting::{BootNonce, ServerInfo};
use proto::server_list::ServerList;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use transport::tls::Material;
use transport::{EndpointKeys, Spawn};

use crate::rig::Rig;

/// Drivers end with the runtime.
struct TokioSpawner;

/// The certificates of the rig's own server, so that agents take the other one for it.
///
/// # Panics
/// Without them.
pub fn material(rig: &Rig) -> Material {
    let file = |name: &str| rig.path().join("pki").join(name);
    let certificates = |name: &str| -> Vec<CertificateDer<'static>> {
        let all = CertificateDer::pem_file_iter(file(name)).expect("the rig's certificates");
        all.map(|one| one.expect("the rig's certificates")).collect()
    };
    Material {
        chain: certificates("server.crt"),
        key: PrivateKeyDer::from_pem_file(file("server.key")).expect("the rig's key"),
        peer_roots: certificates("agent-ca.crt"),
    }
}

/// The identity of a server with these keys.
pub fn host(server_id: &str, keys: &EndpointKeys) -> ServerInfo {
    let mut boot = [0; 16];
    boot[..8].copy_from_slice(&keys.mark());
    ServerInfo {
        server_id: server_id.to_owned(),
        software: "tests".to_owned(),
        boot: BootNonce(boot),
        keys_mark: keys.mark(),
        trust_bundle: Vec::new(),
        servers: ServerList::default(),
    }
}

/// Spawns the drivers of a trial's own endpoint on the current runtime.
pub fn spawner() -> Arc<dyn Spawn> {
    Arc::new(TokioSpawner)
}

impl Spawn for TokioSpawner {
    fn spawn(&self, driver: Pin<Box<dyn Future<Output = ()> + Send>>) {
        tokio::spawn(driver);
    }
}
