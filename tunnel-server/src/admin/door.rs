//! Accepts connections, asks the kernel who is there, and lets through what they may do.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use audit::Log;
use daemon::Scope;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use proto::admin::admin_server::AdminServer;
use proto::admin::{ANSWER_BYTES_MAX, REQUEST_BYTES_MAX};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};
use tracing::{debug, warn};

use super::CONNECTIONS_MAX;
use super::authorize::{Action, Actor, authorize_admin};
use super::desk::Desk;
use super::recorded;
use super::socket::AdminSocket;

/// Most streams of one connection.
const STREAMS_MAX: u32 = 32;

/// Largest head of a request.
const HEAD_BYTES_MAX: u32 = 16 * 1024;

/// Most bytes of answers that one connection may leave unread in our memory.
const UNSENT_BYTES_MAX: usize = 64 * 1024;

/// How long a request may take to arrive and its answer to begin. A watch goes on after it.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// How long the connection of someone who may nothing stays, to hear that.
const STRANGER_MAX: Duration = Duration::from_secs(5);

/// How long accepting rests after it failed; it fails for want of file descriptors, which come back by themselves.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// A socket, and what answers there.
pub(super) struct Door<R> {
    socket: AdminSocket,
    services: Services<R>,
    log: Log,
    scope: Scope,
}

/// The services behind the door. Clones are the same.
pub(super) struct Services<R> {
    admin: AdminServer<Desk>,
    health: HealthServer<HealthService>,
    reflection: ServerReflectionServer<R>,
}

impl<R: ServerReflection> Services<R> {
    pub(super) fn new(
        admin: AdminServer<Desk>,
        health: HealthService,
        reflection: ServerReflectionServer<R>,
    ) -> Self {
        Self {
            admin: admin
                .max_decoding_message_size(REQUEST_BYTES_MAX)
                .max_encoding_message_size(ANSWER_BYTES_MAX),
            health: HealthServer::new(health).max_decoding_message_size(REQUEST_BYTES_MAX),
            reflection: reflection.max_decoding_message_size(REQUEST_BYTES_MAX),
        }
    }

    async fn answer(&self, action: Action, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        match action {
            Action::ListClusters
            | Action::WatchClusters
            | Action::GetServerInfo
            | Action::CreateCluster
            | Action::UpdateCluster
            | Action::DeleteCluster
            | Action::RevokeAgent
            | Action::ListAgents
            | Action::CreateToken
            | Action::ListTokens
            | Action::RevokeToken => self.admin.clone().call(request).await,
            Action::CheckHealth | Action::WatchHealth => self.health.clone().call(request).await,
            // The service runs a task for each such stream, outside of our scope: it ends with its connection.
            Action::Reflect => self.reflection.clone().call(request).await,
        }
    }
}

impl<R: ServerReflection> Door<R> {
    pub(super) fn new(socket: AdminSocket, services: Services<R>, log: Log, scope: Scope) -> Self {
        Self { socket, services, log, scope }
    }

    /// Serves whoever comes, until this is dropped.
    pub(super) async fn accept(self) {
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
            match self.socket.listener.accept().await {
                Ok((stream, _)) => {
                    let (services, log) = (self.services.clone(), self.log.clone());
                    let owner = self.socket.owner;
                    self.scope.attend(serve(stream, owner, services, log, self.scope.clone(), slot));
                }
                Err(error) => {
                    warn!(%error, "cannot accept a connection for the admin API");
                    sleep(ACCEPT_REST).await;
                }
            }
        }
    }
}

async fn serve<R: ServerReflection>(
    stream: UnixStream,
    owner: u32,
    services: Services<R>,
    log: Log,
    scope: Scope,
    _slot: OwnedSemaphorePermit,
) {
    let actor = match stream.peer_cred() {
        Ok(peer) => Actor { uid: peer.uid() },
        Err(error) => {
            warn!(%error, "the system does not say who is at the admin socket");
            return;
        }
    };
    let service = service_fn(move |request| {
        let (services, log) = (services.clone(), log.clone());
        async move { Ok::<_, Infallible>(answer(owner, actor, &services, &log, request).await) }
    });
    let connection = http2::Builder::new(scope.attendants())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX)
        .max_send_buf_size(UNSENT_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    // Who may not even ask for health may nothing.
    let least = Action::CheckHealth;
    let is_stranger = authorize_admin(owner, actor, least, least.object()).is_err();
    let life = if is_stranger { STRANGER_MAX } else { Duration::MAX };
    match timeout(life, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "a connection to the admin API failed"),
        Err(_) => debug!(uid = actor.uid, "a stranger's connection to the admin API was ended"),
    }
}

/// The one way to every service.
async fn answer<R: ServerReflection>(
    owner: u32,
    actor: Actor,
    services: &Services<R>,
    log: &Log,
    request: Request<Incoming>,
) -> Response<Body> {
    let path = request.uri().path();
    let action = match Action::of_path(path) {
        Ok(action) => action,
        Err(code) => return Status::new(code, "there is no such method here").into_http(),
    };
    let verdict = authorize_admin(owner, actor, action, action.object());
    if let Err(error) = recorded::record(log, actor, action, path, &verdict).await {
        return Status::unavailable(error.to_string()).into_http();
    }
    if let Err(forbidden) = verdict {
        warn!(%forbidden, "a request to the admin API was refused");
        return Status::permission_denied(forbidden.to_string()).into_http();
    }
    match timeout(ANSWER_MAX, services.answer(action, request)).await {
        Ok(Ok(response)) => response,
        Err(_) => Status::deadline_exceeded("the request did not arrive whole in time").into_http(),
    }
}

impl<R> Clone for Services<R> {
    fn clone(&self) -> Self {
        Self { admin: self.admin.clone(), health: self.health.clone(), reflection: self.reflection.clone() }
    }
}
