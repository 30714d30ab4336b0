//! The errors of requests to the API server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use proto::AbortCode;

use super::limits::CONNECTIONS_MAX;

/// The API server gave no answer, or an incomplete one.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ApiServerError {
    /// No connection could be made.
    #[error(
        "cannot connect to the API server at {authority}; check that it runs and can be reached from here"
    )]
    Unreachable {
        /// The server's address as `host:port`.
        authority: Authority,
        /// The error of the operating system.
        source: Arc<io::Error>,
    },
    /// The limit of connections is reached, and all are in use.
    #[error("all {CONNECTIONS_MAX} connections to the API server are in use")]
    Full,
    /// The API server accepted the connection and sent nothing in time.
    #[error("the API server did not answer within {} s", .0.as_secs_f32())]
    Silent(Duration),
    /// The server's certificate does not chain to the CA.
    #[error("the API server at {authority} could not be verified: {cause}")]
    Untrusted {
        /// The server's address as `host:port`.
        authority: Authority,
        /// The code that says what is wrong with it.
        cause: AbortCode,
        /// The error that TLS reported.
        source: Arc<rustls::Error>,
    },
    /// The server refused the agent's certificate.
    #[error("the API server at {authority} refused the agent's certificate; renew it")]
    NoCredential {
        /// The server's address as `host:port`.
        authority: Authority,
        /// The error that TLS reported.
        source: Arc<rustls::Error>,
    },
    /// The API server refused the credential that the agent showed, and again when it was asked about nothing
    /// else. A 401 would tell the caller that its own was refused, which the API server never saw.
    #[error(
        "the API server refused the agent's credential; check its ServiceAccount token, or its kubeconfig"
    )]
    CredentialRefused,
    /// The API server has processed nothing of the request, as it says itself, or because no byte was written.
    /// The request was sent as often as it may be, or the part of its body that was sent is not kept.
    #[error("the API server did not process the request, on any connection")]
    NotProcessed,
    /// The connection broke before the answer's end.
    #[error("the connection to the API server broke")]
    Lost(#[source] Arc<hyper::Error>),
    /// The answer ended before its end, and the server gave no reason.
    #[error("the API server's answer ended too early")]
    CutShort,
    /// The answer breaks HTTP, or does not fit the request.
    #[error("the API server's answer breaks HTTP: {0}")]
    ProtocolError(&'static str),
    /// The request's own body broke, so it was not sent completely.
    #[error("the request ended too early")]
    CallerGone,
}

impl ApiServerError {
    /// The code with which the stream is aborted.
    #[must_use]
    pub fn code(&self) -> AbortCode {
        match self {
            Self::Unreachable { .. } | Self::Full => AbortCode::ApiServerUnreachable,
            Self::Silent(_) => AbortCode::ApiServerSilent,
            Self::Untrusted { cause, .. } => *cause,
            Self::NoCredential { .. } | Self::CredentialRefused => AbortCode::NoCredential,
            Self::NotProcessed => AbortCode::ApiServerNotProcessed,
            Self::Lost(_) | Self::CutShort => AbortCode::ApiServerLost,
            Self::ProtocolError(_) => AbortCode::ApiServerProtocolError,
            Self::CallerGone => AbortCode::Abandoned,
        }
    }
}

impl From<&ApiServerError> for AbortCode {
    fn from(error: &ApiServerError) -> Self {
        error.code()
    }
}
