//! A tenant that has been created: its record and CAs in the host cluster, and the connection of an administrator to its API server.

use std::net::SocketAddr;
use std::time::SystemTime;

use daemon::Scope;

use super::facts;
use super::host::{Host, HostError};
use super::inside::{InsideError, TenantApi};
use super::pki::{PkiError, TenantRoots};
use super::record::{RecordError, TenantRecord};
use super::roots::{self, RootsError};
use crate::args::HostCluster;

/// A tenant with everything that the host cluster has on record for it.
pub(super) struct CreatedTenant {
    pub(super) host: Host,
    pub(super) record: TenantRecord,
    pub(super) roots: TenantRoots,
}

/// A tenant cannot be read, or its API server cannot be reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TenantError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Roots(#[from] RootsError),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    Inside(#[from] InsideError),
}

impl CreatedTenant {
    /// Finds the person's programs, and reads the tenant of this name.
    ///
    /// # Errors
    /// [`TenantError`]
    pub(super) fn find(args: &HostCluster, name: &str) -> Result<Self, TenantError> {
        let host = Host::find(args, name)?;
        let record = TenantRecord::read(&host, name)?;
        let roots = roots::read(&host, name)?;
        Ok(Self { host, record, roots })
    }

    /// The API servers: the name of each node that carries one, and its address there.
    ///
    /// # Errors
    /// [`HostError`]
    pub(super) fn api_servers(&self) -> Result<Vec<(String, SocketAddr)>, HostError> {
        let port = self.record.ports.first();
        let nodes = facts::control_plane_nodes(&self.host)?.into_iter();
        Ok(nodes.map(|node| (node.name, SocketAddr::new(node.address, port))).collect())
    }

    /// Connects as an administrator for some minutes. `server` is the URL of the API server, if it is not reached by kubectl.
    ///
    /// # Errors
    /// [`TenantError`]
    pub(super) async fn connect(
        &self,
        server: Option<&str>,
        scope: &Scope,
    ) -> Result<TenantApi, TenantError> {
        let credential = self.roots.short_administrator(SystemTime::now())?;
        let ca = self.roots.cluster.trusted_pem();
        Ok(TenantApi::connect(&self.host, &self.record, server, &ca, &credential, scope).await?)
    }
}
