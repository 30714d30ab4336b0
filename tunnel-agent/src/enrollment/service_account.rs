//! The pod's ServiceAccount: the token for the enrollment server, and the issuer whose keys verify it.

use std::path::PathBuf;
use std::sync::Arc;

use proto::enrollment::ISSUER_KEYS_BYTES_MAX;
use serde::Deserialize;

use super::token_file::{self, TokenFile, TokenFileError};
use crate::apiserver::{ApiServer, DocumentError};

/// Largest file with a ServiceAccount's token, in bytes.
const TOKEN_BYTES_MAX: u64 = 16 * 1024;

/// Path of the document that names the issuer of an API server's tokens (OpenID Connect Discovery 1.0,
/// section 4).
const DISCOVERY: &str = "/.well-known/openid-configuration";

/// Path of the issuer's keys for the cluster's own pods. The document above may name another address.
const KEYS: &str = "/openid/v1/jwks";

/// Largest issuer document, in bytes. Real ones have less than 1 KiB.
const DISCOVERY_BYTES_MAX: usize = 16 * 1024;

/// The ServiceAccount of the agent's pod.
pub(super) struct ServiceAccount {
    token: Arc<TokenFile>,
    api_server: ApiServer,
}

/// The issuer of a cluster's ServiceAccount tokens.
pub(super) struct Issuer {
    pub(super) name: String,
    /// A JSON Web Key Set.
    pub(super) keys: Vec<u8>,
}

/// The issuer could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum IssuerError {
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error("{DISCOVERY} names no issuer")]
    Nameless(#[source] serde_json::Error),
}

impl ServiceAccount {
    pub(super) fn new(path: PathBuf, api_server: ApiServer) -> Self {
        Self { token: Arc::new(TokenFile::at(path, TOKEN_BYTES_MAX)), api_server }
    }

    /// The current token. Kubernetes replaces it every few minutes.
    pub(super) async fn token(&self) -> Result<String, TokenFileError> {
        token_file::read(&self.token).await
    }

    /// The issuer and its keys, from the cluster's own API server.
    pub(super) async fn issuer(&self) -> Result<Issuer, IssuerError> {
        #[derive(Deserialize)]
        struct OpenIdConfiguration {
            issuer: String,
        }
        let document = self.api_server.document(DISCOVERY, DISCOVERY_BYTES_MAX).await?;
        let OpenIdConfiguration { issuer } =
            serde_json::from_slice(&document).map_err(IssuerError::Nameless)?;
        Ok(Issuer { name: issuer, keys: self.issuer_keys().await? })
    }

    /// The current keys of the issuer.
    pub(super) async fn issuer_keys(&self) -> Result<Vec<u8>, DocumentError> {
        Ok(self.api_server.document(KEYS, ISSUER_KEYS_BYTES_MAX).await?.to_vec())
    }
}
