//! The records of the store, in their serialized form.
//!
//! A field that a newer server has added is not an error, and survives a change of its record by this one. A form that
//! an older server must not overlook gets a new schema version instead.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use proto::ClusterId;
use proto::spiffe::AgentId;
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use super::store::{ServerEntry, StoreTable, StoredRecord};

/// A point in time, in whole seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixSeconds(pub u64);

/// A cluster and its description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    /// The time at which it was first known.
    pub created: UnixSeconds,
    /// Labels, by the rules of Kubernetes.
    pub labels: BTreeMap<String, String>,
    /// The networks in which its addresses are valid; DNS labels.
    pub networks: Vec<String>,
    /// The addresses that its agents can advertise: `host:port`, or addresses as CIDR.
    pub advertise: Vec<String>,
    /// Set if the cluster was deleted. Its description is kept until the name is free, and selects nothing.
    pub tombstone: Option<Tombstone>,
}

/// The remains of a deleted cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tombstone {
    /// The time of the deletion.
    pub deleted: UnixSeconds,
    /// The end of the reservation of its name.
    pub reserved_until: UnixSeconds,
}

/// The time at which a cluster was last seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Seen(pub(super) UnixSeconds);

/// A server that runs now, as it has registered itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegisteredServer {
    /// The newest form of records that it knows. A form is written once all servers know it.
    pub level: u32,
    /// Its process: the nonce of its start, in hexadecimal. A message of another process of the same name is stale.
    pub epoch: String,
    /// The mark of its keys, in hexadecimal, by which a process knows the entry of one before it.
    pub keys_mark: String,
    /// Name and version of its software.
    pub software: String,
    /// The time of its start.
    pub started: UnixSeconds,
    /// The addresses at which agents dial it, `host:port`.
    pub addresses: Vec<String>,
    /// The address at which other servers dial it, `host:port`; `None` without `peering`.
    #[serde(default)]
    pub peering: Option<String>,
    /// It is stopping: its tunnels move, and nothing new begins there.
    pub draining: bool,
    /// The age of its memory in seconds at which it refuses everybody; `None` if it does not say.
    #[serde(default)]
    pub stale_limit_seconds: Option<u64>,
}

/// The server that has a number in connection IDs, for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NumberOwner {
    pub(super) server_id: String,
}

/// The target of a revocation of agents.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revoked {
    /// One agent of a cluster, for ever.
    Agent(ClusterId, String),
    /// All agents of a cluster whose certificates were issued before the revocation.
    Agents(ClusterId),
    /// One certificate, by its serial number in lower-case hexadecimal.
    Serial(String),
}

/// A revocation of agents' credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Revocation {
    /// The time of the revocation.
    pub at: UnixSeconds,
}

/// The target of a revocation of callers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Callers {
    /// All callers of the server.
    All,
    /// Callers with this user name, which includes the prefix of their method.
    Named(String),
    /// Callers with this certificate, by its serial number in lower-case hexadecimal without leading zeros.
    Certificate(String),
}

/// A revocation of callers' credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallerRevocation {
    /// The time of the revocation.
    pub at: UnixSeconds,
    /// Only credentials that were issued before this time; all, if it is `None`.
    pub issued_before: Option<UnixSeconds>,
}

/// An enrollment token in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// The cluster that the token is for.
    pub(super) cluster: String,
    /// The SHA-256 of its secret.
    pub(super) secret_hash: String,
    /// The time of its creation.
    pub created: UnixSeconds,
    /// The time from which it is invalid.
    pub expires: UnixSeconds,
    /// The use of the token, if it was used.
    pub used: Option<TokenUse>,
}

/// A token by which a caller is connected to targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DialToken {
    /// Its owner's user name, as policies name it.
    pub user: String,
    /// The clusters whose targets it is for.
    pub(super) clusters: Vec<String>,
    /// The networks whose clusters' targets it is for; at least one cluster or network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) networks: Vec<String>,
    /// The SHA-256 of its secret.
    pub(super) secret_hash: String,
    /// The time of its creation.
    pub created: UnixSeconds,
    /// The time from which it is invalid.
    pub expires: UnixSeconds,
}

/// An address that is assigned to a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AddressRecord {
    /// The cluster that has the address.
    pub(super) cluster: String,
    /// The time at which it was assigned.
    pub(super) given: UnixSeconds,
}

/// The use of an enrollment token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenUse {
    /// The pin of the key that was enrolled.
    pub(super) pin: String,
    /// The agent that was enrolled.
    pub instance: String,
    /// The time of the use.
    pub at: UnixSeconds,
    /// The certificate that was issued.
    pub(super) answer: IssuedChain,
}

/// An enrolled agent and its certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// Its key: a `SubjectPublicKeyInfo` in base64.
    pub public_key: String,
    /// The serial number of its certificate.
    pub serial: String,
    /// The time at which the certificate was issued.
    pub issued: UnixSeconds,
    /// The time at which the certificate ends.
    pub expires: UnixSeconds,
    /// The certificate and its intermediates.
    pub answer: IssuedChain,
    /// The key and serial number before the last renewal.
    pub previous: Option<Previous>,
    /// The pod's name, if a pod has proved to be this agent; the pod's UID is then the instance.
    #[serde(default)]
    pub pod: Option<String>,
}

/// The key and serial number of an agent before its last renewal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Previous {
    /// The public key in base64.
    pub public_key: String,
    /// The serial number of the certificate.
    pub serial: String,
}

