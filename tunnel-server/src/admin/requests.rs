//! Converts requests of the API into calls of the directory, and the directory's errors into gRPC statuses.

use std::time::Duration;

use prost_types::Timestamp;
use proto::ClusterId;
use proto::admin::{
    Agent, CreateClusterRequest, CreateDialTokenRequest, CreateTokenRequest, Description, Everyone, Forget,
    Reopen, RestoreAgentRequest, RevokeAgentRequest, Texts, UpdateClusterRequest, Users,
    change_attestation_request, restore_agent_request, revoke_agent_request, users,
};
use proto::cluster::is_dns_label;
use tonic::Status;
use trust::parse_serial_text;

use crate::directory::{
    Attestation, AttestationUpdateError, Callers, CallersError, ClusterError, ClusterSpecUpdate, DialScope,
    DialTokenError, Directory, NotANetworkName, RevokeError, Revoked, StoreError, TokenError, UnixSeconds,
    Workload,
};
use crate::identity::oidc::pod::IssuerKeys;
use crate::identity::{NAME_BYTES_MAX, is_name};

/// Default lifetime of an enrollment token.
const TTL_DEFAULT: Duration = Duration::from_secs(15 * 60);

/// Default lifetime of a dial token: one day.
const DIAL_TTL_DEFAULT: Duration = Duration::from_secs(24 * 60 * 60);

/// A cluster to make, and what to say of it.
pub(super) fn created(request: CreateClusterRequest) -> Result<(ClusterId, ClusterSpecUpdate), Status> {
    let CreateClusterRequest { name, description } = request;
    let Description { labels, networks, advertise } = description.unwrap_or_default();
    let update = ClusterSpecUpdate {
        set_labels: labels.into_iter().collect(),
        remove_labels: Vec::new(),
        networks: Some(networks),
        advertise: Some(advertise),
    };
    Ok((cluster(&name)?, update))
}

/// A cluster, and what to say of it from now on.
pub(super) fn updated(request: UpdateClusterRequest) -> Result<(ClusterId, ClusterSpecUpdate), Status> {
    let UpdateClusterRequest { name, set_labels, remove_labels, networks, advertise } = request;
    let texts = |texts: Option<Texts>| texts.map(|Texts { texts }| texts);
    let update = ClusterSpecUpdate {
        set_labels: set_labels.into_iter().collect(),
        remove_labels,
        networks: texts(networks),
        advertise: texts(advertise),
    };
    Ok((cluster(&name)?, update))
}

/// The credentials that a request revokes.
pub(super) fn revoked(request: RevokeAgentRequest) -> Result<Revoked, Status> {
    match request.revoked {
        Some(revoke_agent_request::Revoked::Agent(named)) => agent(named),
        Some(revoke_agent_request::Revoked::Cluster(name)) => Ok(Revoked::Agents(cluster(&name)?)),
        Some(revoke_agent_request::Revoked::Serial(serial)) => Ok(Revoked::Serial(self::serial(&serial)?)),
        None => Err(Status::invalid_argument("say whom: an agent, a cluster or a serial number")),
    }
}

/// The revocation that a request withdraws.
pub(super) fn restored(request: RestoreAgentRequest) -> Result<Revoked, Status> {
    match request.restored {
        Some(restore_agent_request::Restored::Agent(named)) => agent(named),
        Some(restore_agent_request::Restored::Serial(serial)) => Ok(Revoked::Serial(self::serial(&serial)?)),
        None => Err(Status::invalid_argument("say whom: an agent or a serial number")),
    }
}

fn agent(named: Agent) -> Result<Revoked, Status> {
    let Agent { cluster: name, instance } = named;
    if !is_dns_label(&instance) {
        return Err(Status::invalid_argument(format!("{instance:?} is not the name of an agent")));
    }
    Ok(Revoked::Agent(cluster(&name)?, instance))
}

/// The same in words, for the audit log.
pub(super) fn describe_revoked(revoked: &Revoked) -> String {
    match revoked {
        Revoked::Agent(cluster, instance) => format!("agent {cluster}/{instance}"),
        Revoked::Agents(cluster) => format!("all agents of cluster {cluster}"),
        Revoked::Serial(serial) => format!("certificate {serial}"),
    }
}

/// The answer if this server does not know the agents that are to be revoked.
pub(super) fn unseen_status(revoked: &Revoked) -> Status {
    let whom = describe_revoked(revoked);
    Status::not_found(format!(
        "nothing was revoked: {whom} is neither enrolled nor connected here. `tombolo agent list` and `tombolo cluster list --output wide` \
         show the names; to revoke it all the same, give --unseen"
    ))
}

