//! Converts records of the registry and the directory into messages of the schema.

use std::collections::BTreeMap;
use std::time::SystemTime;

use prost_types::Timestamp;
use proto::admin::{self, users};
use proto::greeting::Certificate;
use proto::session::Health;
use proto::spiffe::AgentId;

use crate::directory::{
    AgentCredential, AgentEntry, Attestation, CallerRevocation, Callers, Cluster, DialTokenEntry, Directory,
    TokenEntry, UnixSeconds, Workload,
};
use crate::registry::{ClusterStatus, RemoteTunnelStatus, TunnelStatus};

/// A cluster, as it is now. `own_id` is the ID of this server where others share its records.
pub(super) fn cluster(listed: &ClusterStatus, own_id: Option<&str>) -> admin::Cluster {
    let here = listed.tunnels.iter().map(|listed| tunnel(listed, own_id));
    admin::Cluster {
        name: listed.cluster.to_string(),
        connected: listed.is_reachable(),
        last_seen: listed.last_seen.map(whole_seconds),
        tunnels: here.chain(listed.at_peers.iter().map(remote_tunnel)).collect(),
        description: Some(description(&listed.record)),
        created: listed.record.created.time().map(whole_seconds),
        kubernetes_version: listed.kubernetes_version.clone(),
        virtual_address: listed.given.map_or_else(String::new, |address| address.to_string()),
    }
}

/// A point in time as the directory keeps it, so that a restart does not change it.
pub(super) fn whole_seconds(time: SystemTime) -> Timestamp {
    Timestamp { nanos: 0, ..Timestamp::from(time) }
}

/// The agents that were enrolled, and the connected ones that were not, in the order of their clusters.
pub(super) fn agents(
    entries: &[AgentEntry],
    connected: &[ClusterStatus],
    directory: &Directory,
) -> Vec<admin::EnrolledAgent> {
    let enrolled = entries.iter().map(|entry| agent(entry, directory));
    let mut agents: BTreeMap<(String, String), admin::EnrolledAgent> =
        enrolled.map(|agent| ((agent.cluster.clone(), agent.instance.clone()), agent)).collect();
    for tunnel in connected.iter().flat_map(|status| &status.at_peers) {
        let told = &tunnel.told;
        let (serial, issued) = (&told.serial, UnixSeconds(told.issued));
        note_connected(&mut agents, &told.agent, (serial, issued), &told.version);
    }
    // In the order of their registration, so that the newest comes last.
    for tunnel in connected.iter().flat_map(|status| &status.tunnels) {
        let credential = (&tunnel.credential.serial, tunnel.credential.issued);
        note_connected(&mut agents, &tunnel.agent, credential, &tunnel.version);
    }
    agents.into_values().collect()
}

/// Notes that an agent has a tunnel, with the certificate and the version that it has shown.
fn note_connected(
    agents: &mut BTreeMap<(String, String), admin::EnrolledAgent>,
    id: &AgentId,
    (serial, issued): (&String, UnixSeconds),
    version: &str,
) {
    let key = (id.cluster().to_string(), id.instance().to_owned());
    let agent = agents.entry(key).or_insert_with(|| agent_by_hand(id));
    if agent.by_hand {
        agent.serial.clone_from(serial);
        agent.issued = issued.time().map(whole_seconds);
    }
    agent.connected = true;
    version.clone_into(&mut agent.version);
}

/// A connected agent without a record of its enrollment. Its certificate is the tunnel's, which is not revoked: a revocation ends the
/// tunnel.
fn agent_by_hand(id: &AgentId) -> admin::EnrolledAgent {
    admin::EnrolledAgent {
        cluster: id.cluster().to_string(),
        instance: id.instance().to_owned(),
        by_hand: true,
        ..admin::EnrolledAgent::default()
    }
}

fn agent(entry: &AgentEntry, directory: &Directory) -> admin::EnrolledAgent {
    let AgentEntry { cluster, instance, agent } = entry;
    let credential = AgentCredential { serial: agent.serial.clone(), issued: agent.issued };
    let id = AgentId::new(cluster.clone(), instance);
    admin::EnrolledAgent {
        cluster: cluster.to_string(),
        instance: instance.clone(),
        serial: agent.serial.clone(),
        issued: agent.issued.time().map(whole_seconds),
        expires: agent.expires.time().map(whole_seconds),
        revoked: id.is_none_or(|id| directory.admits(&id, &credential).is_err()),
        pod: agent.pod.clone().unwrap_or_default(),
        version: String::new(),
        by_hand: false,
        connected: false,
    }
}

