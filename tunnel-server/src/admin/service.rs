//! The service `tombolo.admin.v1.Admin`. Each request that arrives here is already authorized.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use daemon::Scope;
use proto::admin::admin_server;
use proto::admin::{
    Addresses, ChangeAttestationRequest, ChangeAttestationResponse, Cluster, Counts, CreateClusterRequest,
    CreateClusterResponse, CreateDialTokenRequest, CreateDialTokenResponse, CreateTokenRequest,
    CreateTokenResponse, DeleteClusterRequest, DeleteClusterResponse, ExportRequest, GetAttestationRequest,
    GetAttestationResponse, GetServerInfoRequest, GetServerInfoResponse, Limits, ListAgentsRequest,
    ListAgentsResponse, ListClustersRequest, ListClustersResponse, ListDialTokensRequest,
    ListDialTokensResponse, ListRevokedUsersRequest, ListRevokedUsersResponse, ListServersRequest,
    ListServersResponse, ListTokensRequest, ListTokensResponse, NAMES_MAX, RemoveServerRequest,
    RemoveServerResponse, RestoreAgentRequest, RestoreAgentResponse, RestoreUserRequest, RestoreUserResponse,
    RevokeAgentRequest, RevokeAgentResponse, RevokeDialTokenRequest, RevokeDialTokenResponse,
    RevokeTokenRequest, RevokeTokenResponse, RevokeUserRequest, RevokeUserResponse, UndeleteClusterRequest,
    UndeleteClusterResponse, UpdateClusterRequest, UpdateClusterResponse, WatchClustersRequest,
};
use proto::{ClusterId, NotAClusterId};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status, async_trait};
use tracing::info;

use super::audit_log::RequestDetail;
use super::export::{self, EXPORTS_MAX, ExportMessages};
use super::server_info::ServerInfo;
use super::watch::{ClusterWatch, Events};
use super::{convert, requests, revocable, servers};
use crate::directory::{ClusterError, DialTokenEntry, Directory, NAME_RESERVED};
use crate::registry::{
    AGENTS_PER_CLUSTER_MAX, OwnServer, Registry, SURGE_AGENTS_MAX, TUNNELS_PER_AGENT_MAX,
    TUNNELS_PER_CLUSTER_MAX,
};

const SOFTWARE: &str = concat!("tunnel-server/", env!("CARGO_PKG_VERSION"));

/// Most watches at once, of all connections.
pub const WATCHES_MAX: usize = 16;

/// Most connections at once; more wait in the listen queue.
pub const CONNECTIONS_MAX: usize = 64;

/// The state of the service.
pub(super) struct AdminService {
    pub(super) server: ServerInfo,
    pub(super) own: OwnServer,
    pub(super) since: SystemTime,
    pub(super) registry: Registry,
    pub(super) directory: Directory,
    /// The slots for watches, [`WATCHES_MAX`] in all.
    pub(super) watches: Arc<Semaphore>,
    /// The slots for exports of the records, [`EXPORTS_MAX`] in all.
    pub(super) exports: Arc<Semaphore>,
    pub(super) scope: Scope,
}

/// The clusters that a request names.
enum ClusterFilter {
    All,
    Named(BTreeSet<ClusterId>),
}

#[async_trait]
impl admin_server::Admin for AdminService {
    type WatchClustersStream = Events;
    type ExportStream = ExportMessages;

    async fn list_clusters(
        &self,
        request: Request<ListClustersRequest>,
    ) -> Result<Response<ListClustersResponse>, Status> {
        let wanted = ClusterFilter::parse(&request.into_inner().names)?;
        Ok(Response::new(ListClustersResponse { clusters: list(&self.registry, &wanted, self.own_id()) }))
    }

    async fn watch_clusters(
        &self,
        request: Request<WatchClustersRequest>,
    ) -> Result<Response<Events>, Status> {
        let WatchClustersRequest { names, measurements } = request.into_inner();
        let wanted = ClusterFilter::parse(&names)?;
        let Ok(permit) = Arc::clone(&self.watches).try_acquire_owned() else {
            let full = format!("{WATCHES_MAX} watches are open, which is the most; end one, or list instead");
            return Err(Status::resource_exhausted(full));
        };
        let registry = self.registry.clone();
        // Subscribed before the first listing, so that no change is missed.
        let changes = registry.changes();
        let own_id = self.own_id().map(str::to_owned);
        let list = move || list(&registry, &wanted, own_id.as_deref());
        let watch = ClusterWatch { list, changes, measurements, scope: self.scope.clone(), _permit: permit };
        Ok(Response::new(watch.events()))
    }

