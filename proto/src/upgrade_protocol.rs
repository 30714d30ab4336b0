//! Decides which HTTP upgrades may cross a tunnel, and whether a response accepts one.
//!
//! Kubernetes upgrades to two protocols only: WebSocket (RFC 6455) and SPDY/3.1. Bytes after an upgrade
//! request flow only once the API server has answered `101` for that very protocol; everything else closes
//! the connection.

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::{Method, StatusCode};

/// A protocol to which a connection may be upgraded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UpgradeProtocol {
    /// The WebSocket protocol, RFC 6455.
    WebSocket,
    /// kubectl's older framing of exec, attach and port-forward.
    Spdy31,
}

/// The reason why a request's upgrade is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpgradeError {
    /// A protocol that Kubernetes does not use, or several.
    #[error("only upgrades to websocket and SPDY/3.1 are passed on, one at a time")]
    Protocol,
    /// `Upgrade` without `Connection: upgrade`, or the other way round.
    #[error("an upgrade needs both headers, `Upgrade` and `Connection: upgrade`")]
    HalfAsked,
    /// Not a GET or POST.
    #[error("an upgrade must be a GET or a POST")]
    Method,
    /// Bytes that could be read as a body, or as what follows the upgrade.
    #[error("an upgrade request must not have a body")]
    Body,
}

impl UpgradeProtocol {
    /// The token of the `Upgrade` header.
    #[must_use]
    pub fn token(self) -> HeaderValue {
        match self {
            Self::WebSocket => HeaderValue::from_static("websocket"),
            Self::Spdy31 => HeaderValue::from_static("SPDY/3.1"),
        }
    }

    /// The upgrade that a request asks for, if any.
    ///
    /// # Errors
    /// `UpgradeError`; such a request is refused and its connection closed.
    pub fn requested(method: &Method, headers: &HeaderMap) -> Result<Option<Self>, UpgradeError> {
        let connection_says = mentions_upgrade(headers);
        if !headers.contains_key(UPGRADE) && !connection_says {
            return Ok(None);
        }
        let mut tokens = headers.get_all(UPGRADE).iter();
        let (Some(token), None) = (tokens.next(), tokens.next()) else {
            return Err(UpgradeError::HalfAsked);
        };
        let protocol = Self::from_token(token).ok_or(UpgradeError::Protocol)?;
        if !connection_says {
            return Err(UpgradeError::HalfAsked);
        }
        if method != Method::GET && method != Method::POST {
            return Err(UpgradeError::Method);
        }
        let no_length = headers.get_all(CONTENT_LENGTH).iter().all(|length| length == "0");
        if headers.contains_key(TRANSFER_ENCODING) || !no_length {
            return Err(UpgradeError::Body);
        }
        Ok(Some(protocol))
    }

    /// Returns true if an answer accepts this upgrade: `101`, `Connection: upgrade`, and this protocol alone.
    #[must_use]
    pub fn is_accepted_by(self, status: StatusCode, headers: &HeaderMap) -> bool {
        let mut tokens = headers.get_all(UPGRADE).iter();
        status == StatusCode::SWITCHING_PROTOCOLS
            && mentions_upgrade(headers)
            && tokens.next().and_then(Self::from_token) == Some(self)
            && tokens.next().is_none()
    }

    fn from_token(token: &HeaderValue) -> Option<Self> {
        let token = token.to_str().ok()?.trim();
        [Self::WebSocket, Self::Spdy31]
            .into_iter()
            .find(|protocol| protocol.token().to_str().is_ok_and(|known| token.eq_ignore_ascii_case(known)))
    }
}

fn mentions_upgrade(headers: &HeaderMap) -> bool {
    headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|option| option.trim().eq_ignore_ascii_case("upgrade"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_protocols_of_kubernetes_are_recognized_in_any_case() {
        for (token, protocol) in [
            ("websocket", UpgradeProtocol::WebSocket),
            ("WebSocket", UpgradeProtocol::WebSocket),
            ("SPDY/3.1", UpgradeProtocol::Spdy31),
        ] {
            let headers = map(&[("upgrade", token), ("connection", "keep-alive, Upgrade")]);
            assert_eq!(UpgradeProtocol::requested(&Method::GET, &headers), Ok(Some(protocol)));
        }
    }

    #[test]
    fn an_ordinary_request_asks_for_no_upgrade() {
        assert_eq!(
            UpgradeProtocol::requested(&Method::DELETE, &map(&[("connection", "keep-alive")])),
            Ok(None)
        );
    }

    #[test]
    fn kubectls_spdy_post_with_a_length_of_zero_passes() {
        let headers = map(&[("upgrade", "SPDY/3.1"), ("connection", "Upgrade"), ("content-length", "0")]);
        assert_eq!(UpgradeProtocol::requested(&Method::POST, &headers), Ok(Some(UpgradeProtocol::Spdy31)));
    }

    #[test]
    fn every_other_way_to_ask_is_refused() {
        let asks: [(&[(&str, &str)], UpgradeError); 8] = [
            (&[("upgrade", "h2c"), ("connection", "upgrade")], UpgradeError::Protocol),
            (&[("upgrade", "websocket, SPDY/3.1"), ("connection", "upgrade")], UpgradeError::Protocol),
            (
                &[("upgrade", "websocket"), ("upgrade", "SPDY/3.1"), ("connection", "upgrade")],
                UpgradeError::HalfAsked,
            ),
            (&[("upgrade", "websocket")], UpgradeError::HalfAsked),
            (&[("connection", "upgrade")], UpgradeError::HalfAsked),
            (
                &[("upgrade", "websocket"), ("connection", "upgrade"), ("content-length", "1")],
                UpgradeError::Body,
            ),
            (
                &[("upgrade", "websocket"), ("connection", "upgrade"), ("content-length", "+0")],
                UpgradeError::Body,
            ),
            (
                &[("upgrade", "websocket"), ("connection", "upgrade"), ("transfer-encoding", "chunked")],
                UpgradeError::Body,
            ),
        ];
        for (headers, fault) in asks {
            assert_eq!(UpgradeProtocol::requested(&Method::GET, &map(headers)), Err(fault), "{headers:?}");
        }
        let headers = map(&[("upgrade", "websocket"), ("connection", "upgrade")]);
        assert_eq!(UpgradeProtocol::requested(&Method::PUT, &headers), Err(UpgradeError::Method));
    }

    #[test]
    fn only_a_101_for_the_same_protocol_accepts() {
        let right = map(&[("upgrade", "websocket"), ("connection", "upgrade")]);
        let no_connection = map(&[("upgrade", "websocket")]);
        let both = map(&[("upgrade", "websocket"), ("upgrade", "SPDY/3.1"), ("connection", "upgrade")]);

        assert!(UpgradeProtocol::WebSocket.is_accepted_by(StatusCode::SWITCHING_PROTOCOLS, &right));
        assert!(!UpgradeProtocol::Spdy31.is_accepted_by(StatusCode::SWITCHING_PROTOCOLS, &right));
        assert!(!UpgradeProtocol::WebSocket.is_accepted_by(StatusCode::OK, &right));
        assert!(!UpgradeProtocol::WebSocket.is_accepted_by(StatusCode::SWITCHING_PROTOCOLS, &no_connection));
        assert!(!UpgradeProtocol::WebSocket.is_accepted_by(StatusCode::SWITCHING_PROTOCOLS, &both));
    }

    fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }
}
