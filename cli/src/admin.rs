//! The way to the admin API of a server on this machine.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use daemon::Scope;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::TokioIo;
use proto::admin::admin_client::AdminClient;
use proto::admin::watch_clusters_response::Event;
use proto::admin::{
    ANSWER_BYTES_MAX, Cluster, CreateClusterRequest, CreateTokenRequest, CreateTokenResponse,
    DeleteClusterRequest, DeleteClusterResponse, EnrolledAgent, GetServerInfoRequest, GetServerInfoResponse,
    ListAgentsRequest, ListClustersRequest, ListTokensRequest, RevokeAgentRequest, RevokeTokenRequest, Token,
    UpdateClusterRequest, WatchClustersRequest, WatchClustersResponse,
};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::{Code, Status, Streaming};

/// How long a server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// What gRPC wants to stand in front of a path. Nobody looks at it: the socket is the address.
const ORIGIN: &str = "http://admin";

/// A connection to a server's admin API.
pub(crate) struct Admin {
    client: AdminClient<Wire>,
    socket: PathBuf,
}

/// What a watch says next.
pub(crate) struct Watching {
    events: Streaming<WatchClustersResponse>,
    socket: PathBuf,
}

/// One HTTP/2 connection as gRPC wants it.
#[derive(Clone)]
struct Wire(SendRequest<Body>);

/// Why the admin API did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminError {
    #[error(
        "there is no socket {0}; start tunnel-server on this machine, or pass --socket with the admin.socket of its configuration"
    )]
    NoSocket(PathBuf),
    #[error("{0} may not be opened by you; run this as root or as the user whose server it is")]
    Denied(PathBuf),
    #[error("nobody answers at {0}; the server that made it is gone, start it again")]
    NobodyThere(PathBuf),
    #[error("cannot connect to {0}")]
    Connect(PathBuf, #[source] io::Error),
    #[error("{0} does not speak the admin API; pass --socket with the admin.socket of a tunnel-server")]
    NotAdmin(PathBuf, #[source] hyper::Error),
    #[error("no answer from {0} within {max} s", max = ANSWER_MAX.as_secs())]
    TooSlow(PathBuf),
    #[error("refused: {0}")]
    Refused(String),
    #[error("the server at {0} does not know this request; use the tombolo of its version")]
    Unknown(PathBuf),
    #[error("the server at {0} ended the connection: {1}")]
    Ended(PathBuf, String),
}

impl Admin {
    /// Connects to the socket.
    pub(crate) async fn connect(socket: &Path, scope: &Scope) -> Result<Self, AdminError> {
        let stream = UnixStream::connect(socket).await.map_err(|error| not_connected(socket, error))?;
        let shaken = http2::handshake(scope.clone(), TokioIo::new(stream)).await;
        let (requests, connection) =
            shaken.map_err(|error| AdminError::NotAdmin(socket.to_owned(), error))?;
        scope.attend(async move {
            // How it ended is told to whoever waits for an answer.
            let _ = connection.await;
        });
        let client = AdminClient::with_origin(Wire(requests), Uri::from_static(ORIGIN))
            .max_decoding_message_size(ANSWER_BYTES_MAX);
        Ok(Self { client, socket: socket.to_owned() })
    }

    /// What is known of these clusters; of all, if none is named.
    pub(crate) async fn list(&mut self, names: Vec<String>) -> Result<Vec<Cluster>, AdminError> {
        let answer = self.client.list_clusters(ListClustersRequest { names });
        Ok(answered(&self.socket, answer).await?.into_inner().clusters)
    }

    /// The same, then each again when it has changed.
    pub(crate) async fn watch(
        &mut self,
        names: Vec<String>,
        measurements: bool,
    ) -> Result<Watching, AdminError> {
        let answer = self.client.watch_clusters(WatchClustersRequest { names, measurements });
        let events = answered(&self.socket, answer).await?.into_inner();
        Ok(Watching { events, socket: self.socket.clone() })
    }

    /// Makes a cluster.
    pub(crate) async fn create_cluster(&mut self, request: CreateClusterRequest) -> Result<(), AdminError> {
        answered(&self.socket, self.client.create_cluster(request)).await.map(drop)
    }

    /// Changes what is said of a cluster.
    pub(crate) async fn update_cluster(&mut self, request: UpdateClusterRequest) -> Result<(), AdminError> {
        answered(&self.socket, self.client.update_cluster(request)).await.map(drop)
    }

    /// Deletes a cluster.
    pub(crate) async fn delete_cluster(&mut self, name: String) -> Result<DeleteClusterResponse, AdminError> {
        let answer = self.client.delete_cluster(DeleteClusterRequest { name });
        Ok(answered(&self.socket, answer).await?.into_inner())
    }

    /// Refuses agents from now on.
    pub(crate) async fn revoke_agent(&mut self, request: RevokeAgentRequest) -> Result<(), AdminError> {
        answered(&self.socket, self.client.revoke_agent(request)).await.map(drop)
    }

    /// The agents that were enrolled; of all clusters, if none is named.
    pub(crate) async fn agents(&mut self, cluster: String) -> Result<Vec<EnrolledAgent>, AdminError> {
        let answer = self.client.list_agents(ListAgentsRequest { cluster });
        Ok(answered(&self.socket, answer).await?.into_inner().agents)
    }

    /// Makes a token.
    pub(crate) async fn create_token(
        &mut self,
        request: CreateTokenRequest,
    ) -> Result<CreateTokenResponse, AdminError> {
        Ok(answered(&self.socket, self.client.create_token(request)).await?.into_inner())
    }

    /// The tokens that are kept.
    pub(crate) async fn tokens(&mut self) -> Result<Vec<Token>, AdminError> {
        let answer = self.client.list_tokens(ListTokensRequest {});
        Ok(answered(&self.socket, answer).await?.into_inner().tokens)
    }

    /// Takes a token away.
    pub(crate) async fn revoke_token(&mut self, id: String) -> Result<(), AdminError> {
        let answer = self.client.revoke_token(RevokeTokenRequest { id });
        answered(&self.socket, answer).await.map(drop)
    }

    /// What the server is.
    pub(crate) async fn server_info(&mut self) -> Result<GetServerInfoResponse, AdminError> {
        let answer = self.client.get_server_info(GetServerInfoRequest {});
        Ok(answered(&self.socket, answer).await?.into_inner())
    }
}

impl Watching {
    /// The next event; `None` where the server has no more to say.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, AdminError> {
        loop {
            let response = self.events.message().await.map_err(|status| refused(&self.socket, &status))?;
            match response {
                // An event of a newer server, which this program does not know.
                Some(WatchClustersResponse { event: None }) => {}
                Some(WatchClustersResponse { event }) => return Ok(event),
                None => return Ok(None),
            }
        }
    }
}

