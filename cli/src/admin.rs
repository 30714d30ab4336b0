//! The way to the admin API of a server, on this machine or another.

mod wire;

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
    DeleteClusterResponse, DialToken, EnrolledAgent, GetAttestationRequest, GetAttestationResponse,
    GetServerInfoRequest, GetServerInfoResponse, ListAgentsRequest, ListClustersRequest,
    ListDialTokensRequest, ListRevokedUsersRequest, ListTokensRequest, RestoreUserRequest,
    RevokeAgentRequest, RevokeDialTokenRequest, RevokeTokenRequest, RevokeUserRequest, RevokedUsers, Token,
    UpdateClusterRequest, Users, WatchClustersRequest, WatchClustersResponse,
};
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};

use crate::args::{Place, Remote};
use crate::names::ServerUrl;
use crate::pem::PemError;
use wire::Wire;

/// How long a server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// What gRPC wants to stand in front of a path. Nobody looks at it: who is asked stands in the connection.
const ORIGIN: &str = "http://admin";

/// A connection to a server's admin API.
pub(crate) struct Admin {
    client: AdminClient<Wire>,
    place: Place,
}

/// What a watch says next.
pub(crate) struct Watching {
    events: Streaming<WatchClustersResponse>,
    place: Place,
}

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
    #[error("{0} is not reached; check the address, that admin.tcp is set there, and what stands in between")]
    Unreachable(ServerUrl, #[source] io::Error),
    #[error("a certificate for the admin API cannot be used")]
    Pem(#[from] PemError),
    #[error("{} and {} cannot be used together; pass a certificate and its own key", .0.certificate.display(), .0.key.display())]
    Pair(Box<Remote>, #[source] rustls::Error),
    #[error(
        "{0} did not agree on TLS; check that --ca is the root of that server's certificate, which must name the host, and that the port is that of admin.tcp"
    )]
    Tls(ServerUrl, #[source] io::Error),
    #[error(
        "{0} does not speak the admin API; check that it is the admin.socket or the admin.tcp of a tunnel-server"
    )]
    NotAdmin(Place, #[source] hyper::Error),
    #[error("no answer from {0} within {max} s", max = ANSWER_MAX.as_secs())]
    TooSlow(Place),
    #[error("refused: {0}")]
    Refused(String),
    #[error("the server at {0} does not know this request; use the tombolo of its version")]
    Unknown(Place),
    #[error("the server at {0} ended the connection: {1}")]
    Ended(Place, String),
    #[error(
        "the server at {0} ended the connection: {1}; if it does so at once, it does not take this certificate: have one issued by the administrators' CA that it trusts"
    )]
    Dismissed(ServerUrl, String),
}

impl Admin {
    /// Connects, and shows there who asks.
    pub(crate) async fn connect(place: Place, scope: &Scope) -> Result<Self, AdminError> {
        let wire = match timeout(ANSWER_MAX, Wire::to(&place, scope)).await {
            Ok(connected) => connected?,
            Err(_) => return Err(AdminError::TooSlow(place)),
        };
        let client = AdminClient::with_origin(wire, Uri::from_static(ORIGIN))
            .max_decoding_message_size(ANSWER_BYTES_MAX);
        Ok(Self { client, place })
    }

    /// What is known of these clusters; of all, if none is named.
    pub(crate) async fn list(&mut self, names: Vec<String>) -> Result<Vec<Cluster>, AdminError> {
        let answer = self.client.list_clusters(ListClustersRequest { names });
        Ok(answered(&self.place, answer).await?.into_inner().clusters)
    }

    /// The same, then each again when it has changed.
    pub(crate) async fn watch(
        &mut self,
        names: Vec<String>,
        measurements: bool,
    ) -> Result<Watching, AdminError> {
        let answer = self.client.watch_clusters(WatchClustersRequest { names, measurements });
        let events = answered(&self.place, answer).await?.into_inner();
        Ok(Watching { events, place: self.place.clone() })
    }

    /// Makes a cluster.
    pub(crate) async fn create_cluster(&mut self, request: CreateClusterRequest) -> Result<(), AdminError> {
        answered(&self.place, self.client.create_cluster(request)).await.map(drop)
    }

    /// Changes what is said of a cluster.
    pub(crate) async fn update_cluster(&mut self, request: UpdateClusterRequest) -> Result<(), AdminError> {
        answered(&self.place, self.client.update_cluster(request)).await.map(drop)
    }

    /// Deletes a cluster.
    pub(crate) async fn delete_cluster(&mut self, name: String) -> Result<DeleteClusterResponse, AdminError> {
        let answer = self.client.delete_cluster(DeleteClusterRequest { name });
        Ok(answered(&self.place, answer).await?.into_inner())
    }

    /// Refuses agents from now on.
    pub(crate) async fn revoke_agent(&mut self, request: RevokeAgentRequest) -> Result<(), AdminError> {
        answered(&self.place, self.client.revoke_agent(request)).await.map(drop)
    }

