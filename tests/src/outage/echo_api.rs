//! The API server's part in an outage: it sends, receives and echoes, and records what arrived when.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

use super::meter::{Meter, StreamEnd};
use crate::caller::UPGRADED_TO;
use crate::check::stream::Generator;
use crate::fake_api::{ClientCertificates, HttpVersion, tls};
use crate::kube::kubeconfig::{Credential, Kubeconfig};
use crate::pki::Authority;
use crate::rig::AGENT_TOKEN;

/// The size of a write to a stream without a pace, in bytes.
const BULK_BYTES: usize = 16 * 1024;
/// The size and the interval of writes to a stream with a pace.
pub(super) const TICK_BYTES: usize = 16;
pub(super) const TICK_EVERY: Duration = Duration::from_millis(100);
/// Pieces of a body that wait for the connection.
const PIECES_QUEUED: usize = 2;
/// Events of a watch that wait for it; a trial has fewer.
const EVENTS_QUEUED: usize = 8192;

/// A fake API server in which each trial has a namespace.
#[derive(Debug)]
pub struct EchoApi {
    address: SocketAddr,
    authority: Authority,
    trials: Arc<Mutex<HashMap<String, ServerStreams>>>,
}

/// Its side of the streams of one trial; clones are the same.
#[derive(Debug, Clone)]
pub struct ServerStreams {
    /// The seeds of the bytes that each stream sends.
    pub(super) seeds: Seeds,
    /// The bytes of the upload that have arrived.
    pub(super) upload: Meter,
    /// The bytes that a caller sends bit by bit.
    pub(super) trickle: Meter,
    /// The bytes that a caller has echoed.
    pub(super) exec: Meter,
    /// Of requests on the tunnel that is idle.
    pub(super) quiet: Meter,
    /// Bytes sent as the download, and bit by bit.
    pub(super) sent: Arc<Mutex<ServerSent>>,
    events: EventFeed,
    busy_events: EventFeed,
    stop: watch::Sender<bool>,
}

/// The bytes that the API server has sent.
#[derive(Debug, Default)]
pub(super) struct ServerSent {
    pub(super) download: u64,
    pub(super) trickle: u64,
    pub(super) events: String,
}

/// The seeds from which each stream's bytes are generated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seeds {
    pub(super) download: u64,
    pub(super) upload: u64,
    pub(super) trickle_to_caller: u64,
    pub(super) trickle_to_cluster: u64,
    pub(super) exec: u64,
}

/// Events for one watch, and what will read them.
#[derive(Debug, Clone)]
struct EventFeed {
    sender: mpsc::Sender<Bytes>,
    receiver: Arc<Mutex<Option<mpsc::Receiver<Bytes>>>>,
}

/// A body that is written piece by piece.
#[derive(Debug)]
struct ChannelBody(mpsc::Receiver<Bytes>);

impl Seeds {
    pub(super) fn of(seed: u64) -> Self {
        let [download, upload, trickle_to_caller, trickle_to_cluster, exec] =
            [1, 2, 3, 4, 5].map(|number| seed.wrapping_mul(8).wrapping_add(number));
        Self { download, upload, trickle_to_caller, trickle_to_cluster, exec }
    }
}

