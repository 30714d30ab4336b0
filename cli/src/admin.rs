//! A client of a server's admin API, on this machine or on another.

mod channel;

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use daemon::Scope;
use http::Uri;
use proto::admin::admin_client::AdminClient;
use proto::admin::watch_clusters_response::Event;
use proto::admin::{
    ANSWER_BYTES_MAX, ChangeAttestationRequest, Cluster, CreateClusterRequest, CreateDialTokenRequest,
    CreateDialTokenResponse, CreateTokenRequest, CreateTokenResponse, DeleteClusterRequest,
    DeleteClusterResponse, DialToken, EnrolledAgent, ExportRequest, ExportResponse, GetAttestationRequest,
    GetAttestationResponse, GetServerInfoRequest, GetServerInfoResponse, InForce, ListAgentsRequest,
    ListClustersRequest, ListDialTokensRequest, ListRevokedUsersRequest, ListServersRequest,
    ListTokensRequest, RemoveServerRequest, RestoreAgentRequest, RestoreAgentResponse, RestoreUserRequest,
    RevokeAgentRequest, RevokeDialTokenRequest, RevokeTokenRequest, RevokeUserRequest, RevokedUsers, Server,
    Token, UndeleteClusterRequest, UndeleteClusterResponse, UpdateClusterRequest, Users,
    WatchClustersRequest, WatchClustersResponse,
};
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};

use crate::args::{AdminEndpoint, RemoteAdmin};
use crate::names::AdminUrl;
use crate::pem::PemError;
pub(crate) use channel::Channel;

/// Longest wait for a connection, and for the response to each request.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The origin that gRPC puts before each path. The server ignores it.
const ORIGIN: &str = "http://admin";

/// A connection to a server's admin API.
pub(crate) struct Admin {
    client: AdminClient<Channel>,
    endpoint: AdminEndpoint,
}

/// A stream of changes to clusters.
pub(crate) struct ClusterWatch {
    events: Streaming<WatchClustersResponse>,
    endpoint: AdminEndpoint,
}

/// The pieces of an export, as the server sends them.
pub(crate) struct RecordPieces {
    pieces: Streaming<ExportResponse>,
    endpoint: AdminEndpoint,
}

/// The error if a request to the admin API failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminError {
    #[error(
        "there is no socket {0}; start tunnel-server on this machine, or pass --socket with the admin.socket of its configuration"
    )]
    NoSocket(PathBuf),
    #[error("{0} may not be opened by you; run this as root or as the user whose server it is")]
    Denied(PathBuf),
    #[error("nobody answers at {0}; the server that made this socket has stopped, start it again")]
    NotListening(PathBuf),
    #[error("cannot connect to {0}")]
    Connect(PathBuf, #[source] io::Error),
    #[error(
        "{0} cannot be reached; check the address, that the server's configuration has admin.tcp, and firewalls on the way"
    )]
    Unreachable(AdminUrl, #[source] io::Error),
    #[error("a certificate for the admin API cannot be used")]
    Pem(#[from] PemError),
    #[error("{} and {} cannot be used together; pass a certificate and its own key", .0.certificate.display(), .0.key.display())]
    KeyMismatch(Box<RemoteAdmin>, #[source] rustls::Error),
    #[error(
        "{0} did not agree on TLS; check that --ca is the root of that server's certificate, which must name the host, and that the port is that of admin.tcp"
    )]
    Tls(AdminUrl, #[source] io::Error),
    #[error(
        "{0} does not speak the admin API; check that it is the admin.socket or the admin.tcp of a tunnel-server"
    )]
    NotAdminApi(AdminEndpoint, #[source] hyper::Error),
    #[error("no answer from {0} within {max} s", max = ANSWER_MAX.as_secs())]
    Timeout(AdminEndpoint),
    #[error("refused: {0}")]
    Refused(String),
    #[error("the server answered {0:?} where {1} belongs; check that this is the server that you mean")]
    UnusableAnswer(String, &'static str),
    #[error("the server at {0} does not know this request; use the tombolo of the server's version")]
    Unimplemented(AdminEndpoint),
    #[error("the server at {0} ended the connection: {1}")]
    ConnectionEnded(AdminEndpoint, String),
    #[error(
        "the server at {0} ended the connection: {1}; if that happens at once, the server does not accept this certificate: have one issued by the administrators' CA that it trusts"
    )]
    RemoteConnectionEnded(AdminUrl, String),
}

impl Admin {
    /// Connects within 10 s, to a remote server with the administrator's certificate.
    pub(crate) async fn connect(endpoint: AdminEndpoint, scope: &Scope) -> Result<Self, AdminError> {
        let channel = match timeout(ANSWER_MAX, Channel::connect(&endpoint, scope)).await {
            Ok(connected) => connected?,
            Err(_) => return Err(AdminError::Timeout(endpoint)),
        };
        let client = AdminClient::with_origin(channel, Uri::from_static(ORIGIN))
            .max_decoding_message_size(ANSWER_BYTES_MAX);
        Ok(Self { client, endpoint })
    }

