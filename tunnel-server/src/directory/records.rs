//! What the directory keeps, as it stands in the store.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use proto::ClusterId;
use proto::spiffe::AgentId;
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use super::store::{StoreTable, StoredRecord};

/// A point in time, in whole seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixSeconds(pub u64);

/// What people say of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Cluster {
    /// When it was first known.
    pub created: UnixSeconds,
    /// As Kubernetes labels things.
    pub labels: BTreeMap<String, String>,
    /// The networks in which its addresses mean something; DNS labels.
    pub networks: Vec<String>,
    /// What its agents may advertise: `host:port`, or addresses as CIDR.
    pub advertise: Vec<String>,
    /// It was deleted, and only its name is kept.
    pub tombstone: Option<Tombstone>,
}

/// What is left of a deleted cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Tombstone {
    /// When.
    pub deleted: UnixSeconds,
    /// Until then nobody else gets the name.
    pub reserved_until: UnixSeconds,
}

/// When a cluster was last seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Seen(pub(super) UnixSeconds);

/// Whose credentials are refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revoked {
    /// One agent of a cluster, for ever.
    Agent(ClusterId, String),
    /// All agents of a cluster whose certificates were issued before the revocation.
    Agents(ClusterId),
    /// One certificate, by its serial number in lower-case hexadecimal.
    Serial(String),
}

/// What is kept of a revocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Revocation {
    /// When.
    pub at: UnixSeconds,
}

/// Callers whose credentials are refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Callers {
    /// Everybody.
    All,
    /// Whoever has this name, with the prefix of the method that proves it.
    Named(String),
    /// Whoever shows the certificate with this serial number, in lower-case hexadecimal without leading zeros.
    Certificate(String),
}

/// What is kept of a revocation of callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct CallerRevocation {
    /// When.
    pub at: UnixSeconds,
    /// Only credentials that were issued before; all, if nothing is said.
    pub issued_before: Option<UnixSeconds>,
}

/// What is kept of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Token {
    /// For which cluster.
    pub(super) cluster: String,
    /// The SHA-256 of its secret.
    pub(super) secret_hash: String,
    /// When it was made.
    pub created: UnixSeconds,
    /// From then on it is of no use.
    pub expires: UnixSeconds,
    /// By whom it was used.
    pub used: Option<TokenUse>,
}

/// What is kept of a token by which a caller is connected to targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct DialToken {
    /// Whose it is, as policies name them.
    pub user: String,
    /// For targets of which clusters.
    pub(super) clusters: Vec<String>,
    /// For targets of the clusters of which networks, as long as they are in these; at least one cluster or network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) networks: Vec<String>,
    /// The SHA-256 of its secret.
    pub(super) secret_hash: String,
    /// When it was made.
    pub created: UnixSeconds,
    /// From then on it is of no use.
    pub expires: UnixSeconds,
}

/// What is kept of an address that was handed out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct AddressRecord {
    /// To which cluster.
    pub(super) cluster: String,
    /// When.
    pub(super) given: UnixSeconds,
}

/// How a token was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct TokenUse {
    /// Names the key that was enrolled.
    pub(super) pin: String,
    /// The agent that it became.
    pub instance: String,
    /// When.
    pub at: UnixSeconds,
    /// What it was given.
    pub(super) answer: IssuedChain,
}

/// What is kept of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Agent {
    /// Its key: a `SubjectPublicKeyInfo` in base64.
    pub public_key: String,
    /// Its certificate's serial number.
    pub serial: String,
    /// When the certificate was issued.
    pub issued: UnixSeconds,
    /// When it ends.
    pub expires: UnixSeconds,
    /// The certificate.
    pub answer: IssuedChain,
    /// What these replaced.
    pub previous: Option<Previous>,
    /// The pod's name, where a pod has proved to be this agent; its UID is then the instance.
    #[serde(default)]
    pub pod: Option<String>,
}

/// What an agent had before its last renewal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Previous {
    /// The key.
    pub public_key: String,
    /// The certificate's serial number.
    pub serial: String,
}

/// Whether, and by what, further pods of a cluster may prove themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Attestation {
    /// Whose pods they are; nothing where no agent has said so.
    pub workload: Option<Workload>,
    /// Since when nobody may, until an administrator reopens it.
    pub closed: Option<UnixSeconds>,
}

/// The ServiceAccount of a cluster's agents, and who vouches for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Workload {
    /// The account's namespace.
    pub namespace: String,
    /// The account's name.
    pub account: String,
    /// The account's UID.
    pub account_uid: String,
    /// Whom its tokens name as their issuer; the same at many clusters.
    pub issuer: String,
    /// The issuer's keys, a JSON Web Key Set.
    pub issuer_keys: String,
    /// When the account was recorded.
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

impl StoredRecord for Attestation {
    const TABLE: StoreTable = StoreTable::Attestations;
}

impl Cluster {
    /// One of which nothing is said.
    pub(super) fn new(created: UnixSeconds) -> Self {
        let (labels, networks, advertise) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { created, labels, networks, advertise, tombstone: None }
    }
}

impl Revoked {
    /// One agent.
    #[must_use]
    pub fn agent(agent: &AgentId) -> Self {
        Self::Agent(agent.cluster().clone(), agent.instance().to_owned())
    }

    /// Its key in the store.
    pub(super) fn key(&self) -> String {
        match self {
            Self::Agent(cluster, instance) => format!("agent/{cluster}/{instance}"),
            Self::Agents(cluster) => format!("agents/{cluster}"),
            Self::Serial(serial) => format!("serial/{serial}"),
        }
    }

    /// The other way round.
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
    /// Their key in the store.
    pub(super) fn key(&self) -> String {
        match self {
            Self::All => "all".to_owned(),
            Self::Named(name) => format!("name/{name}"),
            Self::Certificate(serial) => format!("certificate/{serial}"),
        }
    }

    /// The other way round.
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
    /// The time, if this platform has it.
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
    /// Of a chain that was issued.
    #[must_use]
    pub fn of(chain: &[CertificateDer<'_>]) -> Self {
        Self(chain.iter().map(|certificate| BASE64.encode(certificate)).collect())
    }

    /// The chain, DER.
    #[must_use]
    pub fn chain(&self) -> Vec<Vec<u8>> {
        self.0.iter().filter_map(|certificate| BASE64.decode(certificate).ok()).collect()
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
