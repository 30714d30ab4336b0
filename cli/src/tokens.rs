//! `tombolo token`: tokens with which agents enroll.

use proto::admin::Token;

use crate::admin::{Admin, AdminError};
use crate::args::{TokenCreate, TokenList, TokenOutput, TokenRevoke};
use crate::files::WriteError;
use crate::print;
use crate::runtime::{self, RuntimeError};
use crate::site::{self, NewSite};

/// The error if no token was created, listed or revoked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokensError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error("the token was created, and could not be written")]
    Write(#[from] WriteError),
}

/// Creates a token, and formats what its site needs: as shell commands, as files, or as the flags say.
pub(crate) fn create(args: TokenCreate) -> Result<String, TokensError> {
    let TokenCreate { cluster, ttl, output, dir, force, server } = args;
    let site = runtime::run(async |scope| {
        let mut admin = Admin::connect(server.endpoint(), scope).await?;
        NewSite::gather(&mut admin, cluster, ttl).await
    })??;
    Ok(match (output, dir) {
        (None, Some(directory)) => site::write(&site, &directory, force)?,
        (None, None) => site::commands(&site),
        (Some(TokenOutput::Token), _) => format!("{}\n", site.token),
        (Some(TokenOutput::AgentConfig), _) => site::agent_config(&site),
        (Some(TokenOutput::Manifest), _) => site::secret(&site),
    })
}

/// A table of the tokens, without their secrets.
pub(crate) fn list(args: &TokenList) -> Result<Vec<String>, TokensError> {
    let tokens =
        runtime::run(async |scope| Admin::connect(args.server.endpoint(), scope).await?.tokens().await)??;
    if tokens.is_empty() {
        return Ok(Vec::new());
    }
    let mut rows = vec![["ID", "CLUSTER", "EXPIRES", "USED BY"].map(str::to_owned)];
    rows.extend(tokens.into_iter().map(|token| {
        let Token { id, cluster, created: _, expires, used_by } = token;
        let expires = expires.map_or_else(print::none, |expires| expires.to_string());
        [id, cluster, expires, if used_by.is_empty() { "<nobody>".to_owned() } else { used_by }]
    }));
    Ok(print::columns(&rows))
}

/// Revokes a token that was not used yet.
pub(crate) fn revoke(args: &TokenRevoke) -> Result<Vec<String>, TokensError> {
    let id = args.id.clone();
    runtime::run(async |scope| Admin::connect(args.server.endpoint(), scope).await?.revoke_token(id).await)??;
    Ok(vec![format!("token {} is revoked", args.id)])
}
