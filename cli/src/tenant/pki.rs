//! The certificates of a tenant's control plane: three CAs and a ServiceAccount key of its own, and what they have issued.
//!
//! Nothing here has been issued by the host cluster. Only the bootstrap has the group `system:masters`, for ten minutes and in memory.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType,
};
use time::OffsetDateTime;

use super::kubeconfig_text::kubeconfig;

/// The validity of a CA: ten years.
const CA_VALIDITY: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The validity of all that a CA issues: a year.
const LEAF_VALIDITY: Duration = Duration::from_secs(365 * 24 * 3600);

/// The validity of credentials that this program uses itself.
const SHORT_VALIDITY: Duration = Duration::from_secs(600);

/// Certificates begin so long before their time, because clocks differ.
const BACKDATED: Duration = Duration::from_secs(300);

/// The group of a tenant's administrators, which a ClusterRoleBinding makes cluster-admin, so that it can be revoked.
pub(super) const ADMINS: &str = "tombolo:tenant-admins";

/// The group of API servers at kubelets, which a ClusterRoleBinding makes `system:kubelet-api-admin`.
pub(super) const KUBELET_CLIENTS: &str = "tombolo:kubelet-clients";

/// A key or a certificate could not be made.
#[derive(Debug, thiserror::Error)]
#[error("a certificate of the tenant cannot be made")]
pub(crate) struct PkiError(#[from] rcgen::Error);

/// A CA with its key, and the other CA that is trusted beside it while all CAs are exchanged.
pub(super) struct TenantAuthority {
    issuer: Issuer<'static, KeyPair>,
    certificate_pem: String,
    /// The certificate of the other CA; empty if there is none.
    beside_pem: String,
}

/// A certificate and its key, PEM.
#[derive(Clone)]
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// The addresses that certificates bear.
pub(super) struct Addresses {
    /// The Service of the API servers in the host cluster.
    pub(super) service: IpAddr,
    /// The nodes that carry API servers.
    pub(super) nodes: Vec<IpAddr>,
    /// The first address of the tenant's own Services: `default/kubernetes`.
    pub(super) kubernetes: IpAddr,
    /// The Services of the members of each etcd.
    pub(super) etcd_data: Vec<IpAddr>,
    pub(super) etcd_event: Vec<IpAddr>,
}

/// The Secrets of a control plane: by the name of each the files in it.
pub(super) type Secrets = BTreeMap<&'static str, Files>;

/// The files of a Secret, by their names.
pub(super) type Files = BTreeMap<&'static str, String>;

/// The CAs of a tenant and its ServiceAccount key, as they are in force. They outlive all certificates.
pub(super) struct TenantRoots {
    pub(super) cluster: TenantAuthority,
    pub(super) front_proxy: TenantAuthority,
    pub(super) etcd: TenantAuthority,
    /// The key that signs tokens.
    pub(super) accounts: KeyPair,
    /// The public key that verifies tokens, too, while all keys are exchanged; empty if there is none.
    pub(super) accounts_beside: String,
}

/// The names of the Secrets of a control plane's parts.
pub(super) const SECRETS: [&str; 5] =
    ["apiserver", "controller-manager", "scheduler", "etcd-data", "etcd-event"];

/// The names of the files in one of these Secrets.
pub(super) fn files_of(secret: &str) -> &'static [&'static str] {
    match secret {
        "apiserver" => &API_SERVER_FILES,
        "controller-manager" => &["ca.crt", "kubeconfig", "sa.key", "signing.crt", "signing.key"],
        "scheduler" => &["kubeconfig"],
        _ => &["ca.crt", "peer.crt", "peer.key", "server.crt", "server.key"],
    }
}

const API_SERVER_FILES: [&str; 13] = [
    "apiserver.crt",
    "apiserver.key",
    "ca.crt",
    "etcd-ca.crt",
    "etcd-client.crt",
    "etcd-client.key",
    "front-proxy-ca.crt",
    "front-proxy-client.crt",
    "front-proxy-client.key",
    "kubelet-client.crt",
    "kubelet-client.key",
    "sa.key",
    "sa.pub",
];

/// The end that a certificate authenticates.
enum Usage<'a> {
    Server(&'a [IpAddr]),
    /// A user with a group.
    Client(&'a str, Option<&'a str>),
    /// Both ends, as members of an etcd are to each other. They have the name of their etcd.
    Member(&'a str, &'a [IpAddr]),
}

impl TenantAuthority {
    /// Makes a CA of this name.
    ///
    /// # Errors
    /// [`PkiError`]
    pub(super) fn generate(name: &str, now: SystemTime) -> Result<Self, PkiError> {
        Self::of_key(name, KeyPair::generate()?, now)
    }