    /// Lists the clusters of these names, or all clusters if no name is given.
    pub(crate) async fn list(&mut self, names: Vec<String>) -> Result<Vec<Cluster>, AdminError> {
        let response = self.client.list_clusters(ListClustersRequest { names });
        Ok(in_time(&self.endpoint, response).await?.into_inner().clusters)
    }

    /// Watches the clusters of these names: first all of them, then each again whenever it changes.
    pub(crate) async fn watch(
        &mut self,
        names: Vec<String>,
        measurements: bool,
    ) -> Result<ClusterWatch, AdminError> {
        let response = self.client.watch_clusters(WatchClustersRequest { names, measurements });
        let events = in_time(&self.endpoint, response).await?.into_inner();
        Ok(ClusterWatch { events, endpoint: self.endpoint.clone() })
    }

    /// Creates a cluster; its agents may connect then.
    pub(crate) async fn create_cluster(&mut self, request: CreateClusterRequest) -> Result<(), AdminError> {
        in_time(&self.endpoint, self.client.create_cluster(request)).await.map(drop)
    }

    /// Changes the labels, networks or advertised addresses of a cluster.
    pub(crate) async fn update_cluster(&mut self, request: UpdateClusterRequest) -> Result<(), AdminError> {
        in_time(&self.endpoint, self.client.update_cluster(request)).await.map(drop)
    }

    /// Deletes a cluster. Its name stays reserved.
    pub(crate) async fn delete_cluster(&mut self, name: String) -> Result<DeleteClusterResponse, AdminError> {
        let response = self.client.delete_cluster(DeleteClusterRequest { name });
        Ok(in_time(&self.endpoint, response).await?.into_inner())
    }

    /// Brings a deleted cluster back with its description.
    pub(crate) async fn undelete_cluster(
        &mut self,
        name: String,
    ) -> Result<UndeleteClusterResponse, AdminError> {
        let response = self.client.undelete_cluster(UndeleteClusterRequest { name });
        Ok(in_time(&self.endpoint, response).await?.into_inner())
    }

    /// Refuses agents from now on, and ends their tunnels.
    pub(crate) async fn revoke_agent(
        &mut self,
        request: RevokeAgentRequest,
    ) -> Result<Vec<InForce>, AdminError> {
        Ok(in_time(&self.endpoint, self.client.revoke_agent(request)).await?.into_inner().servers)
    }

    /// Withdraws the revocation of an agent or of a certificate.
    pub(crate) async fn restore_agent(
        &mut self,
        request: RestoreAgentRequest,
    ) -> Result<RestoreAgentResponse, AdminError> {
        Ok(in_time(&self.endpoint, self.client.restore_agent(request)).await?.into_inner())
    }

    /// The attestation of a cluster: how further pods prove that they are its agents.
    pub(crate) async fn attestation(
        &mut self,
        cluster: String,
    ) -> Result<GetAttestationResponse, AdminError> {
        let response = self.client.get_attestation(GetAttestationRequest { cluster });
        Ok(in_time(&self.endpoint, response).await?.into_inner())
    }

    /// Changes the attestation of a cluster.
    pub(crate) async fn change_attestation(
        &mut self,
        request: ChangeAttestationRequest,
    ) -> Result<(), AdminError> {
        in_time(&self.endpoint, self.client.change_attestation(request)).await.map(drop)
    }

    /// Lists the enrolled agents of a cluster, or of all clusters if the name is empty.
    pub(crate) async fn agents(&mut self, cluster: String) -> Result<Vec<EnrolledAgent>, AdminError> {
        let response = self.client.list_agents(ListAgentsRequest { cluster });
        Ok(in_time(&self.endpoint, response).await?.into_inner().agents)
    }

    /// Lists the servers that share their records, and this one.
    pub(crate) async fn servers(&mut self) -> Result<Vec<Server>, AdminError> {
        let response = self.client.list_servers(ListServersRequest {});
        Ok(in_time(&self.endpoint, response).await?.into_inner().servers)
    }

    /// Removes what is left of a server that does not run.
    pub(crate) async fn remove_server(&mut self, id: String) -> Result<(), AdminError> {
        let response = self.client.remove_server(RemoveServerRequest { id });
        in_time(&self.endpoint, response).await.map(drop)
    }

    /// Creates an enrollment token for one agent.
    pub(crate) async fn create_token(
        &mut self,
        request: CreateTokenRequest,
    ) -> Result<CreateTokenResponse, AdminError> {
        Ok(in_time(&self.endpoint, self.client.create_token(request)).await?.into_inner())
    }

