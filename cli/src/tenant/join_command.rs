//! `tombolo tenant join-command`: prints the command by which a machine joins a tenant as a worker.

use std::net::SocketAddr;
use std::time::SystemTime;

use super::facts;
use super::host::{Host, HostError};
use super::inside::{InsideError, TenantApi};
use super::pki::PkiError;
use super::record::{RecordError, TenantRecord};
use super::roots::{self, RootsError};
use crate::args::TenantJoinCommand;
use crate::node::{self, JoinCommandError};
use crate::runtime::{self, RuntimeError};

/// There is no command to print.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TenantJoinError {
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
    #[error(transparent)]
    Command(#[from] JoinCommandError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// Makes a token in the tenant, and returns the command with it.
///
/// # Errors
/// [`TenantJoinError`]
pub(crate) fn join_command(args: &TenantJoinCommand) -> Result<String, TenantJoinError> {
    let name = args.tenant.name.as_str();
    let host = Host::find(&args.tenant.host, name)?;
    let tenant = TenantRecord::read(&host, name)?;
    let roots = roots::read(&host, name)?;
    let port = tenant.ports.first();
    let api_servers: Vec<String> = facts::control_plane_nodes(&host)?
        .iter()
        .map(|node| SocketAddr::new(node.address, port).to_string())
        .collect();
    let credential = roots.short_administrator(SystemTime::now())?;
    let (server, ca) = (args.tenant.server.as_deref(), roots.cluster.certificate_pem());
    runtime::run(async |scope| {
        let mut api = TenantApi::connect(&host, &tenant, server, ca, &credential, scope).await?;
        Ok(node::join_command_of(&mut api.cluster, &api_servers, args.only_lb, args.ttl).await?)
    })?
}