    async fn get_server_info(
        &self,
        _: Request<GetServerInfoRequest>,
    ) -> Result<Response<GetServerInfoResponse>, Status> {
        let ServerInfo { server_id, trust_domain: _, gateway, tunnel, probes, enrollment: _ } = &self.server;
        Ok(Response::new(GetServerInfoResponse {
            software: SOFTWARE.to_owned(),
            server_id: server_id.clone(),
            since: Some(convert::whole_seconds(self.since)),
            draining: self.scope.is_draining(),
            addresses: Some(Addresses {
                gateway: gateway.to_string(),
                tunnel: tunnel.to_string(),
                probes: probes.to_string(),
            }),
            counts: Some(self.counts()),
            limits: Some(Limits {
                clusters: count(self.directory.clusters_max()),
                tunnels: count(self.registry.tunnels_max()),
                tunnels_per_cluster: count(TUNNELS_PER_CLUSTER_MAX),
                streams_per_tunnel: transport::STREAMS_MAX,
                watches: count(WATCHES_MAX),
                connections: count(CONNECTIONS_MAX),
                agents_per_cluster: count(AGENTS_PER_CLUSTER_MAX),
                surge_agents: count(SURGE_AGENTS_MAX),
                tunnels_per_agent: count(TUNNELS_PER_AGENT_MAX),
            }),
        }))
    }

    async fn list_servers(
        &self,
        _: Request<ListServersRequest>,
    ) -> Result<Response<ListServersResponse>, Status> {
        Ok(Response::new(ListServersResponse { servers: servers::list(&self.own) }))
    }

    async fn remove_server(
        &self,
        request: Request<RemoveServerRequest>,
    ) -> Result<Response<RemoveServerResponse>, Status> {
        let detail = detail(&request);
        let id = request.into_inner().id;
        detail.set(format!("server {id}"));
        servers::remove(&self.own, &self.directory, &id).await?;
        Ok(Response::new(RemoveServerResponse {}))
    }

    async fn create_cluster(
        &self,
        request: Request<CreateClusterRequest>,
    ) -> Result<Response<CreateClusterResponse>, Status> {
        let detail = detail(&request);
        let (cluster, update) = requests::created(request.into_inner())?;
        detail.set(format!("cluster {cluster}"));
        let created = self.directory.create_cluster(cluster.clone(), update, SystemTime::now()).await;
        created.map_err(requests::cluster_status)?;
        self.registry.directory_changed(&cluster);
        Ok(Response::new(CreateClusterResponse {}))
    }

    async fn update_cluster(
        &self,
        request: Request<UpdateClusterRequest>,
    ) -> Result<Response<UpdateClusterResponse>, Status> {
        let detail = detail(&request);
        let (cluster, update) = requests::updated(request.into_inner())?;
        detail.set(format!("cluster {cluster}"));
        let updated = self.directory.update_cluster(cluster.clone(), update).await;
        updated.map_err(requests::cluster_status)?;
        self.registry.directory_changed(&cluster);
        Ok(Response::new(UpdateClusterResponse {}))
    }

    async fn delete_cluster(
        &self,
        request: Request<DeleteClusterRequest>,
    ) -> Result<Response<DeleteClusterResponse>, Status> {
        let detail = detail(&request);
        let cluster = requests::cluster(&request.into_inner().name)?;
        detail.set(format!("cluster {cluster}"));
        let deleted = self.directory.delete_cluster(cluster.clone(), SystemTime::now(), NAME_RESERVED).await;
        let tombstone = deleted.map_err(requests::cluster_status)?;
        self.registry.disconnect_refused();
        self.registry.directory_changed(&cluster);
        let reserved_until = tombstone.reserved_until.time().map(convert::whole_seconds);
        Ok(Response::new(DeleteClusterResponse { reserved_until }))
    }

