//! The door for those who run the server: gRPC on a Unix socket that only they can open.

mod authorize;
mod changes;
mod desk;
mod door;
mod listed;
mod recorded;
mod socket;
mod watch;

use std::net::SocketAddr;
use std::path::Path;
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

pub use authorize::{Action, Actor, Forbidden, Object, authorize_admin};
pub use socket::SocketError;

use crate::directory::Directory;
use crate::registry::Registry;
use desk::Desk;
use door::{Door, Services};
use socket::AdminSocket;

/// Most watches at once, of all connections.
pub const WATCHES_MAX: usize = 16;

/// Most connections at once; more wait in the listen queue.
pub const CONNECTIONS_MAX: usize = 64;

/// The services to ask the health of: the server as a whole, and this API.
const SERVICES: [&str; 2] = ["", SERVICE_NAME];

/// A bound socket that nobody answers yet.
pub struct Admin {
    socket: AdminSocket,
    about: About,
    registry: Registry,
    directory: Directory,
    log: Log,
    health: HealthReporter,
}

/// What the server says of itself.
#[derive(Debug, Clone)]
pub struct About {
    /// Its name among its like.
    pub server_id: String,
    /// Where callers come, TCP.
    pub gateway: SocketAddr,
    /// Where agents come, UDP.
    pub tunnel: SocketAddr,
    /// Where the probes answer, TCP.
    pub probes: SocketAddr,
    /// How agents enroll, if they do.
    pub site: Option<Site>,
}

/// What an agent has to know before it has a certificate.
#[derive(Debug, Clone)]
pub struct Site {
    /// Where it enrolls: `HOST:PORT`.
    pub address: String,
    /// By what it knows the door.
    pub pins: Vec<String>,
}

/// The way to say that the server has started.
#[must_use = "health is NOT_SERVING until it is told otherwise"]
pub struct Health {
    reporter: HealthReporter,
    scope: Scope,
}

impl Admin {
    /// Takes the socket at `path`, in a folder that is made if it is missing.
    ///
    /// # Errors
    /// [`SocketError`], which says what is in the way.
    pub async fn bind(
        path: &Path,
        about: About,
        registry: Registry,
        directory: Directory,
        log: Log,
    ) -> Result<Self, SocketError> {
        let socket = AdminSocket::bind(path).await?;
        let health = HealthReporter::new();
        report(&health, ServingStatus::NotServing).await;
        Ok(Self { socket, about, registry, directory, log, health })
    }

    /// Where the socket is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.socket.path()
    }

    /// Answers until the scope has no work left: through the drain too, which ends watches and which health shows.
    /// Listener and connections are attendants of `scope`.
    ///
    /// # Errors
    /// Where the schemas that were compiled in cannot be read: a fault of the build.
    pub fn run(self, scope: &Scope) -> Result<Health, Failure> {
        let Self { socket, about, registry, directory, log, health } = self;
        let desk = Desk {
            about,
            since: SystemTime::now(),
            registry,
            directory,
            watches: Arc::new(Semaphore::new(WATCHES_MAX)),
            scope: scope.clone(),
        };
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(HEALTH_DESCRIPTOR_SET)
            .build_v1()
            .map_err(Failure::could_not_go_on)?;
        let services = Services::new(
            AdminServer::new(desk),
            HealthService::from_health_reporter(health.clone()),
            reflection,
        );
        scope.attend(Door::new(socket, services, log, scope.clone()).accept());
        Ok(Health { reporter: health, scope: scope.clone() })
    }
}

impl Health {
    /// The server serves, from now until its drain begins.
    pub fn serving(self) {
        let Self { reporter, scope } = self;
        let draining = scope.draining();
        scope.attend(async move {
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
