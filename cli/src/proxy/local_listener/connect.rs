//! HTTP CONNECT with Basic authentication: one request, then bytes in both directions.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use daemon::error_chain;
use daemon::listen::ConnectionPermit;
use http::header::{ALLOW, CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION};
use http::uri::Authority;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;

use super::LocalListener;
use super::relay::relay;

/// Longest wait for the head of a request.
const HEAD_MAX: Duration = Duration::from_secs(10);

/// Longest reason phrase of a refusal, in bytes.
const REASON_BYTES_MAX: usize = 256;

impl LocalListener {
    /// Serves an HTTP connection until it is upgraded or closed.
    pub(super) async fn serve_connect(self: Arc<Self>, stream: TcpStream, permit: ConnectionPermit) {
        let permit = Arc::new(permit);
        let service = service_fn(|request| {
            let (listener, permit) = (Arc::clone(&self), Arc::clone(&permit));
            async move { Ok::<_, Infallible>(listener.respond(request, permit).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_MAX)
            .half_close(false)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        // The client sees how the connection ended.
        let _ = connection.await;
    }

    async fn respond(&self, request: Request<Incoming>, permit: Arc<ConnectionPermit>) -> Response<String> {
        // An unauthenticated client learns only that a password is needed.
        if !self.has_password(&request) {
            let mut response = refusal(
                StatusCode::PROXY_AUTHENTICATION_REQUIRED,
                "use the kubeconfig that this run of tombolo proxy has written",
            );
            let basic = HeaderValue::from_static("Basic realm=\"tombolo proxy\"");
            response.headers_mut().insert(PROXY_AUTHENTICATE, basic);
            return response;
        }
        permit.proved();
        if request.method() != Method::CONNECT {
            let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, "this proxy serves only CONNECT");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("CONNECT"));
            return response;
        }
        let Some(target) = request.uri().authority().cloned() else {
            return refusal(StatusCode::BAD_REQUEST, "CONNECT needs HOST:PORT");
        };
        self.connect(&target, request, permit).await
    }

    async fn connect(
        &self,
        target: &Authority,
        request: Request<Incoming>,
        permit: Arc<ConnectionPermit>,
    ) -> Response<String> {
        match self.gateway.connect(target, &self.scope).await {
            Ok(connection) => {
                self.scope.spawn(relay_upgraded(hyper::upgrade::on(request), connection, permit));
                Response::new(String::new())
            }
            Err(error) => refusal(error.status(), &error_chain(&error).to_string()),
        }
    }

    fn has_password(&self, request: &Request<Incoming>) -> bool {
        let mut values = request.headers().get_all(PROXY_AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return false };
        self.is_authorized(value.as_bytes())
    }
}

/// A refusal with its reason in the body and in the reason phrase, which is all that Go programs show. Closes the connection,
/// so the rest of the request is not read.
fn refusal(status: StatusCode, reason: &str) -> Response<String> {
    let mut response = Response::new(format!("{reason}\n"));
    *response.status_mut() = status;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    let fits = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    let phrase: Vec<u8> = reason.bytes().filter(fits).take(REASON_BYTES_MAX).collect();
    if let Ok(phrase) = ReasonPhrase::try_from(phrase) {
        response.extensions_mut().insert(phrase);
    }
    response
}

/// Copies bytes between the client and the target once the response was sent.
async fn relay_upgraded(client: OnUpgrade, target: Upgraded, permit: Arc<ConnectionPermit>) {
    let _permit = permit;
    let Ok(client) = client.await else { return };
    let Ok(parts) = client.downcast::<TokioIo<TcpStream>>() else { return };
    relay(parts.io.into_inner(), &parts.read_buf, target).await;
}
