//! `tombolo user dial-token`: what connects callers without a certificate to targets of clusters.

pub(crate) mod kubeconfig;

use proto::admin::{CreateDialTokenRequest, CreateDialTokenResponse, DialToken};

use crate::admin::{Admin, AdminError};
use crate::args::{DialTokenCreate, DialTokenList, DialTokenRevoke};
use crate::files::{self, WriteError};
use crate::print;
use crate::runtime::{self, NoRuntime};

/// Why there is no dial token, or none less.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialTokensError {
    #[error(transparent)]
    Runtime(#[from] NoRuntime),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error(
        "the token {id} was made and could not be kept: take it away by `tombolo user dial-token revoke {id}`"
    )]
    NotKept { id: String, source: WriteError },
}

/// Makes a dial token, and writes it where only this user reads it.
pub(crate) fn create(order: DialTokenCreate) -> Result<Vec<String>, DialTokensError> {
    let DialTokenCreate { user, clusters, networks, ttl, out, force, server } = order;
    let ttl = prost_types::Duration { seconds: ttl.duration().whole_seconds(), nanos: 0 };
    let request = CreateDialTokenRequest {
        user: user.as_str().to_owned(),
        clusters: clusters.iter().map(ToString::to_string).collect(),
        ttl: Some(ttl),
        networks: networks.iter().map(ToString::to_string).collect(),
    };
    let made = runtime::run(async |scope| {
        Admin::connect(server.place(), scope).await?.create_dial_token(request).await
    })??;
    let CreateDialTokenResponse { token, id, expires } = made;
    files::write_private(&out, &format!("{token}\n"), force)
        .map_err(|source| DialTokensError::NotKept { id: id.clone(), source })?;
    let expires = expires.map_or_else(String::new, |expires| format!(" and holds until {expires}"));
    Ok(vec![format!("dial token {id} of {} is in {}{expires}", user.as_str(), out.display())])
}

/// The dial tokens that are kept, one line each.
pub(crate) fn list(order: &DialTokenList) -> Result<Vec<String>, DialTokensError> {
    let tokens =
        runtime::run(async |scope| Admin::connect(order.server.place(), scope).await?.dial_tokens().await)??;
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

/// Takes a dial token away.
pub(crate) fn revoke(order: &DialTokenRevoke) -> Result<Vec<String>, DialTokensError> {
    let id = order.id.clone();
    runtime::run(async |scope| {
        Admin::connect(order.server.place(), scope).await?.revoke_dial_token(id).await
    })??;
    Ok(vec![format!("dial token {} is of no use any more, and what ran by it is ended", order.id)])
}
