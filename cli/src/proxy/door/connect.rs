//! HTTP CONNECT: one request, with the secret as Basic, and then only bytes.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use daemon::chain;
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
use tokio::sync::OwnedSemaphorePermit;

use super::Door;
use super::join::join;

/// A request's head arrives within this time.
const HEAD_MAX: Duration = Duration::from_secs(10);

/// Longest reason phrase, in bytes.
const REASON_BYTES_MAX: usize = 256;

impl Door {
    /// Serves a connection until it is one to a target, or is over.
    pub(super) async fn by_connect(self: Arc<Self>, stream: TcpStream, place: OwnedSemaphorePermit) {
        let place = Arc::new(place);
        let service = service_fn(|request| {
            let (door, place) = (Arc::clone(&self), Arc::clone(&place));
            async move { Ok::<_, Infallible>(door.answer(request, place).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_MAX)
            .half_close(false)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        // How it ended is seen by who came.
        let _ = connection.await;
    }

    async fn answer(&self, request: Request<Incoming>, place: Arc<OwnedSemaphorePermit>) -> Response<String> {
        // Nothing is said to who does not know the secret, but that there is one.
        if !self.lets_in(&request) {
            let mut answer = refusal(
                StatusCode::PROXY_AUTHENTICATION_REQUIRED,
                "use the kubeconfig that tombolo proxy has written for this run",
            );
            let basic = HeaderValue::from_static("Basic realm=\"tombolo proxy\"");
            answer.headers_mut().insert(PROXY_AUTHENTICATE, basic);
            return answer;
        }
        if request.method() != Method::CONNECT {
            let mut answer = refusal(StatusCode::METHOD_NOT_ALLOWED, "this proxy serves CONNECT alone");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("CONNECT"));
            return answer;
        }
        let Some(target) = request.uri().authority().cloned() else {
            return refusal(StatusCode::BAD_REQUEST, "CONNECT needs HOST:PORT");
        };
        self.connect(&target, request, place).await
    }

    async fn connect(
        &self,
        target: &Authority,
        request: Request<Incoming>,
        place: Arc<OwnedSemaphorePermit>,
    ) -> Response<String> {
        match self.gateway.connect(target, &self.scope).await {
            Ok(far) => {
                self.scope.spawn(joined(hyper::upgrade::on(request), far, place));
                Response::new(String::new())
            }
            Err(error) => refusal(error.status(), &chain(&error).to_string()),
        }
    }

    fn lets_in(&self, request: &Request<Incoming>) -> bool {
        let mut sent = request.headers().get_all(PROXY_AUTHORIZATION).iter();
        let (Some(sent), None) = (sent.next(), sent.next()) else { return false };
        self.knows(sent.as_bytes())
    }
}

/// An answer whose reason phrase says why: Go's programs show nothing else of it. What stands behind the request is not read.
fn refusal(status: StatusCode, why: &str) -> Response<String> {
    let mut answer = Response::new(format!("{why}\n"));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    let fits = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    let said: Vec<u8> = why.bytes().filter(fits).take(REASON_BYTES_MAX).collect();
    if let Ok(reason) = ReasonPhrase::try_from(said) {
        answer.extensions_mut().insert(reason);
    }
    answer
}

/// Joins them once the request was answered.
async fn joined(near: OnUpgrade, far: Upgraded, place: Arc<OwnedSemaphorePermit>) {
    let _place = place;
    let Ok(near) = near.await else { return };
    let Ok(parts) = near.downcast::<TokioIo<TcpStream>>() else { return };
    join(parts.io.into_inner(), &parts.read_buf, far).await;
}