impl EchoApi {
    /// Starts on a free port of 127.0.0.1, and lives as long as the runtime on which this is called.
    ///
    /// # Errors
    /// If there is no port.
    pub async fn start() -> io::Result<Self> {
        let authority = Authority::new("partner");
        let server = authority.issue_server(&["localhost"], &[Ipv4Addr::LOCALHOST.into()]);
        let acceptor =
            TlsAcceptor::from(Arc::new(tls(&server, &[HttpVersion::Http1], ClientCertificates::NotAsked)));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let trials = Arc::<Mutex<HashMap<String, ServerStreams>>>::default();
        let known = Arc::clone(&trials);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, acceptor.clone(), Arc::clone(&known)));
            }
        });
        Ok(Self { address, authority, trials })
    }

    /// Writes a kubeconfig for an agent.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_kubeconfig(&self, path: &Path) -> io::Result<()> {
        let server = format!("https://{}", self.address);
        let credential = Credential::Token(AGENT_TOKEN.to_owned());
        Kubeconfig { server: &server, ca_pem: self.authority.certificate_pem(), credential: &credential }
            .write(path)
    }

    /// Makes ready for a trial's streams.
    pub(super) fn server_streams(&self, trial: &str, seed: u64) -> ServerStreams {
        let seeds = Seeds::of(seed);
        let server_streams = ServerStreams {
            seeds,
            upload: Meter::new(seeds.upload),
            trickle: Meter::new(seeds.trickle_to_cluster),
            exec: Meter::new(seeds.exec),
            quiet: Meter::new(0),
            sent: Arc::default(),
            events: EventFeed::new(),
            busy_events: EventFeed::new(),
            stop: watch::Sender::new(false),
        };
        self.trials
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(trial.to_owned(), server_streams.clone());
        server_streams
    }

    /// Removes a trial and its streams.
    pub(super) fn clear(&self, trial: &str) {
        self.trials.lock().unwrap_or_else(PoisonError::into_inner).remove(trial);
    }
}

impl ServerStreams {
    /// Sends an event to the watch that is otherwise idle.
    pub(super) fn event(&self, number: usize) {
        self.events.push(event(number).into());
    }

    /// Sends an event to the watch that is not, and remembers it.
    pub(super) fn busy_event(&self, number: usize) {
        let event = event(number);
        self.sent().events.push_str(&event);
        self.busy_events.push(event.into());
    }

    /// Ends this side's streams cleanly.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    pub(super) fn sent(&self) -> std::sync::MutexGuard<'_, ServerSent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }

    async fn download(self, pour: mpsc::Sender<Bytes>) {
        let mut source = Generator::new(self.seeds.download);
        while !self.is_stopped() && pour.send(source.take(BULK_BYTES).into()).await.is_ok() {
            self.sent().download = source.position();
        }
    }

    async fn take_upload(&self, mut body: Incoming) {
        use http_body_util::BodyExt;
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => self.upload.take(frame.data_ref().map_or(&[], |data| data)),
                Err(error) => return self.upload.ended(StreamEnd::Broken(format!("{error:?}"))),
            }
        }
        self.upload.ended(StreamEnd::Clean);
    }

    async fn attached(self, stream: impl AsyncRead + AsyncWrite) {
        let (reader, mut writer) = tokio::io::split(stream);
        let send = async {
            let mut source = Generator::new(self.seeds.trickle_to_caller);
            while !self.is_stopped() && writer.write_all(&source.take(TICK_BYTES)).await.is_ok() {
                self.sent().trickle = source.position();
                let _ = writer.flush().await; // The next write says what is wrong.
                tokio::time::sleep(TICK_EVERY).await;
            }
            let _ = writer.shutdown().await; // The caller's end says what is wrong.
        };
        tokio::join!(send, drain(reader, &self.trickle));
    }

    async fn echo(self, stream: impl AsyncRead + AsyncWrite) {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut buffer = vec![0; BULK_BYTES];
        let end = loop {
            match reader.read(&mut buffer).await {
                Ok(0) => break StreamEnd::Clean,
                Ok(count) => {
                    self.exec.take(&buffer[..count]);
                    let written = writer.write_all(&buffer[..count]).await;
                    if let Err(error) = written.and(writer.flush().await) {
                        break StreamEnd::Broken(error.to_string());
                    }
                }
                Err(error) => break StreamEnd::Broken(error.to_string()),
            }
        };
        self.exec.ended(end);
        let _ = writer.shutdown().await; // As above.
    }
}

impl EventFeed {
    fn new() -> Self {
        let (sender, receiver) = mpsc::channel(EVENTS_QUEUED);
        Self { sender, receiver: Arc::new(Mutex::new(Some(receiver))) }
    }

