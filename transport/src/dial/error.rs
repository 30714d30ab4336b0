//! The reasons why a dial fails, and their texts for the agent's log.

use std::io;

use proto::CloseCode;
use proto::wire::Refused;

use super::proxy::ProxyError;
use crate::error::TunnelEnded;

/// The reason why a dial did not lead to a tunnel.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name cannot stand in a certificate.
    #[error("{0:?} is not a server name")]
    Name(String),
    /// No packet of the server came back.
    #[error("no answer: check that UDP to this address is allowed, and that the server runs")]
    NoAnswer,
    /// The TCP connection failed, or broke before TLS was agreed on.
    #[error("no TCP connection: check that TCP to this address is allowed, and that the server runs")]
    Tcp(#[source] io::Error),
    /// The proxy on the way opened no connection.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The server refuses the handshake; the text explains its TLS alert.
    #[error("the server refuses the handshake: {0}")]
    Rejected(String),
    /// The server's certificate is not what was asked for.
    #[error(
        "the server cannot be trusted: {0}; check tls.serverCAFile and serverName, and that nothing in between opens TLS"
    )]
    Untrusted(String),
    /// The handshake broke for another reason.
    #[error("the handshake failed: {0}")]
    Handshake(String),
    /// The server accepts no tunnel at the moment; a later dial may succeed, at this server or its successor.
    #[error("the server takes no new tunnel at the moment: it is stopping, or holds as many as it may")]
    ServerUnavailable,
    /// The server accepted the certificate, but cannot use its content, for this reason.
    #[error("turned away by the server: {0}")]
    TurnedAway(String),
    /// The greeting took too long.
    #[error("no Welcome within the deadline")]
    TooSlow,
    /// The server refused the greeting.
    #[error("refused by the server: {}", .0.message)]
    Refused(Refused),
    /// The server's first frame is neither Welcome nor Refused.
    #[error("the server's first frame is not a Welcome")]
    NotAWelcome,
    /// The connection broke in the greeting.
    #[error("the connection broke in the greeting")]
    Broke(#[from] TunnelEnded),
    /// This side failed, before anything was sent.
    #[error("cannot dial")]
    Local(#[source] io::Error),
}

/// The error for a server that closes the connection in place of a Welcome.
pub(super) fn turned_away(code: CloseCode, reason: &str) -> DialError {
    match code {
        CloseCode::Stopping | CloseCode::Drained => DialError::ServerUnavailable,
        CloseCode::NotGreeted
        | CloseCode::Violation
        | CloseCode::Lost
        | CloseCode::KeyCopied
        | CloseCode::Revoked
        | CloseCode::Expired
        | CloseCode::Replaced
        | CloseCode::Unknown(_) => {
            DialError::TurnedAway(reason.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').collect())
        }
    }
}

/// The reason why a server's certificate is not trusted, without the names of rustls's types around our own
/// verifier's text.
pub(super) fn untrusted(reason: &str) -> String {
    let ours = reason.split_once("Other(OtherError(").and_then(|(_, ours)| ours.strip_suffix("))"));
    ours.unwrap_or(reason).to_owned()
}