    /// Makes the CA that follows one of this name. Its own name has a part of its key: OpenSSL finds the issuer of a certificate by its
    /// name, so two CAs that are trusted at the same time must not have the same one.
    ///
    /// # Errors
    /// [`PkiError`]
    pub(super) fn generate_next(name: &str, now: SystemTime) -> Result<Self, PkiError> {
        let key = KeyPair::generate()?;
        let hash = digest(&SHA256, &key.subject_public_key_info());
        let part: String = hash.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        Self::of_key(&format!("{name}-{part}"), key, now)
    }

    fn of_key(name: &str, key: KeyPair, now: SystemTime) -> Result<Self, PkiError> {
        let mut params = params(name, None, now, CA_VALIDITY);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let certificate_pem = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate_pem, beside_pem: String::new() })
    }

    /// Reads one that was made before.
    ///
    /// # Errors
    /// [`PkiError`] if it is no CA, or the key is no key.
    pub(super) fn parse(certificate_pem: &str, key_pem: &str) -> Result<Self, PkiError> {
        let issuer = Issuer::from_ca_cert_pem(certificate_pem, KeyPair::from_pem(key_pem)?)?;
        Ok(Self { issuer, certificate_pem: certificate_pem.to_owned(), beside_pem: String::new() })
    }

    /// The same, with the other CA trusted beside it.
    pub(super) fn beside(self, other: &Self) -> Self {
        Self { beside_pem: other.certificate_pem.clone(), ..self }
    }

    /// The certificate of the CA that issues.
    pub(super) fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The certificates of all CAs that are trusted. The first one is of the CA that issues.
    pub(super) fn trusted_pem(&self) -> String {
        format!("{}{}", self.certificate_pem, self.beside_pem)
    }

    pub(super) fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    fn issue(&self, usage: &Usage<'_>, now: SystemTime, validity: Duration) -> Result<Pair, PkiError> {
        let key = KeyPair::generate()?;
        let (name, group, addresses): (&str, Option<&str>, &[IpAddr]) = match *usage {
            Usage::Server(addresses) => ("kube-apiserver", None, addresses),
            Usage::Member(name, addresses) => (name, None, addresses),
            Usage::Client(user, group) => (user, group, &[]),
        };
        let mut params = params(name, group, now, validity);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        if matches!(usage, Usage::Server(_)) {
            for name in SERVING_NAMES {
                params.subject_alt_names.push(SanType::DnsName(name.try_into()?));
            }
        }
        params.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
        params.extended_key_usages = match usage {
            Usage::Server(_) => vec![ExtendedKeyUsagePurpose::ServerAuth],
            Usage::Client(..) => vec![ExtendedKeyUsagePurpose::ClientAuth],
            Usage::Member(..) => {
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth]
            }
        };
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Pair { certificate, key: key.serialize_pem() })
    }
}

impl TenantRoots {
    /// Makes the CAs and the key of a new tenant.
    ///
    /// # Errors
    /// [`PkiError`]
    pub(super) fn generate(now: SystemTime) -> Result<Self, PkiError> {
        Ok(Self {
            cluster: TenantAuthority::generate("kubernetes", now)?,
            front_proxy: TenantAuthority::generate("front-proxy-ca", now)?,
            etcd: TenantAuthority::generate("etcd-ca", now)?,
            accounts: KeyPair::generate()?,
            accounts_beside: String::new(),
        })
    }

    /// Makes the CAs and the key that follow these names.
    ///
    /// # Errors
    /// [`PkiError`]
    pub(super) fn generate_next(now: SystemTime) -> Result<Self, PkiError> {
        Ok(Self {
            cluster: TenantAuthority::generate_next("kubernetes", now)?,
            front_proxy: TenantAuthority::generate_next("front-proxy-ca", now)?,
            etcd: TenantAuthority::generate_next("etcd-ca", now)?,
            accounts: KeyPair::generate()?,
            accounts_beside: String::new(),
        })
    }

    /// These, with everything that the other ones have issued still trusted.
    pub(super) fn beside(self, other: &Self) -> Self {
        Self {
            cluster: self.cluster.beside(&other.cluster),
            front_proxy: self.front_proxy.beside(&other.front_proxy),
            etcd: self.etcd.beside(&other.etcd),
            accounts: self.accounts,
            accounts_beside: other.accounts.public_key_pem(),
        }
    }

    /// Everything that the pods of a control plane read, with new certificates. `server` is the URL by which controllers come.
    ///
    /// # Errors
    /// [`PkiError`]
    pub(super) fn secrets(
        &self,
        addresses: &Addresses,
        server: &str,
        now: SystemTime,
    ) -> Result<Secrets, PkiError> {
        let ca = self.cluster.trusted_pem();
        let accounts = self.accounts.serialize_pem();
        let client = |user: &str| {
            let pair = self.cluster.issue(&Usage::Client(user, None), now, LEAF_VALIDITY)?;
            Ok::<_, PkiError>(kubeconfig(&[("tenant", server)], &ca, user, &pair.certificate, &pair.key))
        };
        let manager = [
            ("kubeconfig", client("system:kube-controller-manager")?),
            ("ca.crt", ca.clone()),
            ("signing.crt", self.cluster.certificate_pem().to_owned()),
            ("signing.key", self.cluster.key_pem()),
            ("sa.key", accounts),
        ];
        let scheduler = [("kubeconfig", client("system:kube-scheduler")?)];
        Ok(Secrets::from([
            ("apiserver", self.api_server_files(addresses, now)?),
            ("controller-manager", manager.into()),
            ("scheduler", scheduler.into()),
            ("etcd-data", self.etcd_files("etcd-data", &addresses.etcd_data, now)?),
            ("etcd-event", self.etcd_files("etcd-event", &addresses.etcd_event, now)?),
        ]))
    }