    async fn undelete_cluster(
        &self,
        request: Request<UndeleteClusterRequest>,
    ) -> Result<Response<UndeleteClusterResponse>, Status> {
        let detail = detail(&request);
        let cluster = requests::cluster(&request.into_inner().name)?;
        detail.set(format!("cluster {cluster}"));
        let undeleted = self.directory.undelete_cluster(cluster.clone(), SystemTime::now()).await;
        let record = undeleted.map_err(requests::cluster_status)?;
        self.registry.directory_changed(&cluster);
        Ok(Response::new(UndeleteClusterResponse { description: Some(convert::description(&record)) }))
    }

    async fn revoke_agent(
        &self,
        request: Request<RevokeAgentRequest>,
    ) -> Result<Response<RevokeAgentResponse>, Status> {
        let detail = detail(&request);
        let request = request.into_inner();
        let is_unknown_allowed = request.unseen;
        let revoked = requests::revoked(request)?;
        detail.set(requests::describe_revoked(&revoked));
        if !is_unknown_allowed && !revocable::is_known(&revoked, &self.registry, &self.directory).await? {
            return Err(requests::unseen_status(&revoked));
        }
        let revoked = self.directory.revoke(revoked, SystemTime::now()).await;
        let change = revoked.map_err(requests::revoke_status)?;
        self.registry.disconnect_refused();
        let servers = revocable::in_force(change, &self.directory, &self.server.server_id).await;
        Ok(Response::new(RevokeAgentResponse { servers }))
    }

    async fn restore_agent(
        &self,
        request: Request<RestoreAgentRequest>,
    ) -> Result<Response<RestoreAgentResponse>, Status> {
        let detail = detail(&request);
        let revoked = requests::restored(request.into_inner())?;
        detail.set(requests::describe_revoked(&revoked));
        let restored = self.directory.restore(revoked.clone()).await;
        if !restored.map_err(|error| requests::store_status(&error))? {
            return Err(requests::not_revoked_status(&revoked, &self.directory));
        }
        // The revocation is gone already: an error here must not read as if it were not.
        let still_refused = revocable::still_refused(&revoked, &self.directory).await;
        let still_refused = still_refused
            .unwrap_or_else(|error| format!("it cannot be read whether it is: {}", error.message()));
        Ok(Response::new(RestoreAgentResponse { still_refused }))
    }

    async fn get_attestation(
        &self,
        request: Request<GetAttestationRequest>,
    ) -> Result<Response<GetAttestationResponse>, Status> {
        let cluster = requests::cluster(&request.into_inner().cluster)?;
        let found = self.directory.attestation(&cluster).await;
        Ok(Response::new(convert::attestation(found.map_err(|error| requests::store_status(&error))?)))
    }

    async fn change_attestation(
        &self,
        request: Request<ChangeAttestationRequest>,
    ) -> Result<Response<ChangeAttestationResponse>, Status> {
        let detail = detail(&request);
        let ChangeAttestationRequest { cluster: name, change } = request.into_inner();
        let cluster = requests::cluster(&name)?;
        let seen = self.directory.attestation(&cluster).await;
        let seen = seen.map_err(|error| requests::store_status(&error))?;
        let (next, what) = requests::attestation(change, &seen)?;
        detail.set(format!("attestation of cluster {cluster}: {what}"));
        let updated = self.directory.update_attestation(&cluster, seen, next).await;
        updated.map_err(requests::attestation_status)?;
        info!(%cluster, what, "an administrator has changed the attestation of pods");
        Ok(Response::new(ChangeAttestationResponse {}))
    }

    async fn list_agents(
        &self,
        request: Request<ListAgentsRequest>,
    ) -> Result<Response<ListAgentsResponse>, Status> {
        let name = request.into_inner().cluster;
        let wanted = if name.is_empty() { None } else { Some(requests::cluster(&name)?) };
        if let Some(unknown) = wanted.as_ref().filter(|cluster| self.directory.entry(cluster).is_none()) {
            return Err(requests::cluster_status(ClusterError::Unknown(unknown.clone())));
        }
        let enrolled = self.directory.agents(wanted.clone()).await;
        let enrolled = enrolled.map_err(|error| requests::store_status(&error))?;
        let connected =
            self.registry.list(|cluster, _| wanted.as_ref().is_none_or(|wanted| wanted == cluster));
        let agents = convert::agents(&enrolled, &connected, &self.directory);
        Ok(Response::new(ListAgentsResponse { agents }))
    }

