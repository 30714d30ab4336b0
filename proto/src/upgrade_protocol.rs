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
    /// One of these protocols beside another one, so that it is unclear which one the bytes behind the request
    /// are of.
    #[error("an upgrade to websocket or SPDY/3.1 is passed on if it is the only one that a request offers")]
    Protocol,
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

    /// The upgrade that a request asks for, if any. `Connection: upgrade` without `Upgrade`, `Upgrade` without
    /// `Connection: upgrade`, and other protocols ask for nothing: a server may ignore an upgrade (RFC 9110,
    /// section 7.8), as an API server does. [`clean_request`](crate::headers::clean_request) removes both
    /// headers, so that no later server sees them.
    ///
    /// # Errors
    /// `UpgradeError`; such a request is refused and its connection closed.
    pub fn requested(method: &Method, headers: &HeaderMap) -> Result<Option<Self>, UpgradeError> {
        let offered: Vec<Option<Self>> = offered(headers).collect();
        let Some(protocol) = offered.iter().copied().flatten().next() else {
            return Ok(None);
        };
        if !mentions_upgrade(headers) {
            return Ok(None);
        }
        if offered.len() > 1 {
            return Err(UpgradeError::Protocol);
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
        Self::from_name(token.to_str().ok()?)
    }

    fn from_name(name: &str) -> Option<Self> {
        let token = name.trim();
        [Self::WebSocket, Self::Spdy31]
            .into_iter()
            .find(|protocol| protocol.token().to_str().is_ok_and(|known| token.eq_ignore_ascii_case(known)))
    }
}

/// The protocols that a request offers, each with `None` if it is none of ours. A value that is no text counts
/// as one protocol.
fn offered(headers: &HeaderMap) -> impl Iterator<Item = Option<UpgradeProtocol>> {
    let values = headers.get_all(UPGRADE).iter().map(|value| value.to_str().unwrap_or_default());
    values.flat_map(|value| value.split(',')).map(UpgradeProtocol::from_name)
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
    use crate::headers::clean_request;

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
    fn an_upgrade_that_nobody_offers_in_full_or_serves_is_no_upgrade() {
        let asks: [&[(&str, &str)]; 9] = [
            &[("connection", "upgrade")],
            &[("connection", "keep-alive, Upgrade")],
            &[("connection", "upgrade"), ("upgrade", "")],
            &[("upgrade", "websocket")],
            &[("upgrade", "websocket, SPDY/3.1")],
            &[("upgrade", "h2c"), ("connection", "Upgrade, HTTP2-Settings"), ("http2-settings", "AAMAAABk")],
            &[("upgrade", "TLS/1.2, h2c"), ("connection", "upgrade")],
            &[("upgrade", "websocket/13"), ("connection", "upgrade")],
            &[("upgrade", "h2c"), ("upgrade", "tcp"), ("connection", "upgrade")],
        ];
        for headers in asks {
            for method in [Method::GET, Method::POST, Method::DELETE] {
                let mut headers = map(headers);
                headers.insert(CONTENT_LENGTH, HeaderValue::from_static("5"));
                assert_eq!(UpgradeProtocol::requested(&method, &headers), Ok(None), "{headers:?}");
                clean_request(&mut headers).unwrap();
                assert_eq!(headers.len(), 1, "{headers:?}");
            }
        }
    }

    #[test]
    fn kubectls_spdy_post_with_a_length_of_zero_passes() {
        let headers = map(&[("upgrade", "SPDY/3.1"), ("connection", "Upgrade"), ("content-length", "0")]);
        assert_eq!(UpgradeProtocol::requested(&Method::POST, &headers), Ok(Some(UpgradeProtocol::Spdy31)));
    }

    #[test]
    fn an_upgrade_that_may_be_taken_for_another_is_refused() {
        let asks: [(&[(&str, &str)], UpgradeError); 6] = [
            (&[("upgrade", "websocket, SPDY/3.1"), ("connection", "upgrade")], UpgradeError::Protocol),
            (&[("upgrade", "h2c, websocket"), ("connection", "upgrade")], UpgradeError::Protocol),
            (
                &[("upgrade", "websocket"), ("upgrade", "SPDY/3.1"), ("connection", "upgrade")],
                UpgradeError::Protocol,
            ),
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
