//! The pod's ServiceAccount: the token by which it proves itself at the enrollment door, and the issuer that vouches for it.

use std::path::PathBuf;
use std::sync::Arc;

use proto::enrollment::ISSUER_KEYS_BYTES_MAX;
use serde::Deserialize;

use super::token::{self, TokenFile, Unread};
use crate::apiserver::{ApiServer, DocumentError};

/// Largest file with a ServiceAccount's token.
const TOKEN_BYTES_MAX: u64 = 16 * 1024;

/// Where an API server says who issues its tokens (OpenID Connect Discovery 1.0, section 4).
const DISCOVERY: &str = "/.well-known/openid-configuration";

/// Where it shows the issuer's keys to the cluster's own pods. What the document names may be elsewhere.
const KEYS: &str = "/openid/v1/jwks";

/// Largest of the first; real ones have less than 1 KiB.
const DISCOVERY_BYTES_MAX: usize = 16 * 1024;

/// What a pod can show of itself.
pub(super) struct Workload {
    token: Arc<TokenFile>,
    api_server: ApiServer,
}

/// Who vouches for a cluster's pods.
pub(super) struct Issuer {
    pub(super) name: String,
    /// A JSON Web Key Set.
    pub(super) keys: Vec<u8>,
}

/// Why the issuer is not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoIssuer {
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error("{DISCOVERY} names no issuer")]
    Nameless(#[source] serde_json::Error),
}

impl Workload {
    pub(super) fn new(token_file: PathBuf, api_server: ApiServer) -> Self {
        Self { token: Arc::new(TokenFile::at(token_file, TOKEN_BYTES_MAX)), api_server }
    }

    /// The token as it is now: Kubernetes puts another one there every few minutes.
    pub(super) async fn token(&self) -> Result<String, Unread> {
        token::read(&self.token).await
    }

    /// The issuer as the cluster's own API server has it.
    pub(super) async fn issuer(&self) -> Result<Issuer, NoIssuer> {
        #[derive(Deserialize)]
        struct Discovery {
            issuer: String,
        }
        let document = self.api_server.document(DISCOVERY, DISCOVERY_BYTES_MAX).await?;
        let Discovery { issuer } = serde_json::from_slice(&document).map_err(NoIssuer::Nameless)?;
        Ok(Issuer { name: issuer, keys: self.issuer_keys().await? })
    }

    /// The issuer's keys as they are now.
    pub(super) async fn issuer_keys(&self) -> Result<Vec<u8>, DocumentError> {
        Ok(self.api_server.document(KEYS, ISSUER_KEYS_BYTES_MAX).await?.to_vec())
    }
}
