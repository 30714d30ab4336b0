//! The reasons why a dial fails, and their texts for the agent's log.

use std::io;
use std::time::Duration;

use proto::CloseCode;
use proto::wire::Refused;
use trust::OutsideValidity;

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
    /// The server's certificate is not valid by this machine's clock.
    #[error("the server's certificate {0}")]
    Clock(OutsideValidity),
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

/// The error for a server's certificate that this side's verifier refuses. `reason` is rustls' text, because
/// QUIC passes nothing else on.
pub(super) fn untrusted(reason: &str) -> DialError {
    if let Some(outside) = outside_validity(reason) {
        return DialError::Clock(outside);
    }
    // Without the names of rustls's types around our own verifier's text.
    let ours = reason.split_once("Other(OtherError(").and_then(|(_, ours)| ours.strip_suffix("))"));
    DialError::Untrusted(ours.unwrap_or(reason).to_owned())
}

/// The distance in rustls' text about a certificate that is expired or not valid yet.
fn outside_validity(reason: &str) -> Option<OutsideValidity> {
    let seconds = |text: &str| {
        let (_, span) = text.rsplit_once('(')?;
        Some(Duration::from_secs(span.split(' ').next()?.parse().ok()?))
    };
    let expired = reason.split_once("certificate expired: ").and_then(|(_, rest)| seconds(rest));
    let not_yet = || reason.split_once("certificate not valid yet: ").and_then(|(_, rest)| seconds(rest));
    expired.map(OutsideValidity::Expired).or_else(|| not_yet().map(OutsideValidity::NotYet))
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::UnixTime;
    use rustls::{CertificateError, Error};

    use super::*;

    /// The texts are those of the linked rustls: another wording of it is noticed here.
    #[test]
    fn a_clock_that_is_ahead_or_behind_is_told_from_an_untrusted_server() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let day = Duration::from_secs(86_400);
        let expired = CertificateError::ExpiredContext { time: at(186_400), not_after: at(100_000) };
        let not_yet = CertificateError::NotValidYetContext { time: at(100_000), not_before: at(186_400) };

        for (error, outside, word) in [
            (expired, OutsideValidity::Expired(day), "ahead"),
            (not_yet, OutsideValidity::NotYet(day), "behind"),
        ] {
            // Over TCP the error comes by itself, and over QUIC in the text of rustls' own error.
            for text in [error.to_string(), Error::from(error.clone()).to_string()] {
                let dialed = untrusted(&text);
                assert!(matches!(dialed, DialError::Clock(found) if found == outside), "{text}");
                assert!(dialed.to_string().contains(&format!("clock is {word} by")), "{dialed}");
            }
        }
        for error in [CertificateError::UnknownIssuer, CertificateError::Expired] {
            let dialed = untrusted(&error.to_string());
            assert!(matches!(dialed, DialError::Untrusted(_)), "{dialed}");
        }
    }
}