    fn api_server_files(&self, addresses: &Addresses, now: SystemTime) -> Result<Files, PkiError> {
        let mut own = vec![IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
        own.extend([addresses.kubernetes, addresses.service]);
        own.extend(&addresses.nodes);
        let issue = |by: &TenantAuthority, usage: Usage<'_>| by.issue(&usage, now, LEAF_VALIDITY);
        let serving = issue(&self.cluster, Usage::Server(&own))?;
        let kubelets =
            issue(&self.cluster, Usage::Client("kube-apiserver-kubelet-client", Some(KUBELET_CLIENTS)))?;
        let proxy = issue(&self.front_proxy, Usage::Client("front-proxy-client", None))?;
        let to_etcd = issue(&self.etcd, Usage::Client("kube-apiserver-etcd-client", None))?;
        Ok(Files::from([
            ("ca.crt", self.cluster.trusted_pem()),
            ("apiserver.crt", serving.certificate),
            ("apiserver.key", serving.key),
            ("kubelet-client.crt", kubelets.certificate),
            ("kubelet-client.key", kubelets.key),
            ("front-proxy-ca.crt", self.front_proxy.trusted_pem()),
            ("front-proxy-client.crt", proxy.certificate),
            ("front-proxy-client.key", proxy.key),
            ("etcd-ca.crt", self.etcd.trusted_pem()),
            ("etcd-client.crt", to_etcd.certificate),
            ("etcd-client.key", to_etcd.key),
            ("sa.pub", format!("{}{}", self.accounts.public_key_pem(), self.accounts_beside)),
            ("sa.key", self.accounts.serialize_pem()),
        ]))
    }

    /// The files of all members of one etcd. They share a certificate, because a pod cannot choose among several.
    fn etcd_files(&self, name: &str, members: &[IpAddr], now: SystemTime) -> Result<Files, PkiError> {
        let mut addresses = vec![IpAddr::from(Ipv4Addr::LOCALHOST)];
        addresses.extend(members);
        let server = self.etcd.issue(&Usage::Member(name, &addresses), now, LEAF_VALIDITY)?;
        let peer = self.etcd.issue(&Usage::Member(name, &addresses), now, LEAF_VALIDITY)?;
        Ok(Files::from([
            ("ca.crt", self.etcd.trusted_pem()),
            ("server.crt", server.certificate),
            ("server.key", server.key),
            ("peer.crt", peer.certificate),
            ("peer.key", peer.key),
        ]))
    }

    /// A credential of an administrator, whose group is bound by RBAC.
    ///
    /// # Errors
    /// [`PkiError`]
    pub(super) fn administrator(
        &self,
        user: &str,
        now: SystemTime,
        validity: Duration,
    ) -> Result<Pair, PkiError> {
        self.cluster.issue(&Usage::Client(user, Some(ADMINS)), now, validity)
    }

    /// The credential that makes the first RBAC rules, and ends after ten minutes. It is never written to a disk.
    ///
    /// # Errors
    /// [`PkiError`]
    pub(super) fn bootstrap(&self, now: SystemTime) -> Result<Pair, PkiError> {
        let usage = Usage::Client("tombolo-bootstrap", Some("system:masters"));
        self.cluster.issue(&usage, now, SHORT_VALIDITY)
    }

    /// The same for everything after the first rules, within the rights of administrators.
    ///
    /// # Errors
    /// [`PkiError`]
    pub(super) fn short_administrator(&self, now: SystemTime) -> Result<Pair, PkiError> {
        self.administrator("tombolo", now, SHORT_VALIDITY)
    }
}

/// The names of the API servers in the tenant, and of a worker's own machine.
const SERVING_NAMES: [&str; 6] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster",
    "kubernetes.default.svc.cluster.local",
];

fn params(name: &str, group: Option<&str>, now: SystemTime, validity: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    if let Some(group) = group {
        subject.push(DnType::OrganizationName, group);
    }
    subject.push(DnType::CommonName, name);
    params.distinguished_name = subject;
    params.not_before = OffsetDateTime::from(now - BACKDATED);
    params.not_after = OffsetDateTime::from(now + validity);
    params
}

#[cfg(test)]
mod tests;
