//! The host cluster: its API, and the namespace in which the controller works.

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::config::Config;

/// The host cluster, and the namespace in which the controller works.
#[derive(Clone)]
pub struct Host {
    /// A client of its API server.
    pub client: Client,
    /// The namespace of the profiles and of the Lease.
    pub namespace: String,
}

/// There is no way to the host cluster.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The kubeconfig cannot be read, or has no such context.
    #[error("--kubeconfig (TOMBOLO_FLEET_KUBECONFIG) names no host cluster")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// This is no pod with a ServiceAccount.
    #[error("this is no pod with a ServiceAccount; give --kubeconfig outside of the host cluster")]
    NotInCluster(#[from] kube::config::InClusterError),
    /// The credentials cannot be used.
    #[error("there is no client for the host cluster")]
    Client(#[from] kube::Error),
}

impl Host {
    /// Finds the host cluster. It is not asked yet.
    ///
    /// # Errors
    /// [`HostError`]
    pub async fn find(config: &Config) -> Result<Self, HostError> {
        let found = match &config.kubeconfig {
            Some(file) => {
                let context =
                    KubeConfigOptions { context: config.context.clone(), ..KubeConfigOptions::default() };
                kube::Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &context).await?
            }
            None => kube::Config::incluster()?,
        };
        let namespace = config.namespace.clone().unwrap_or_else(|| found.default_namespace.clone());
        Ok(Self { client: Client::try_from(found)?, namespace })
    }
}
