//! Fuzz targets for the credentials of callers.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::bearer::SentCredential;

/// Random inputs that `make test` tries, beside the corpus. `make fuzz` sets another number by the
/// environment.
const ITERATIONS: usize = 2_000;

/// A request has at most one token, and only where it stands completely.
#[test]
fn bearers() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::UPGRADE, HeaderValue::from_static("websocket"));
        for line in bytes.split(|byte| *byte == b'\n') {
            let name = if line.first() == Some(&b'a') { "authorization" } else { "sec-websocket-protocol" };
            if let Ok(value) = HeaderValue::from_bytes(line.get(1..).unwrap_or_default()) {
                headers.append(HeaderName::from_static(name), value);
            }
        }
        let Ok(sent) = SentCredential::from_headers(&headers) else { return };
        let authorizations = headers.get_all("authorization").iter().count();
        match sent {
            Some(SentCredential::Authorization(value)) => {
                assert_eq!((authorizations, value), (1, headers["authorization"].as_bytes()));
            }
            Some(SentCredential::Subprotocol(token)) => {
                assert_eq!(authorizations, 0);
                let offered =
                    format!("base64url.bearer.authorization.k8s.io.{}", URL_SAFE_NO_PAD.encode(token));
                let mut values = headers.get_all("sec-websocket-protocol").iter();
                assert!(values.any(|value| value.to_str().is_ok_and(|text| text.contains(&offered))));
            }
            None => assert_eq!(authorizations, 0),
        }
    });
}
