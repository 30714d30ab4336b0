//! The admin API: gRPC on a Unix socket that only root and the server's user can open, and by TLS for remote
//! administrators.

mod audit_log;
mod authorize;
mod connection;
mod convert;
mod export;
mod remote;
mod requests;
mod revocable;
mod server_info;
mod servers;
mod service;
mod unix_socket;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use audit::Log;
use daemon::{Failure, Scope};
use proto::admin::FILE_DESCRIPTOR_SET;
use proto::admin::admin_server::{AdminServer, SERVICE_NAME};
use tokio::sync::Semaphore;
use tonic_health::ServingStatus;
use tonic_health::pb::FILE_DESCRIPTOR_SET as HEALTH_DESCRIPTOR_SET;
use tonic_health::server::{HealthReporter, HealthService};
use tracing::info;

pub use authorize::{Actor, AdminAction, AdminForbidden, AdminObject, authorize_admin};
pub use export::EXPORTS_MAX;
pub use remote::Remote;
pub use server_info::{EnrollmentInfo, ServerInfo};
pub use service::{CONNECTIONS_MAX, WATCHES_MAX};

use crate::directory::Directory;
use crate::listener::unix_socket::{LocalSocket, SocketAccess, SocketError};
use crate::registry::{OwnServer, Registry};
use connection::{ConnectionService, Services};
use service::AdminService;

/// The services to ask the health of: the server as a whole, and this API.
const SERVICES: [&str; 2] = ["", SERVICE_NAME];

/// The admin API with bound listeners, which accepts no connection yet.
pub struct Admin {
    listeners: BoundListeners,
    dependencies: Dependencies,
    health: HealthReporter,
}

/// The addresses at which the API listens.
#[derive(Debug)]
pub struct AdminEndpoints {
    /// At a socket of this path, in a folder that is made if it is missing.
    pub socket: Option<PathBuf>,
    /// The TCP listener for other machines, already bound.
    pub remote: Option<Remote>,
}

/// The state that the API reports and changes, and its audit log.
pub struct Dependencies {
    /// Facts about the server itself.
    pub server: ServerInfo,
    /// This server among those that share its records.
    pub own: OwnServer,
    /// The registry of connected clusters.
    pub registry: Registry,
    /// The store of clusters, agents and tokens.
    pub directory: Directory,
    /// The audit log of the API's requests.
    pub log: Log,
}

struct BoundListeners {
    socket: Option<LocalSocket>,
    remote: Option<Remote>,
}

/// The way to say that the server has started.
#[must_use = "health stays NOT_SERVING until it is set"]
pub struct Health {
    reporter: HealthReporter,
    scope: Scope,
}

impl Admin {
    /// Binds the Unix socket. The TCP listener is bound already.
    ///
    /// # Errors
    /// [`SocketError`], which says what is in the way.
    pub async fn bind(endpoints: AdminEndpoints, dependencies: Dependencies) -> Result<Self, SocketError> {
        let AdminEndpoints { socket, remote } = endpoints;
        let socket = match socket {
            Some(path) => Some(LocalSocket::bind("admin.socket", &path, SocketAccess::Owner).await?),
            None => None,
        };
        let health = HealthReporter::new();
        report(&health, ServingStatus::NotServing).await;
        Ok(Self { listeners: BoundListeners { socket, remote }, dependencies, health })
    }

    /// Answers until the scope has no work left. During the drain it ends watches and reports it as its
    /// health; the TCP listener then accepts nobody new. Listeners and connections are background tasks of
    /// `scope`.
    ///
    /// # Errors
    /// The schemas that were compiled in cannot be read, which is a fault of the build.
    pub fn run(self, scope: &Scope) -> Result<Health, Failure> {
        let Self { listeners: BoundListeners { socket, remote }, dependencies, health } = self;
        let Dependencies { server, own, registry, directory, log } = dependencies;
        let service = AdminService {
            server,
            own,
            since: SystemTime::now(),
            registry,
            directory,
            watches: Arc::new(Semaphore::new(WATCHES_MAX)),
            exports: Arc::new(Semaphore::new(EXPORTS_MAX)),
            scope: scope.clone(),
        };
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(HEALTH_DESCRIPTOR_SET)
            .build_v1()
            .map_err(Failure::could_not_go_on)?;
        let services = Services::new(
            AdminServer::new(service),
            HealthService::from_health_reporter(health.clone()),
            reflection,
        );
        let connections = ConnectionService::new(services, log.clone(), scope.clone());
        if let Some(socket) = socket {
            info!(socket = %socket.path().display(), "the admin API answers");
            scope.spawn_background(unix_socket::accept(socket, connections.clone()));
        }
        if let Some(remote) = remote {
            info!(address = %remote.address(), "the admin API answers remote administrators");
            scope.spawn_background(remote.accept(connections, log));
        }
        Ok(Health { reporter: health, scope: scope.clone() })
    }
}

impl Health {
    /// The server serves, from now until its drain begins.
    pub fn serving(self) {
        let Self { reporter, scope } = self;
        let draining = scope.draining();
        scope.spawn_background(async move {
            report(&reporter, ServingStatus::Serving).await;
            draining.await;
            report(&reporter, ServingStatus::NotServing).await;
        });
    }
}

async fn report(health: &HealthReporter, status: ServingStatus) {
    for service in SERVICES {
        health.set_service_status(service, status).await;
    }
}