/// The answer if there is no such revocation to withdraw.
pub(super) fn not_revoked_status(revoked: &Revoked, directory: &Directory) -> Status {
    let whom = describe_revoked(revoked);
    Status::not_found(match revoked {
        Revoked::Agent(cluster, _) if directory.are_agents_revoked(cluster) => format!(
            "nothing was restored: {whom} is not revoked by its name. All agents that cluster {cluster} had at some time are \
             revoked together, which cannot be taken back: enroll it again by `tombolo token create --cluster {cluster}`"
        ),
        Revoked::Agent(..) => {
            format!(
                "nothing was restored: {whom} is not revoked; `tombolo agent list` shows the names and states"
            )
        }
        Revoked::Agents(_) | Revoked::Serial(_) => {
            format!("nothing was restored: {whom} is not revoked; check the number by `tombolo ca show FILE`")
        }
    })
}

/// The next attestation record in place of `seen`, and a description of the change for the audit log.
pub(super) fn attestation(
    change: Option<change_attestation_request::Change>,
    seen: &Attestation,
) -> Result<(Attestation, String), Status> {
    use change_attestation_request::Change;
    match change {
        Some(Change::SetIssuerKeys(keys)) => {
            let keys = IssuerKeys::parse(keys.as_bytes())
                .map_err(|error| Status::invalid_argument(error.to_string()))?;
            let workload = seen.workload.clone().ok_or_else(|| {
                Status::failed_precondition(
                    "nothing is recorded of this cluster yet: the first agent that enrolls with a token and shows its \
                     ServiceAccount brings its issuer's keys along",
                )
            })?;
            let change = format!("issuer's keys are {}", keys.names().collect::<Vec<_>>().join(", "));
            let workload = Some(Workload { issuer_keys: keys.to_json(), ..workload });
            Ok((Attestation { workload, ..seen.clone() }, change))
        }
        Some(Change::Forget(Forget {})) => {
            Ok((Attestation { workload: None, ..seen.clone() }, "account forgotten".to_owned()))
        }
        Some(Change::Reopen(Reopen {})) => {
            Ok((Attestation { closed: None, ..seen.clone() }, "reopened to pods".to_owned()))
        }
        None => Err(Status::invalid_argument("say what: set_issuer_keys, forget or reopen")),
    }
}

pub(super) fn attestation_status(error: AttestationUpdateError) -> Status {
    let message = error.to_string();
    match error {
        AttestationUpdateError::Changed(_) => Status::aborted(message),
        AttestationUpdateError::Unknown(_) => Status::not_found(message),
        AttestationUpdateError::Store(error) => store_status(&error),
    }
}

/// The callers that a request is about.
pub(super) fn callers(users: Option<Users>) -> Result<Callers, Status> {
    match users.and_then(|users| users.users) {
        Some(users::Users::Everyone(Everyone {})) => Ok(Callers::All),
        Some(users::Users::Name(name)) if (1..=NAME_BYTES_MAX).contains(&name.len()) => {
            Ok(Callers::Named(name))
        }
        Some(users::Users::Name(_)) => {
            Err(Status::invalid_argument(format!("a name has 1 to {NAME_BYTES_MAX} bytes")))
        }
        Some(users::Users::Serial(serial)) => {
            // The store has serial numbers without leading zeros.
            let text = self::serial(&serial)?;
            Ok(Callers::Certificate(text.trim_start_matches('0').to_owned()))
        }
        None => Err(Status::invalid_argument("say whom: a name, a serial number or everyone")),
    }
}

/// The same in words, for the audit log.
pub(super) fn describe_callers(callers: &Callers, issued_before: Option<UnixSeconds>) -> String {
    let whom = match callers {
        Callers::All => "everyone".to_owned(),
        Callers::Named(name) => format!("user {name}"),
        Callers::Certificate(serial) => format!("certificate {serial}"),
    };
    match issued_before.and_then(UnixSeconds::time) {
        Some(before) => format!("{whom}, issued before {}", Timestamp::from(before)),
        None => whom,
    }
}

/// Before which time credentials were issued, in whole seconds. What was issued within that second is meant, too.
pub(super) fn issued_before(time: Timestamp) -> Result<UnixSeconds, Status> {
    let seconds = u64::try_from(time.seconds).ok();
    let seconds = seconds.map(|seconds| seconds.saturating_add(u64::from(time.nanos > 0)));
    seconds.map(UnixSeconds).ok_or_else(|| Status::invalid_argument("the time is before 1970"))
}