    async fn create_token(
        &self,
        request: Request<CreateTokenRequest>,
    ) -> Result<Response<CreateTokenResponse>, Status> {
        let enrollment = self.server.enrollment.clone().ok_or_else(requests::no_enrollment)?;
        let detail = detail(&request);
        let (cluster, ttl) = requests::token(request.into_inner())?;
        detail.set(format!("token for cluster {cluster}"));
        let made = self.directory.create_token(cluster, ttl, SystemTime::now()).await;
        let (bearer, token) = made.map_err(requests::token_status)?;
        Ok(Response::new(CreateTokenResponse {
            token: bearer.reveal(),
            expires: token.expires.time().map(convert::whole_seconds),
            servers: enrollment.servers_or_default(self.server.tunnel.port()),
            pins: enrollment.shown.pins(),
            enrollment_address: enrollment.address,
        }))
    }

    async fn list_tokens(
        &self,
        _: Request<ListTokensRequest>,
    ) -> Result<Response<ListTokensResponse>, Status> {
        let tokens = self.directory.tokens().await.map_err(|error| requests::store_status(&error))?;
        Ok(Response::new(ListTokensResponse { tokens: tokens.iter().map(convert::token).collect() }))
    }

    async fn revoke_token(
        &self,
        request: Request<RevokeTokenRequest>,
    ) -> Result<Response<RevokeTokenResponse>, Status> {
        let detail = detail(&request);
        let id = request.into_inner().id;
        // The text behind a dot is the secret, if somebody has sent the complete token.
        detail.set(format!("token {}", id.split('.').next().unwrap_or_default()));
        match self.directory.revoke_token(id).await {
            Ok(true) => Ok(Response::new(RevokeTokenResponse {})),
            Ok(false) => {
                Err(Status::not_found("there is no such token; `tombolo token list` shows their ids"))
            }
            Err(error) => Err(requests::store_status(&error)),
        }
    }

    async fn revoke_user(
        &self,
        request: Request<RevokeUserRequest>,
    ) -> Result<Response<RevokeUserResponse>, Status> {
        let detail = detail(&request);
        let RevokeUserRequest { users, issued_before } = request.into_inner();
        let callers = requests::callers(users)?;
        let issued_before = issued_before.map(requests::issued_before).transpose()?;
        detail.set(requests::describe_callers(&callers, issued_before));
        let revoked = self.directory.revoke_callers(callers, issued_before, SystemTime::now()).await;
        let change = revoked.map_err(requests::callers_status)?;
        let servers = revocable::in_force(change, &self.directory, &self.server.server_id).await;
        Ok(Response::new(RevokeUserResponse { servers }))
    }

    async fn restore_user(
        &self,
        request: Request<RestoreUserRequest>,
    ) -> Result<Response<RestoreUserResponse>, Status> {
        let detail = detail(&request);
        let callers = requests::callers(request.into_inner().users)?;
        detail.set(requests::describe_callers(&callers, None));
        match self.directory.restore_callers(callers).await {
            Ok(true) => Ok(Response::new(RestoreUserResponse {})),
            Ok(false) => {
                Err(Status::not_found("nothing of that is revoked; `tombolo user list` shows what is"))
            }
            Err(error) => Err(requests::store_status(&error)),
        }
    }

    async fn list_revoked_users(
        &self,
        _: Request<ListRevokedUsersRequest>,
    ) -> Result<Response<ListRevokedUsersResponse>, Status> {
        let revoked = self.directory.revoked_callers().into_iter();
        let revoked = revoked.map(|(callers, revocation)| convert::revoked(callers, revocation)).collect();
        Ok(Response::new(ListRevokedUsersResponse { revoked }))
    }

