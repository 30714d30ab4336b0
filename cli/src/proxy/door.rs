//! The local door: HTTP CONNECT on loopback, for whoever knows this run's secret.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use daemon::{Scope, chain};
use http::header::{ALLOW, CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION};
use http::uri::Authority;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use super::gateway::{Gateway, NotConnected};

/// Connections at once.
const CONNECTIONS_MAX: usize = 512;

/// A request's head arrives within this time.
const HEAD_MAX: Duration = Duration::from_secs(10);

/// How long nothing is accepted after the system refused.
const PAUSE: Duration = Duration::from_millis(100);

/// Longest reason phrase, in bytes.
const REASON_BYTES_MAX: usize = 256;

/// Who may come in, and to where it leads.
pub(super) struct Door {
    /// The value of `Proxy-Authorization` that is let in.
    ticket: String,
    gateway: Arc<Gateway>,
    scope: Scope,
    places: Arc<Semaphore>,
}

impl Door {
    pub(super) fn new(secret: &str, gateway: Arc<Gateway>, scope: Scope) -> Self {
        let ticket = format!("Basic {}", BASE64.encode(format!("u:{secret}")));
        Self { ticket, gateway, scope, places: Arc::new(Semaphore::new(CONNECTIONS_MAX)) }
    }

    /// Serves whoever comes, for as long as it is polled.
    pub(super) async fn serve(self: Arc<Self>, listener: TcpListener) {
        loop {
            let accepted = listener.accept().await;
            let (Ok((stream, _)), Ok(place)) = (accepted, Arc::clone(&self.places).acquire_owned().await)
            else {
                sleep(PAUSE).await;
                continue;
            };
            self.scope.spawn(Arc::clone(&self).serve_connection(stream, place));
        }
    }

    async fn serve_connection(self: Arc<Self>, stream: TcpStream, place: OwnedSemaphorePermit) {
        let _ = stream.set_nodelay(true);
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
        if !self.knows(&request) {
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
                self.scope.spawn(join(hyper::upgrade::on(request), far, place));
                Response::new(String::new())
            }
            Err(NotConnected::Refused(status, said)) => refusal(status, &said),
            Err(error @ NotConnected::TooSlow) => refusal(StatusCode::GATEWAY_TIMEOUT, &error.to_string()),
            Err(
                error @ (NotConnected::Pem(_)
                | NotConnected::Credential(_)
                | NotConnected::Unusable(_)
                | NotConnected::Unreachable(_)
                | NotConnected::Broke(_)),
            ) => refusal(StatusCode::BAD_GATEWAY, &chain(&error).to_string()),
        }
    }

    fn knows(&self, request: &Request<Incoming>) -> bool {
        let mut sent = request.headers().get_all(PROXY_AUTHORIZATION).iter();
        let (Some(sent), None) = (sent.next(), sent.next()) else { return false };
        verify_slices_are_equal(sent.as_bytes(), self.ticket.as_bytes()).is_ok()
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

/// Moves bytes until both directions have ended, each on its own, or one breaks: then the near side is reset, and the far
/// one is dropped without a word, so that neither takes it for an end.
async fn join(near: OnUpgrade, far: Upgraded, place: Arc<OwnedSemaphorePermit>) {
    let _place = place;
    let Ok(near) = near.await else { return };
    let Ok(parts) = near.downcast::<TokioIo<TcpStream>>() else { return };
    let (mut near, mut far) = (parts.io.into_inner(), TokioIo::new(far));
    let joined = async {
        // What came behind the request.
        far.write_all(&parts.read_buf).await?;
        copy_bidirectional(&mut near, &mut far).await
    };
    if joined.await.is_err() {
        let _ = near.set_zero_linger();
    }
}
