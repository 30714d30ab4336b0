//! Finds the bearer token of a request, and refuses more than one.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::{AUTHORIZATION, UPGRADE};
use proto::headers::{bearer_subprotocols, offers_subprotocol};

use super::error::{NotAuthenticated, SubprotocolError};

/// The credential in the headers of a request.
pub(super) enum SentCredential<'a> {
    /// The value of its Authorization header.
    Authorization(&'a [u8]),
    /// A token out of the WebSocket subprotocols, which is where a browser can put one.
    /// <https://github.com/kubernetes/kubernetes/pull/47740>
    Subprotocol(Vec<u8>),
}

impl<'a> SentCredential<'a> {
    /// The credential in these headers, if there is at most one.
    pub(super) fn from_headers(headers: &'a HeaderMap) -> Result<Option<Self>, NotAuthenticated> {
        let mut authorizations = headers.get_all(AUTHORIZATION).iter();
        let (authorization, None) = (authorizations.next(), authorizations.next()) else {
            return Err(NotAuthenticated::TwoAuthorizations);
        };
        match (authorization, subprotocol(headers)?) {
            (Some(_), Some(_)) => Err(NotAuthenticated::TwoCredentials),
            (Some(value), None) => Ok(Some(Self::Authorization(value.as_bytes()))),
            (None, Some(token)) => Ok(Some(Self::Subprotocol(token))),
            (None, None) => Ok(None),
        }
    }

    /// The token; `None` if the credential is of another kind.
    pub(super) fn token(&self) -> Option<&[u8]> {
        match self {
            Self::Authorization(value) => {
                let (scheme, token) = value.split_at_checked(b"Bearer ".len())?;
                scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
            }
            Self::Subprotocol(token) => Some(token),
        }
    }
}

/// The token that a WebSocket request offers as a subprotocol. In other requests the header has no meaning.
fn subprotocol(headers: &HeaderMap) -> Result<Option<Vec<u8>>, SubprotocolError> {
    if !headers.get(UPGRADE).is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket")) {
        return Ok(None);
    }
    let mut tokens = bearer_subprotocols(headers);
    match (tokens.next(), tokens.next()) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(SubprotocolError::Two),
        (Some(_), None) if !offers_subprotocol(headers) => Err(SubprotocolError::Alone),
        (Some(token), None) => {
            URL_SAFE_NO_PAD.decode(token).map(Some).map_err(|_| SubprotocolError::Encoding)
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::SEC_WEBSOCKET_PROTOCOL;

    use super::*;

    const MARK: &str = "base64url.bearer.authorization.k8s.io.";

    /// In requests of other protocols the header has no token.
    #[test]
    fn a_websocket_request_can_have_its_token_beside_its_subprotocol() {
        let token = URL_SAFE_NO_PAD.encode("sesame");
        for offered in [
            &[format!("{MARK}{token}, v5.channel.k8s.io")][..],
            &[format!("v5.channel.k8s.io,{MARK}{token}")],
            &["v5.channel.k8s.io".to_owned(), format!("{MARK}{token}")],
        ] {
            assert_eq!(sent("WebSocket", offered), Ok(Some(b"sesame".to_vec())), "{offered:?}");
            assert_eq!(sent("SPDY/3.1", offered), Ok(None), "{offered:?}");
        }
        assert_eq!(sent("websocket", &["v5.channel.k8s.io".to_owned()]), Ok(None), "no token");
    }

    #[test]
    fn only_one_base64url_token_beside_a_subprotocol_is_accepted() {
        use SubprotocolError::{Alone, Encoding, Two};

        let one = format!("{MARK}{}", URL_SAFE_NO_PAD.encode("sesame"));
        for (offered, fault) in [
            (one.clone(), Alone),
            (format!("{one}, "), Alone),
            (format!("{one}, {one}, v5.channel.k8s.io"), Two),
            (format!("{one}, {one}"), Two),
            (format!("{MARK}c2VzYW1lMQ==, v5.channel.k8s.io"), Encoding),
            (format!("{MARK}?, v5.channel.k8s.io"), Encoding),
        ] {
            assert_eq!(sent("websocket", std::slice::from_ref(&offered)), Err(fault.into()), "{offered}");
        }
    }

    #[test]
    fn a_subprotocol_token_beside_an_authorization_is_refused() {
        let mut headers = offering("websocket", &[format!("{MARK}c2VzYW1l, v5.channel.k8s.io")]);
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer sesame"));
        assert_eq!(SentCredential::from_headers(&headers).err(), Some(NotAuthenticated::TwoCredentials));
    }

    fn sent(upgrade: &str, offered: &[String]) -> Result<Option<Vec<u8>>, NotAuthenticated> {
        let headers = offering(upgrade, offered);
        Ok(SentCredential::from_headers(&headers)?.and_then(|sent| sent.token().map(<[u8]>::to_vec)))
    }

    fn offering(upgrade: &str, offered: &[String]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(UPGRADE, upgrade.parse().unwrap());
        for value in offered {
            headers.append(SEC_WEBSOCKET_PROTOCOL, value.parse().unwrap());
        }
        headers
    }
}