    async fn create_dial_token(
        &self,
        request: Request<CreateDialTokenRequest>,
    ) -> Result<Response<CreateDialTokenResponse>, Status> {
        let detail = detail(&request);
        let (user, scope, ttl) = requests::dial_token(request.into_inner())?;
        let clusters = scope.clusters.iter().map(|cluster| format!("cluster {cluster}"));
        let named: Vec<_> =
            clusters.chain(scope.networks.iter().map(|network| format!("network {network}"))).collect();
        let what = format!("dial token of user {user} for {}", named.join(", "));
        let made = self.directory.create_dial_token(user, scope, ttl, SystemTime::now()).await;
        let (bearer, DialTokenEntry { id, token }) = made.map_err(requests::dial_token_status)?;
        detail.set(format!("{what}: {id}"));
        let expires = token.expires.time().map(convert::whole_seconds);
        Ok(Response::new(CreateDialTokenResponse { token: bearer.reveal(), id, expires }))
    }

    async fn list_dial_tokens(
        &self,
        _: Request<ListDialTokensRequest>,
    ) -> Result<Response<ListDialTokensResponse>, Status> {
        let tokens = self.directory.dial_tokens().iter().map(convert::dial_token).collect();
        Ok(Response::new(ListDialTokensResponse { tokens }))
    }

    async fn revoke_dial_token(
        &self,
        request: Request<RevokeDialTokenRequest>,
    ) -> Result<Response<RevokeDialTokenResponse>, Status> {
        let detail = detail(&request);
        let id = request.into_inner().id;
        // The text behind a dot is the secret, if somebody has sent the complete token.
        detail.set(format!("dial token {}", id.split('.').next().unwrap_or_default()));
        match self.directory.revoke_dial_token(id).await {
            Ok(true) => Ok(Response::new(RevokeDialTokenResponse {})),
            Ok(false) => {
                let advice = "there is no such dial token; `tombolo user dial-token list` shows their ids";
                Err(Status::not_found(advice))
            }
            Err(error) => Err(requests::store_status(&error)),
        }
    }

    async fn export(&self, _: Request<ExportRequest>) -> Result<Response<ExportMessages>, Status> {
        let Ok(permit) = Arc::clone(&self.exports).try_acquire_owned() else {
            let full = format!("{EXPORTS_MAX} exports are under way, which is the most; try again soon");
            return Err(Status::resource_exhausted(full));
        };
        let taken = convert::whole_seconds(SystemTime::now()).to_string();
        let export = self.directory.export(self.server.trust_domain.clone(), taken, permit).await;
        let export = export.map_err(|error| requests::store_status(&error))?;
        info!("an administrator exports the records");
        Ok(Response::new(export::messages(export)))
    }
}

impl AdminService {
    /// The ID of this server where others share its records, so that each tunnel is listed with its server.
    fn own_id(&self) -> Option<&str> {
        self.directory.is_shared().then(|| self.own.id())
    }

    fn counts(&self) -> Counts {
        let all = self.registry.list(|_, _| true);
        let tunnels = || all.iter().flat_map(|cluster| &cluster.tunnels);
        Counts {
            clusters: count(all.len()),
            clusters_connected: count(all.iter().filter(|cluster| cluster.is_reachable()).count()),
            tunnels: count(tunnels().count()),
            streams_open: tunnels().map(|tunnel| u64::from(tunnel.streams_open)).sum(),
            watches: count(WATCHES_MAX - self.watches.available_permits()),
        }
    }
}

impl ClusterFilter {
    fn parse(names: &[String]) -> Result<Self, Status> {
        if names.is_empty() {
            return Ok(Self::All);
        }
        if names.len() > NAMES_MAX {
            return Err(Status::invalid_argument(format!("at most {NAMES_MAX} names, not {}", names.len())));
        }
        let parsed: Result<_, NotAClusterId> = names.iter().map(|name| name.parse::<ClusterId>()).collect();
        parsed.map(Self::Named).map_err(|error| Status::invalid_argument(error.to_string()))
    }

    fn has(&self, cluster: &ClusterId) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(cluster),
        }
    }
}

/// The place where a request's detail for the audit log is noted.
fn detail<T>(request: &Request<T>) -> RequestDetail {
    // It is always there, because the connection adds it to each request.
    request.extensions().get::<RequestDetail>().cloned().unwrap_or_default()
}

fn list(registry: &Registry, wanted: &ClusterFilter, own_id: Option<&str>) -> Vec<Cluster> {
    let listed = registry.list(|cluster, _| wanted.has(cluster));
    listed.iter().map(|listed| convert::cluster(listed, own_id)).collect()
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