/// Converts the workload by which pods of a cluster prove themselves.
pub(super) fn attestation(found: Attestation) -> admin::GetAttestationResponse {
    let timestamp = |seconds: UnixSeconds| seconds.time().map(whole_seconds);
    let Attestation { workload, closed } = found;
    let workload = workload.map(|workload| {
        let Workload { namespace, account, account_uid, issuer, issuer_keys, recorded } = workload;
        admin::Workload {
            namespace,
            service_account: account,
            service_account_uid: account_uid,
            issuer,
            issuer_keys,
            recorded: timestamp(recorded),
        }
    });
    admin::GetAttestationResponse { workload, closed: closed.and_then(timestamp) }
}

/// A token, without what makes it one.
pub(super) fn token(entry: &TokenEntry) -> admin::Token {
    let TokenEntry { id, token } = entry;
    admin::Token {
        id: id.clone(),
        cluster: token.cluster_id().map_or_else(String::new, |cluster| cluster.to_string()),
        created: token.created.time().map(whole_seconds),
        expires: token.expires.time().map(whole_seconds),
        used_by: token.used.as_ref().map_or_else(String::new, |used| used.instance.clone()),
    }
}

/// A dial token, without what makes it one.
pub(super) fn dial_token(entry: &DialTokenEntry) -> admin::DialToken {
    let DialTokenEntry { id, token } = entry;
    admin::DialToken {
        id: id.clone(),
        user: token.user.clone(),
        clusters: token.cluster_ids().iter().map(ToString::to_string).collect(),
        created: token.created.time().map(whole_seconds),
        expires: token.expires.time().map(whole_seconds),
        networks: token.network_names().iter().map(ToString::to_string).collect(),
    }
}

/// Converts a revocation of callers.
pub(super) fn revoked(callers: Callers, revocation: CallerRevocation) -> admin::RevokedUsers {
    let users = match callers {
        Callers::All => users::Users::Everyone(admin::Everyone {}),
        Callers::Named(name) => users::Users::Name(name),
        Callers::Certificate(id) => users::Users::Serial(id),
    };
    let timestamp = |seconds: UnixSeconds| seconds.time().map(whole_seconds);
    admin::RevokedUsers {
        users: Some(admin::Users { users: Some(users) }),
        issued_before: revocation.issued_before.and_then(timestamp),
        revoked_at: timestamp(revocation.at),
    }
}

/// The labels, networks and addresses to advertise of a cluster.
pub(super) fn description(record: &Cluster) -> admin::Description {
    admin::Description {
        labels: record.labels.clone().into_iter().collect(),
        networks: record.networks.clone(),
        advertise: record.advertise.clone(),
    }
}

fn tunnel(listed: &TunnelStatus, own_id: Option<&str>) -> admin::Tunnel {
    let link = listed.link();
    admin::Tunnel {
        agent: listed.agent.instance().to_owned(),
        carrier: listed.carrier.as_str().to_owned(),
        address: listed.address.to_string(),
        health: health(listed.health).into(),
        draining: listed.draining,
        key_copied: listed.key_copied,
        version: listed.version.as_ref().to_owned(),
        since: Some(whole_seconds(listed.since)),
        endpoints: listed.endpoints.clone(),
        certificates: listed.certificates.iter().map(certificate).collect(),
        home: u32::try_from(listed.home.number()).unwrap_or(u32::MAX),
        measurements: Some(admin::Measurements {
            round_trip: link.round_trip.try_into().ok(),
            packets_sent: link.packets_sent,
            packets_lost: link.packets_lost,
            streams_open: listed.streams_open,
        }),
        server: own_id.unwrap_or_default().to_owned(),
    }
}

/// A tunnel to another server, as far as that one tells of it.
fn remote_tunnel(listed: &RemoteTunnelStatus) -> admin::Tunnel {
    let told = &*listed.told;
    let since = told.since.and_then(|since| UnixSeconds(since).time());
    admin::Tunnel {
        agent: told.agent.instance().to_owned(),
        health: health(listed.health).into(),
        draining: listed.draining,
        version: told.version.clone(),
        since: since.map(whole_seconds),
        endpoints: told.advertised.endpoints.clone(),
        certificates: told.advertised.certificates.iter().map(certificate).collect(),
        measurements: Some(admin::Measurements {
            round_trip: told.distance.try_into().ok(),
            streams_open: told.streams_open,
            ..admin::Measurements::default()
        }),
        server: listed.server.as_ref().to_owned(),
        ..admin::Tunnel::default()
    }
}

fn certificate(certificate: &Certificate) -> admin::ServedCertificate {
    let Certificate { address, names, is_cut } = certificate.clone();
    admin::ServedCertificate { address, names, cut: is_cut }
}

fn health(health: Health) -> admin::Health {
    match health {
        Health::Live => admin::Health::Live,
        Health::Suspect => admin::Health::Suspect,
        Health::Lost => admin::Health::Lost,
    }
}