impl Service<Request<Body>> for Wire {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

async fn answered<T>(
    socket: &Path,
    answer: impl Future<Output = Result<T, Status>>,
) -> Result<T, AdminError> {
    match timeout(ANSWER_MAX, answer).await {
        Ok(answered) => answered.map_err(|status| refused(socket, &status)),
        Err(_) => Err(AdminError::TooSlow(socket.to_owned())),
    }
}

fn not_connected(socket: &Path, error: io::Error) -> AdminError {
    let socket = socket.to_owned();
    #[expect(clippy::wildcard_enum_match_arm, reason = "io::ErrorKind is foreign and non-exhaustive")]
    match error.kind() {
        ErrorKind::NotFound => AdminError::NoSocket(socket),
        ErrorKind::PermissionDenied => AdminError::Denied(socket),
        ErrorKind::ConnectionRefused => AdminError::NobodyThere(socket),
        _ => AdminError::Connect(socket, error),
    }
}

fn refused(socket: &Path, status: &Status) -> AdminError {
    let socket = socket.to_owned();
    match status.code() {
        Code::Unimplemented => AdminError::Unknown(socket),
        Code::PermissionDenied
        | Code::Unauthenticated
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::OutOfRange => AdminError::Refused(status.message().to_owned()),
        Code::DeadlineExceeded => AdminError::TooSlow(socket),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => AdminError::Ended(socket, status.message().to_owned()),
    }
}