/// A serial number as certificates are known by it.
fn serial(text: &str) -> Result<String, Status> {
    parse_serial_text(text).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// The cluster of a token and its lifetime.
pub(super) fn token(request: CreateTokenRequest) -> Result<(ClusterId, Duration), Status> {
    let CreateTokenRequest { cluster: name, ttl } = request;
    let ttl = match ttl {
        None => TTL_DEFAULT,
        Some(ttl) => ttl.try_into().map_err(|_| Status::invalid_argument("the time is negative"))?,
    };
    Ok((cluster(&name)?, ttl))
}

/// The owner of a dial token, its clusters and networks, and its lifetime.
pub(super) fn dial_token(request: CreateDialTokenRequest) -> Result<(String, DialScope, Duration), Status> {
    let CreateDialTokenRequest { user, clusters, ttl, networks } = request;
    is_name(&user).map_err(|fault| Status::invalid_argument(fault.to_string()))?;
    let clusters = clusters.iter().map(|name| cluster(name)).collect::<Result<_, _>>()?;
    let network = |name: &String| name.parse();
    let networks = networks.iter().map(network).collect::<Result<_, NotANetworkName>>();
    let networks = networks.map_err(|error| Status::invalid_argument(error.to_string()))?;
    let ttl = match ttl {
        None => DIAL_TTL_DEFAULT,
        Some(ttl) => ttl.try_into().map_err(|_| Status::invalid_argument("the time is negative"))?,
    };
    Ok((user, DialScope { clusters, networks }, ttl))
}

pub(super) fn cluster(name: &str) -> Result<ClusterId, Status> {
    name.parse().map_err(|error: proto::NotAClusterId| Status::invalid_argument(error.to_string()))
}

pub(super) fn cluster_status(error: ClusterError) -> Status {
    let message = error.to_string();
    match error {
        ClusterError::Exists(_) => Status::already_exists(message),
        ClusterError::Unknown(_) | ClusterError::NeverDeleted(_) => Status::not_found(message),
        ClusterError::Refused(_) | ClusterError::InvalidSpec(_) => Status::invalid_argument(message),
        ClusterError::Reserved { .. } | ClusterError::NotDeleted(_) | ClusterError::TooLate { .. } => {
            Status::failed_precondition(message)
        }
        ClusterError::Full(_) | ClusterError::NetworkFull(_) => Status::resource_exhausted(message),
        ClusterError::Store(error) => store_status(&error),
    }
}

pub(super) fn revoke_status(error: RevokeError) -> Status {
    match error {
        RevokeError::Full => Status::resource_exhausted(error.to_string()),
        RevokeError::Store(error) => store_status(&error),
    }
}

pub(super) fn callers_status(error: CallersError) -> Status {
    let message = error.to_string();
    match error {
        CallersError::Everybody | CallersError::OneCertificate => Status::invalid_argument(message),
        CallersError::Full => Status::resource_exhausted(message),
        CallersError::Store(error) => store_status(&error),
    }
}

pub(super) fn token_status(error: TokenError) -> Status {
    let message = error.to_string();
    match error {
        TokenError::Unknown(_) => Status::not_found(message),
        TokenError::Ttl => Status::invalid_argument(message),
        TokenError::Full => Status::resource_exhausted(message),
        TokenError::Randomness => Status::unavailable(message),
        TokenError::Store(error) => store_status(&error),
    }
}

pub(super) fn dial_token_status(error: DialTokenError) -> Status {
    let message = error.to_string();
    match error {
        DialTokenError::Unknown(_) => Status::not_found(message),
        DialTokenError::Ttl | DialTokenError::Clusters => Status::invalid_argument(message),
        DialTokenError::Full => Status::resource_exhausted(message),
        DialTokenError::Randomness => Status::unavailable(message),
        DialTokenError::Store(error) => store_status(&error),
    }
}

pub(super) fn no_enrollment() -> Status {
    Status::failed_precondition("this server enrolls nobody; set `enrollment` in its configuration")
}

pub(super) fn store_status(error: &StoreError) -> Status {
    tracing::error!(error = %daemon::error_chain(error), "the store could not be used");
    match error {
        // What an administrator can do about it.
        StoreError::NotFresh { .. }
        | StoreError::Etcd(_)
        | StoreError::Unknown(_)
        | StoreError::Behind
        | StoreError::UnknownTable(_)
        | StoreError::NotExportable(_)
        | StoreError::NotRead
        | StoreError::Importing(_)
        | StoreError::Contended => Status::unavailable(error.to_string()),
        StoreError::Damaged { .. }
        | StoreError::DamagedRecord { .. }
        | StoreError::UnsuitableEtcd { .. }
        | StoreError::Newer { .. }
        | StoreError::InUse(_)
        | StoreError::TooLarge(_)
        | StoreError::Io { .. }
        | StoreError::Stopping => {
            Status::unavailable("the server could not write this down; its log says why")
        }
    }
}
