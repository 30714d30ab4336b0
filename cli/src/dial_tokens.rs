//! `tombolo user dial-token`: tokens with which callers without a certificate dial targets in clusters.

pub(crate) mod kubeconfig;

use proto::admin::{CreateDialTokenRequest, CreateDialTokenResponse, DialToken};

use crate::admin::{Admin, AdminError};
use crate::args::{DialTokenCreate, DialTokenList, DialTokenRevoke};
use crate::files::{self, WriteError};
use crate::print;
use crate::runtime::{self, RuntimeError};

/// The error if no dial token was created, listed or revoked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialTokensError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error(
        "the token {id} was created, but it could not be written: revoke it by `tombolo user dial-token revoke {id}`"
    )]
    NotWritten { id: String, source: WriteError },
}

/// Creates a dial token, and writes it to a file of mode 0600.
pub(crate) fn create(args: DialTokenCreate) -> Result<Vec<String>, DialTokensError> {
    let DialTokenCreate { user, clusters, networks, ttl, out, force, server } = args;
    let ttl = prost_types::Duration { seconds: ttl.duration().whole_seconds(), nanos: 0 };
    let request = CreateDialTokenRequest {
        user: user.as_str().to_owned(),
        clusters: clusters.iter().map(ToString::to_string).collect(),
        ttl: Some(ttl),
        networks: networks.iter().map(ToString::to_string).collect(),
    };
    let made = runtime::run(async |scope| {
        Admin::connect(server.endpoint(), scope).await?.create_dial_token(request).await
    })??;
    let CreateDialTokenResponse { token, id, expires } = made;
    files::write_private(&out, &format!("{token}\n"), force)
        .map_err(|source| DialTokensError::NotWritten { id: id.clone(), source })?;
    let expires = expires.map_or_else(String::new, |expires| format!(" and is valid until {expires}"));
    Ok(vec![format!("dial token {id} of {} is in {}{expires}", user.as_str(), out.display())])
}

/// A table of the dial tokens, without their secrets.
pub(crate) fn list(args: &DialTokenList) -> Result<Vec<String>, DialTokensError> {
    let tokens = runtime::run(async |scope| {
        Admin::connect(args.server.endpoint(), scope).await?.dial_tokens().await
    })??;
    if tokens.is_empty() {
        return Ok(Vec::new());
    }
    let mut rows = vec![["ID", "USER", "CLUSTERS", "NETWORKS", "EXPIRES"].map(str::to_owned)];
    rows.extend(tokens.into_iter().map(|token| {
        let DialToken { id, user, clusters, created: _, expires, networks } = token;
        let expires = expires.map_or_else(print::none, |expires| expires.to_string());
        [id, print::visible(&user), print::listed(&clusters), print::listed(&networks), expires]
    }));
    Ok(print::columns(&rows))
}

/// Revokes a dial token by its id.
pub(crate) fn revoke(args: &DialTokenRevoke) -> Result<Vec<String>, DialTokensError> {
    let id = args.id.clone();
    runtime::run(async |scope| {
        Admin::connect(args.server.endpoint(), scope).await?.revoke_dial_token(id).await
    })??;
    Ok(vec![format!("dial token {} is revoked, and the connections that it opened are ended", args.id)])
}