    fn push(&self, event: Bytes) {
        // A watch that has broken reads no more; its reader's end says so.
        let sent = self.sender.try_send(event);
        assert!(!matches!(sent, Err(TrySendError::Full(_))), "a trial has fewer events");
    }

    fn pour(&self) -> Option<ChannelBody> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take().map(ChannelBody)
    }
}

impl Body for ChannelBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// Reads a direction to its end into a meter.
pub(super) async fn drain(mut reader: impl AsyncRead + Unpin, meter: &Meter) {
    let mut buffer = vec![0; BULK_BYTES];
    loop {
        match reader.read(&mut buffer).await {
            Ok(0) => return meter.ended(StreamEnd::Clean),
            Ok(count) => meter.take(&buffer[..count]),
            Err(error) => return meter.ended(StreamEnd::Broken(error.to_string())),
        }
    }
}

/// An event of a watch of ConfigMaps.
pub(super) fn event(number: usize) -> String {
    let version = number + 2;
    format!(
        "{{\"type\":\"ADDED\",\"object\":{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\
         \"name\":\"event-{number}\",\"namespace\":\"trial\",\"resourceVersion\":\"{version}\"}}}}}}\n"
    )
}

async fn serve(socket: TcpStream, acceptor: TlsAcceptor, trials: Arc<Mutex<HashMap<String, ServerStreams>>>) {
    let Ok(stream) = acceptor.accept(socket).await else { return };
    let answer = service_fn(move |request: Request<Incoming>| {
        let server_streams = trial_of(request.uri().path())
            .and_then(|trial| trials.lock().unwrap_or_else(PoisonError::into_inner).get(trial).cloned());
        async move { Ok::<_, Infallible>(answer(server_streams, request).await) }
    });
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
    let _ = connection.with_upgrades().await; // The meters have recorded a disconnect.
}

async fn answer(
    server_streams: Option<ServerStreams>,
    mut request: Request<Incoming>,
) -> Response<ChannelBody> {
    let Some(server_streams) = server_streams else { return complete(StatusCode::NOT_FOUND) };
    let path = request.uri().path().to_owned();
    let upgrade = hyper::upgrade::on(&mut request);
    match path.rsplit('/').next().unwrap_or_default() {
        "log" => {
            let (pour, body) = mpsc::channel(PIECES_QUEUED);
            tokio::spawn(server_streams.download(pour));
            Response::new(ChannelBody(body))
        }
        "upload" => {
            server_streams.take_upload(request.into_body()).await;
            complete(StatusCode::OK)
        }
        "configmaps" | "secrets" => {
            let feed =
                if path.ends_with("secrets") { &server_streams.busy_events } else { &server_streams.events };
            feed.pour().map_or_else(|| complete(StatusCode::GONE), Response::new)
        }
        "attach" | "exec" => {
            let is_echo = path.ends_with("exec");
            tokio::spawn(async move {
                let Ok(upgraded) = upgrade.await else { return };
                let stream = TokioIo::new(upgraded);
                if is_echo {
                    server_streams.echo(stream).await
                } else {
                    server_streams.attached(stream).await
                }
            });
            switching()
        }
        _ => {
            server_streams.quiet.take(&[0]);
            complete(StatusCode::OK)
        }
    }
}

fn switching() -> Response<ChannelBody> {
    let mut response = complete(StatusCode::SWITCHING_PROTOCOLS);
    let headers = response.headers_mut();
    headers.insert(http::header::CONNECTION, http::HeaderValue::from_static("Upgrade"));
    headers.insert(http::header::UPGRADE, http::HeaderValue::from_static(UPGRADED_TO));
    response
}

fn complete(status: StatusCode) -> Response<ChannelBody> {
    let (_, empty) = mpsc::channel(1);
    let mut response = Response::new(ChannelBody(empty));
    *response.status_mut() = status;
    response
}

// `/api/v1/namespaces/TRIAL/…`
fn trial_of(path: &str) -> Option<&str> {
    path.strip_prefix("/api/v1/namespaces/")?.split('/').next()
}