/// The account by which further pods of a cluster can enroll, and whether they can.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attestation {
    /// The account of the cluster's agents; `None` if no agent has shown one.
    pub workload: Option<Workload>,
    /// The time since which no pod can enroll, until an administrator reopens the cluster.
    pub closed: Option<UnixSeconds>,
}

/// The ServiceAccount of a cluster's agents, and the issuer of its tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// The namespace of the account.
    pub namespace: String,
    /// The name of the account.
    pub account: String,
    /// The UID of the account.
    pub account_uid: String,
    /// The issuer that its tokens name; many clusters have the same.
    pub issuer: String,
    /// The issuer's keys, a JSON Web Key Set.
    pub issuer_keys: String,
    /// The time at which the account was recorded.
    pub recorded: UnixSeconds,
}

/// A certificate and the intermediates behind it, DER in base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IssuedChain(pub(super) Vec<String>);

impl StoredRecord for Cluster {
    const TABLE: StoreTable = StoreTable::Clusters;
}

impl StoredRecord for Seen {
    const TABLE: StoreTable = StoreTable::Seen;
}

impl StoredRecord for Revocation {
    const TABLE: StoreTable = StoreTable::Revocations;
}

impl StoredRecord for CallerRevocation {
    const TABLE: StoreTable = StoreTable::Callers;
}

impl StoredRecord for Token {
    const TABLE: StoreTable = StoreTable::Tokens;
}

impl StoredRecord for DialToken {
    const TABLE: StoreTable = StoreTable::DialTokens;
}

impl StoredRecord for AddressRecord {
    const TABLE: StoreTable = StoreTable::Addresses;
}

impl StoredRecord for Agent {
    const TABLE: StoreTable = StoreTable::Agents;
}

impl StoredRecord for RegisteredServer {
    const TABLE: StoreTable = StoreTable::Servers;
}

impl ServerEntry for RegisteredServer {
    fn may_replace(&self, earlier: &Self) -> bool {
        // A lock lets one process have the state directory with these keys.
        self.keys_mark == earlier.keys_mark
    }

    fn set_draining(&mut self) {
        self.draining = true;
    }
}

impl StoredRecord for NumberOwner {
    const TABLE: StoreTable = StoreTable::Numbers;
}

impl StoredRecord for Attestation {
    const TABLE: StoreTable = StoreTable::Attestations;
}

impl Cluster {
    /// A cluster without a description.
    pub(super) fn new(created: UnixSeconds) -> Self {
        let (labels, networks, advertise) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { created, labels, networks, advertise, tombstone: None }
    }

    /// The record as decisions see it: a deleted cluster has no description.
    pub(super) fn in_force(self) -> Self {
        match self.tombstone {
            Some(_) => Self { tombstone: self.tombstone, ..Self::new(self.created) },
            None => self,
        }
    }
}

impl Revoked {
    /// The revocation target for one agent.
    #[must_use]
    pub fn agent(agent: &AgentId) -> Self {
        Self::Agent(agent.cluster().clone(), agent.instance().to_owned())
    }

    /// The key of its record in the store.
    pub(super) fn key(&self) -> String {
        match self {
            Self::Agent(cluster, instance) => format!("agent/{cluster}/{instance}"),
            Self::Agents(cluster) => format!("agents/{cluster}"),
            Self::Serial(serial) => format!("serial/{serial}"),
        }
    }

    /// Parses a key of the store.
    pub(super) fn from_key(key: &str) -> Option<Self> {
        let (kind, rest) = key.split_once('/')?;
        match kind {
            "agent" => {
                let (cluster, instance) = rest.split_once('/')?;
                Some(Self::Agent(cluster.parse().ok()?, instance.to_owned()))
            }
            "agents" => rest.parse().ok().map(Self::Agents),
            "serial" => Some(Self::Serial(rest.to_owned())),
            _ => None,
        }
    }
}

impl Callers {
    /// The key of its record in the store.
    pub(super) fn key(&self) -> String {
        match self {
            Self::All => "all".to_owned(),
            Self::Named(name) => format!("name/{name}"),
            Self::Certificate(serial) => format!("certificate/{serial}"),
        }
    }

    /// Parses a key of the store.
    pub(super) fn from_key(key: &str) -> Option<Self> {
        match key.split_once('/') {
            None if key == "all" => Some(Self::All),
            Some(("name", name)) => Some(Self::Named(name.to_owned())),
            Some(("certificate", serial)) => Some(Self::Certificate(serial.to_owned())),
            None | Some(_) => None,
        }
    }
}

impl From<SystemTime> for UnixSeconds {
    fn from(time: SystemTime) -> Self {
        // A clock before 1970 is wrong anyway.
        Self(time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }
}

impl UnixSeconds {
    /// The time; `None` if this platform cannot represent it.
    #[must_use]
    pub fn time(self) -> Option<SystemTime> {
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(self.0))
    }
}

impl std::ops::Add<Duration> for UnixSeconds {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span.as_secs()))
    }
}

impl IssuedChain {
    /// Encodes a chain that was issued.
    #[must_use]
    pub fn of(chain: &[CertificateDer<'_>]) -> Self {
        Self(chain.iter().map(|certificate| BASE64.encode(certificate)).collect())
    }

    /// The certificates of the chain, DER.
    #[must_use]
    pub fn chain(&self) -> Vec<Vec<u8>> {
        self.0.iter().filter_map(|certificate| BASE64.decode(certificate).ok()).collect()
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