    /// Lists the enrollment tokens, without their secrets.
    pub(crate) async fn tokens(&mut self) -> Result<Vec<Token>, AdminError> {
        let response = self.client.list_tokens(ListTokensRequest {});
        Ok(in_time(&self.endpoint, response).await?.into_inner().tokens)
    }

    /// Revokes an enrollment token that was not used yet.
    pub(crate) async fn revoke_token(&mut self, id: String) -> Result<(), AdminError> {
        let response = self.client.revoke_token(RevokeTokenRequest { id });
        in_time(&self.endpoint, response).await.map(drop)
    }

    /// Refuses callers from now on, and ends their requests.
    pub(crate) async fn revoke_user(
        &mut self,
        request: RevokeUserRequest,
    ) -> Result<Vec<InForce>, AdminError> {
        Ok(in_time(&self.endpoint, self.client.revoke_user(request)).await?.into_inner().servers)
    }

    /// Withdraws a revocation of callers.
    pub(crate) async fn restore_user(&mut self, users: Users) -> Result<(), AdminError> {
        let response = self.client.restore_user(RestoreUserRequest { users: Some(users) });
        in_time(&self.endpoint, response).await.map(drop)
    }

    /// Lists the revocations of callers.
    pub(crate) async fn revoked_users(&mut self) -> Result<Vec<RevokedUsers>, AdminError> {
        let response = self.client.list_revoked_users(ListRevokedUsersRequest {});
        Ok(in_time(&self.endpoint, response).await?.into_inner().revoked)
    }

    /// Creates a dial token for a user.
    pub(crate) async fn create_dial_token(
        &mut self,
        request: CreateDialTokenRequest,
    ) -> Result<CreateDialTokenResponse, AdminError> {
        Ok(in_time(&self.endpoint, self.client.create_dial_token(request)).await?.into_inner())
    }

    /// Lists the dial tokens, without their secrets.
    pub(crate) async fn dial_tokens(&mut self) -> Result<Vec<DialToken>, AdminError> {
        let response = self.client.list_dial_tokens(ListDialTokensRequest {});
        Ok(in_time(&self.endpoint, response).await?.into_inner().tokens)
    }

    /// Revokes a dial token, and ends the connections that it opened.
    pub(crate) async fn revoke_dial_token(&mut self, id: String) -> Result<(), AdminError> {
        let response = self.client.revoke_dial_token(RevokeDialTokenRequest { id });
        in_time(&self.endpoint, response).await.map(drop)
    }

    /// Begins an export of the server's records.
    pub(crate) async fn export(&mut self) -> Result<RecordPieces, AdminError> {
        let pieces = in_time(&self.endpoint, self.client.export(ExportRequest {})).await?.into_inner();
        Ok(RecordPieces { pieces, endpoint: self.endpoint.clone() })
    }

    /// The server's version, addresses and counts.
    pub(crate) async fn server_info(&mut self) -> Result<GetServerInfoResponse, AdminError> {
        let response = self.client.get_server_info(GetServerInfoRequest {});
        Ok(in_time(&self.endpoint, response).await?.into_inner())
    }
}

impl RecordPieces {
    /// The next bytes of the export; `None` once the server has sent all of them.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, AdminError> {
        Ok(in_time(&self.endpoint, self.pieces.message()).await?.map(|response| response.chunk))
    }
}

impl ClusterWatch {
    /// The next event; `None` once the server has ended the watch.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, AdminError> {
        loop {
            let response =
                self.events.message().await.map_err(|status| admin_error(&self.endpoint, &status))?;
            match response {
                // A newer server sent an event that this program does not know.
                Some(WatchClustersResponse { event: None }) => {}
                Some(WatchClustersResponse { event }) => return Ok(event),
                None => return Ok(None),
            }
        }
    }
}

async fn in_time<T>(
    endpoint: &AdminEndpoint,
    response: impl Future<Output = Result<T, Status>>,
) -> Result<T, AdminError> {
    match timeout(ANSWER_MAX, response).await {
        Ok(response) => response.map_err(|status| admin_error(endpoint, &status)),
        Err(_) => Err(AdminError::Timeout(endpoint.clone())),
    }
}

fn admin_error(endpoint: &AdminEndpoint, status: &Status) -> AdminError {
    let message = || status.message().to_owned();
    match status.code() {
        Code::Unimplemented => AdminError::Unimplemented(endpoint.clone()),
        Code::PermissionDenied
        | Code::Unauthenticated
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::OutOfRange => AdminError::Refused(message()),
        Code::DeadlineExceeded => AdminError::Timeout(endpoint.clone()),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => match endpoint {
            AdminEndpoint::Socket(_) => AdminError::ConnectionEnded(endpoint.clone(), message()),
            AdminEndpoint::Remote(remote) => AdminError::RemoteConnectionEnded(remote.url.clone(), message()),
        },
    }
}
