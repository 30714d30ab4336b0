//! HTTP CONNECT over TLS. Each connection carries one request, with the dial token as its Basic credential.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use daemon::error_chain;
use daemon::listen::LaneProof;
use http::header::{ALLOW, CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tracing::debug;

use super::{DialProxy, ProxyRefusal, ProxyRequest, ServedConnection};
use crate::dialing::admit::DialRefusal as _;
use crate::dialing::local_stream::from_upgraded;
use crate::dialing::reason_phrase;
use crate::listener::{AcceptedConnection, ConnectionPermit, ListenerLimits};

/// The limits of the listener for HTTP CONNECT. A dial token is a client's proof.
pub const LIMITS: ListenerLimits =
    ListenerLimits { connections_max: 10_000, proof: LaneProof::Credential, ..ListenerLimits::DEFAULT };

/// The longest wait for the head of a request.
const HEAD_MAX: Duration = Duration::from_secs(10);

/// Largest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Most headers of one request.
const HEADERS_MAX: usize = 50;

impl DialProxy {
    /// Serves one connection until it ends or becomes a connection to a target.
    pub async fn serve_connection(self, accepted: AcceptedConnection) {
        let AcceptedConnection { stream, peer, permit, .. } = accepted;
        let (scope, permit) = (self.0.scope.clone(), Arc::new(permit));
        let service = service_fn(|request| {
            let (proxy, permit) = (self.clone(), Arc::clone(&permit));
            async move { Ok::<_, Infallible>(proxy.answer(peer, request, permit).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_MAX)
            .max_headers(HEADERS_MAX)
            .max_header_size(HEAD_BYTES_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .half_close(false)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut connection = pin!(connection);
        // Both arms are cancel-safe: each is polled by reference.
        let served = tokio::select! {
            served = &mut connection => served,
            () = scope.draining() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = served {
            debug!(%peer, error = %error_chain(&error), "a connection to the proxy broke");
        }
    }

    async fn answer(
        &self,
        from: std::net::SocketAddr,
        request: Request<Incoming>,
        permit: Arc<ConnectionPermit>,
    ) -> Response<String> {
        let (user, token) = credential(request.headers()).unwrap_or_default();
        let target = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let asked = ProxyRequest {
            listener: "proxy",
            from,
            user: &user,
            token: &token,
            target: &target,
            permit: &permit,
        };
        let served = if request.method() == Method::CONNECT {
            self.serve(&asked).await
        } else {
            // An unauthenticated caller learns nothing about other methods.
            self.authenticate(&asked).and(Err(ProxyRefusal::OtherMethod))
        };
        match served {
            Ok(ServedConnection { connected, guards }) => {
                let upgraded = hyper::upgrade::on(request);
                let caller = async {
                    from_upgraded::<TlsStream<TcpStream>>(upgraded.await.map_err(io::Error::other)?)
                };
                connected.relay(caller, (guards, permit));
                Response::new(String::new())
            }
            Err(refusal) => refused(&refusal),
        }
    }
}

/// The user and the token of the only `Proxy-Authorization: Basic` header. A name may contain colons, a token
/// cannot.
fn credential(headers: &HeaderMap) -> Option<(String, String)> {
    let mut sent = headers.get_all(PROXY_AUTHORIZATION).iter();
    let (Some(sent), None) = (sent.next(), sent.next()) else { return None };
    let (scheme, encoded) = sent.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("Basic") {
        return None;
    }
    let decoded = String::from_utf8(BASE64.decode(encoded.trim()).ok()?).ok()?;
    let (user, token) = decoded.rsplit_once(':')?;
    Some((user.to_owned(), token.to_owned()))
}

/// The response to a refused request. Its reason phrase repeats the message, because Go's programs show
/// nothing else. The rest of the connection is not read.
fn refused(refusal: &ProxyRefusal) -> Response<String> {
    let mut answer = Response::new(format!("{refusal}\n"));
    *answer.status_mut() = refusal.status();
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    if refusal.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        headers.insert(
            PROXY_AUTHENTICATE,
            HeaderValue::from_static("Basic realm=\"tombolo\", charset=\"UTF-8\""),
        );
    }
    if refusal.status() == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("CONNECT"));
    }
    reason_phrase::set(refusal, &mut answer);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialing::DialError;

    #[test]
    fn a_credential_is_one_basic_header_whose_name_may_have_colons() {
        let basic = |text: &str| format!("Basic {}", BASE64.encode(text));
        for (sent, expected) in [
            (vec![basic("alice:t.s")], Some(("alice", "t.s"))),
            (vec![basic("corp:alice:t.s").replace("Basic", "bAsIc")], Some(("corp:alice", "t.s"))),
            (vec![basic(":t.s")], Some(("", "t.s"))),
            (vec![basic("alice")], None),
            (vec![basic("alice:t"), basic("alice:t")], None),
            (vec![format!("Bearer {}", BASE64.encode("alice:t"))], None),
            (vec!["Basic !".to_owned()], None),
            (vec!["Basic".to_owned()], None),
            (vec![], None),
        ] {
            let mut headers = HeaderMap::new();
            for value in &sent {
                headers.append(PROXY_AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            }
            let found = credential(&headers);
            let found = found.as_ref().map(|(user, token)| (user.as_str(), token.as_str()));
            assert_eq!(found, expected, "{sent:?}");
        }
    }

    /// The scheme stands only in a refusal that asks for a credential.
    #[test]
    fn a_refusal_has_its_scheme_and_its_reason_phrase() {
        let answer = refused(&ProxyRefusal::NotAuthenticated);
        assert_eq!(answer.status(), StatusCode::PROXY_AUTHENTICATION_REQUIRED);
        assert_eq!(answer.headers()[PROXY_AUTHENTICATE], "Basic realm=\"tombolo\", charset=\"UTF-8\"");
        let reason = answer.extensions().get::<hyper::ext::ReasonPhrase>().unwrap();
        assert!(std::str::from_utf8(reason.as_bytes()).unwrap().contains("dial token"));

        let clusters = vec!["edge-a".parse().unwrap(), "edge-b".parse().unwrap()];
        let answer = refused(&DialError::Ambiguous("10.0.0.1:443".parse().unwrap(), clusters).into());
        assert_eq!(
            (answer.status(), answer.headers().get(PROXY_AUTHENTICATE)),
            (StatusCode::FORBIDDEN, None)
        );
        assert!(answer.body().contains("edge-a, edge-b"), "{}", answer.body());
    }
}
