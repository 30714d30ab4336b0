//! One connection to the admin API: each request is authorized, audited and passed to its service.

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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};
use tracing::{debug, warn};

use super::audit_log;
use super::authorize::{Actor, AdminAction, AdminServiceKind, authorize_admin};
use super::service::AdminService;

/// Most streams of one connection.
const STREAMS_MAX: u32 = 32;

/// Largest head of a request.
const HEAD_BYTES_MAX: u32 = 16 * 1024;

/// Most bytes of answers that one connection may leave unread in our memory.
const UNSENT_BYTES_MAX: usize = 64 * 1024;

/// Longest time for a request to arrive and its answer to begin. A watch continues after that.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Lifetime of a connection whose actor may do nothing: enough to read the refusal.
const FORBIDDEN_MAX: Duration = Duration::from_secs(5);

/// The interval of HTTP/2 pings on a silent connection, and the time to answer one.
const PING_EVERY: Duration = Duration::from_secs(30);
const PONG_MAX: Duration = Duration::from_secs(20);

/// The services, and what every request to them passes. Clones are the same.
pub(super) struct ConnectionService<R> {
    services: Services<R>,
    log: Log,
    scope: Scope,
}

/// The services. Clones are the same.
pub(super) struct Services<R> {
    admin: AdminServer<AdminService>,
    health: HealthServer<HealthService>,
    reflection: ServerReflectionServer<R>,
}

impl<R: ServerReflection> Services<R> {
    pub(super) fn new(
        admin: AdminServer<AdminService>,
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

    async fn answer(
        &self,
        action: AdminAction,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Infallible> {
        match action.service() {
            AdminServiceKind::Admin => self.admin.clone().call(request).await,
            AdminServiceKind::Health => self.health.clone().call(request).await,
            // The service runs a task for each such stream, outside of our scope: it ends with its connection.
            AdminServiceKind::Reflection => self.reflection.clone().call(request).await,
        }
    }
}

impl<R: ServerReflection> ConnectionService<R> {
    pub(super) fn new(services: Services<R>, log: Log, scope: Scope) -> Self {
        Self { services, log, scope }
    }

    /// The scope in which listeners spawn their tasks.
    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Serves the actor's connection to its end, or to the end of `life`.
    pub(super) async fn serve<T>(self, stream: T, actor: Actor, life: Duration)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let life = if actor.has_no_rights() { life.min(FORBIDDEN_MAX) } else { life };
        let (scope, actor) = (self.scope.clone(), Arc::new(actor));
        let who = Arc::clone(&actor);
        let service = service_fn(move |request| {
            let (service, actor) = (self.clone(), Arc::clone(&actor));
            async move { Ok::<_, Infallible>(service.answer(&actor, request).await) }
        });
        let connection = http2::Builder::new(scope.background())
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX)
            .max_send_buf_size(UNSENT_BYTES_MAX)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PONG_MAX)
            .serve_connection(TokioIo::new(stream), service);
        match timeout(life, connection).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(%error, "a connection to the admin API failed"),
            Err(_) => {
                debug!(actor = %who, "a connection to the admin API was closed at the end of its time")
            }
        }
    }

    /// The one way to every service.
    async fn answer(&self, actor: &Actor, mut request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path();
        let action = match AdminAction::from_path(path) {
            Ok(action) => action,
            Err(code) => return Status::new(code, "there is no such method here").into_http(),
        };
        let decision = authorize_admin(actor, action, action.object());
        let audited = match audit_log::audit(&self.log, actor, action, path, &decision).await {
            Ok(audited) => audited,
            Err(error) => return Status::unavailable(error.to_string()).into_http(),
        };
        if let Err(forbidden) = decision {
            warn!(%action, object = %action.object(), "a request to the admin API was refused");
            debug!(%forbidden, "the refused request to the admin API");
            return Status::permission_denied(forbidden.to_string()).into_http();
        }
        request.extensions_mut().insert(audited.detail());
        let response = match timeout(ANSWER_MAX, self.services.answer(action, request)).await {
            Ok(Ok(response)) => response,
            Err(_) => Status::deadline_exceeded("the request did not arrive completely in time").into_http(),
        };
        audited.answered(response.headers());
        response
    }
}

impl<R> Clone for ConnectionService<R> {
    fn clone(&self) -> Self {
        Self { services: self.services.clone(), log: self.log.clone(), scope: self.scope.clone() }
    }
}

impl<R> Clone for Services<R> {
    fn clone(&self) -> Self {
        Self { admin: self.admin.clone(), health: self.health.clone(), reflection: self.reflection.clone() }
    }
}