    /// By what further pods of a cluster prove themselves.
    pub(crate) async fn attestation(
        &mut self,
        cluster: String,
    ) -> Result<GetAttestationResponse, AdminError> {
        let answer = self.client.get_attestation(GetAttestationRequest { cluster });
        Ok(answered(&self.place, answer).await?.into_inner())
    }

    /// Changes that.
    pub(crate) async fn change_attestation(
        &mut self,
        request: ChangeAttestationRequest,
    ) -> Result<(), AdminError> {
        answered(&self.place, self.client.change_attestation(request)).await.map(drop)
    }

    /// The agents that were enrolled; of all clusters, if none is named.
    pub(crate) async fn agents(&mut self, cluster: String) -> Result<Vec<EnrolledAgent>, AdminError> {
        let answer = self.client.list_agents(ListAgentsRequest { cluster });
        Ok(answered(&self.place, answer).await?.into_inner().agents)
    }

    /// Makes a token.
    pub(crate) async fn create_token(
        &mut self,
        request: CreateTokenRequest,
    ) -> Result<CreateTokenResponse, AdminError> {
        Ok(answered(&self.place, self.client.create_token(request)).await?.into_inner())
    }

    /// The tokens that are kept.
    pub(crate) async fn tokens(&mut self) -> Result<Vec<Token>, AdminError> {
        let answer = self.client.list_tokens(ListTokensRequest {});
        Ok(answered(&self.place, answer).await?.into_inner().tokens)
    }

    /// Takes a token away.
    pub(crate) async fn revoke_token(&mut self, id: String) -> Result<(), AdminError> {
        let answer = self.client.revoke_token(RevokeTokenRequest { id });
        answered(&self.place, answer).await.map(drop)
    }

    /// Refuses callers from now on.
    pub(crate) async fn revoke_user(&mut self, request: RevokeUserRequest) -> Result<(), AdminError> {
        answered(&self.place, self.client.revoke_user(request)).await.map(drop)
    }

    /// Takes a revocation of callers back.
    pub(crate) async fn restore_user(&mut self, users: Users) -> Result<(), AdminError> {
        let answer = self.client.restore_user(RestoreUserRequest { users: Some(users) });
        answered(&self.place, answer).await.map(drop)
    }

    /// The revocations of callers.
    pub(crate) async fn revoked_users(&mut self) -> Result<Vec<RevokedUsers>, AdminError> {
        let answer = self.client.list_revoked_users(ListRevokedUsersRequest {});
        Ok(answered(&self.place, answer).await?.into_inner().revoked)
    }

    /// Makes a dial token.
    pub(crate) async fn create_dial_token(
        &mut self,
        request: CreateDialTokenRequest,
    ) -> Result<CreateDialTokenResponse, AdminError> {
        Ok(answered(&self.place, self.client.create_dial_token(request)).await?.into_inner())
    }

    /// The dial tokens that are kept.
    pub(crate) async fn dial_tokens(&mut self) -> Result<Vec<DialToken>, AdminError> {
        let answer = self.client.list_dial_tokens(ListDialTokensRequest {});
        Ok(answered(&self.place, answer).await?.into_inner().tokens)
    }

    /// Takes a dial token away.
    pub(crate) async fn revoke_dial_token(&mut self, id: String) -> Result<(), AdminError> {
        let answer = self.client.revoke_dial_token(RevokeDialTokenRequest { id });
        answered(&self.place, answer).await.map(drop)
    }

    /// What the server is.
    pub(crate) async fn server_info(&mut self) -> Result<GetServerInfoResponse, AdminError> {
        let answer = self.client.get_server_info(GetServerInfoRequest {});
        Ok(answered(&self.place, answer).await?.into_inner())
    }
}

impl Watching {
    /// The next event; `None` where the server has no more to say.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, AdminError> {
        loop {
            let response = self.events.message().await.map_err(|status| refused(&self.place, &status))?;
            match response {
                // An event of a newer server, which this program does not know.
                Some(WatchClustersResponse { event: None }) => {}
                Some(WatchClustersResponse { event }) => return Ok(event),
                None => return Ok(None),
            }
        }
    }
}

async fn answered<T>(
    place: &Place,
    answer: impl Future<Output = Result<T, Status>>,
) -> Result<T, AdminError> {
    match timeout(ANSWER_MAX, answer).await {
        Ok(answered) => answered.map_err(|status| refused(place, &status)),
        Err(_) => Err(AdminError::TooSlow(place.clone())),
    }
}

fn refused(place: &Place, status: &Status) -> AdminError {
    let message = || status.message().to_owned();
    match status.code() {
        Code::Unimplemented => AdminError::Unknown(place.clone()),
        Code::PermissionDenied
        | Code::Unauthenticated
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::OutOfRange => AdminError::Refused(message()),
        Code::DeadlineExceeded => AdminError::TooSlow(place.clone()),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => match place {
            Place::Socket(_) => AdminError::Ended(place.clone(), message()),
            Place::Server(remote) => AdminError::Dismissed(remote.url.clone(), message()),
        },
    }
}
