//! `tombolo tenant join-command`: prints the command by which a machine joins a tenant as a worker.

use super::created::{CreatedTenant, TenantError};
use super::host::HostError;
use crate::args::TenantJoinCommand;
use crate::node::{self, JoinCommandError};
use crate::runtime::{self, RuntimeError};

/// There is no command to print.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TenantJoinError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Tenant(#[from] TenantError),
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
    let tenant = CreatedTenant::find(&args.tenant.host, args.tenant.name.as_str())?;
    let api_servers: Vec<String> =
        tenant.api_servers()?.into_iter().map(|(_, address)| address.to_string()).collect();
    runtime::run(async |scope| {
        let mut api = tenant.connect(args.tenant.server.as_deref(), scope).await?;
        Ok(node::join_command_of(&mut api.cluster, &api_servers, args.only_lb, args.ttl).await?)
    })?
}
