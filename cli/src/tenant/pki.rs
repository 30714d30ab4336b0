//! The certificates of a tenant's control plane: three CAs and a ServiceAccount key of its own, and what they have issued.
//!
//! Nothing here has been issued by the host cluster, and nobody gets the group `system:masters` but the bootstrap, for ten minutes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use time::OffsetDateTime;

/// The validity of a CA: ten years. `tombolo tenant certificates rotate-ca` exchanges it.
const CA_VALIDITY: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The validity of all that a CA issues: a year.
const LEAF_VALIDITY: Duration = Duration::from_secs(365 * 24 * 3600);

/// The validity of the credential that makes the first RBAC rules.
const BOOTSTRAP_VALIDITY: Duration = Duration::from_secs(600);

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

/// A CA with its key.
pub(super) struct TenantAuthority {
    issuer: Issuer<'static, KeyPair>,
    certificate_pem: String,
}

/// A certificate and its key, PEM.
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// The addresses that certificates bear.
pub(super) struct Addresses {
    /// The Service of the API servers in the host cluster, and the nodes that carry them.
    pub(super) api_servers: Vec<IpAddr>,
    /// The first address of the tenant's own Services: `default/kubernetes`.
    pub(super) kubernetes: IpAddr,
    /// The Services of the members of each etcd.
    pub(super) etcd_data: Vec<IpAddr>,
    pub(super) etcd_event: Vec<IpAddr>,
}

/// The Secrets of a control plane: by the name of each the files in it.
pub(super) type Secrets = BTreeMap<&'static str, BTreeMap<&'static str, String>>;

/// The CAs of a tenant and its ServiceAccount key. They outlive all certificates.
pub(super) struct TenantRoots {
    pub(super) cluster: TenantAuthority,
    pub(super) front_proxy: TenantAuthority,
    pub(super) etcd: TenantAuthority,
    pub(super) accounts: KeyPair,
}

/// The end that a certificate authenticates.
enum Use<'a> {
    Server(&'a [&'a str], &'a [IpAddr]),
    Client { user: &'a str, groups: &'a [&'a str] },
    /// Both, as members of an etcd are to each other.
    Peer(&'a [IpAddr]),
}

impl TenantAuthority {
    /// Makes a CA of this name.
    ///
    /// # Errors
    /// [`PkiError`]
    pub(super) fn generate(name: &str, now: SystemTime) -> Result<Self, PkiError> {
        let key = KeyPair::generate()?;
        let mut params = params(name, &[], now, CA_VALIDITY);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let certificate_pem = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate_pem })
    }

    /// Reads one that was made before.
    ///
    /// # Errors
    /// [`PkiError`] if it is no CA, or the key is no key.
    pub(super) fn parse(certificate_pem: &str, key_pem: &str) -> Result<Self, PkiError> {
        let issuer = Issuer::from_ca_cert_pem(certificate_pem, KeyPair::from_pem(key_pem)?)?;
        Ok(Self { issuer, certificate_pem: certificate_pem.to_owned() })
    }

    pub(super) fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    pub(super) fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    fn issue(&self, usage: &Use<'_>, now: SystemTime, validity: Duration) -> Result<Pair, PkiError> {
        let key = KeyPair::generate()?;
        let (name, groups): (&str, &[&str]) = match usage {
            Use::Server(..) => ("kube-apiserver", &[]),
            Use::Peer(_) => ("etcd", &[]),
            Use::Client { user, groups } => (user, groups),
        };
        let mut params = params(name, groups, now, validity);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let (names, addresses): (&[&str], &[IpAddr]) = match usage {
            Use::Server(names, addresses) => (names, addresses),
            Use::Peer(addresses) => (&[], addresses),
            Use::Client { .. } => (&[], &[]),
        };
        for name in names {
            params.subject_alt_names.push(SanType::DnsName((*name).try_into()?));
        }
        params.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
        params.extended_key_usages = match usage {
            Use::Server(..) => vec![ExtendedKeyUsagePurpose::ServerAuth],
            Use::Client { .. } => vec![ExtendedKeyUsagePurpose::ClientAuth],
            Use::Peer(_) => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
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
        })
    }

    /// Everything that the pods of a control plane read, with new certificates. `server` is the URL by which controllers come.
    ///
    /// # Errors
    /// [`PkiError`]
    pub(super) fn secrets(&self, addresses: &Addresses, server: &str, now: SystemTime) -> Result<Secrets, PkiError> {
        let ca = self.cluster.certificate_pem();
        let cluster = |usage: Use<'_>| self.cluster.issue(&usage, now, LEAF_VALIDITY);
        let client = |user: &'static str, groups: &'static [&'static str]| cluster(Use::Client { user, groups });

        let mut own = vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]), addresses.kubernetes];
        own.extend(&addresses.api_servers);
        let serving = cluster(Use::Server(&SERVING_NAMES, &own))?;
        let kubelets = client("kube-apiserver-kubelet-client", &[KUBELET_CLIENTS])?;
        let proxy = Use::Client { user: "front-proxy-client", groups: &[] };
        let proxy = self.front_proxy.issue(&proxy, now, LEAF_VALIDITY)?;
        let to_etcd = Use::Client { user: "kube-apiserver-etcd-client", groups: &[] };
        let to_etcd = self.etcd.issue(&to_etcd, now, LEAF_VALIDITY)?;
        let apiserver = [
            ("ca.crt", ca.to_owned()),
            ("apiserver.crt", serving.certificate),
            ("apiserver.key", serving.key),
            ("kubelet-client.crt", kubelets.certificate),
            ("kubelet-client.key", kubelets.key),
            ("front-proxy-ca.crt", self.front_proxy.certificate_pem().to_owned()),
            ("front-proxy-client.crt", proxy.certificate),
            ("front-proxy-client.key", proxy.key),
            ("etcd-ca.crt", self.etcd.certificate_pem().to_owned()),
            ("etcd-client.crt", to_etcd.certificate),
            ("etcd-client.key", to_etcd.key),
            ("sa.pub", self.accounts.public_key_pem()),
            ("sa.key", self.accounts.serialize_pem()),
        ];
        let manager = client("system:kube-controller-manager", &[])?;
        let manager = [
            ("kubeconfig", kubeconfig(server, ca, &manager)),
            ("ca.crt", ca.to_owned()),
            ("ca.key", self.cluster.key_pem()),
            ("sa.key", self.accounts.serialize_pem()),
        ];
        let scheduler = client("system:kube-scheduler", &[])?;
        let scheduler = [("kubeconfig", kubeconfig(server, ca, &scheduler))];
        Ok(Secrets::from([
            ("apiserver", apiserver.into()),
            ("controller-manager", manager.into()),
            ("scheduler", scheduler.into()),
            ("etcd-data", self.etcd_files(&addresses.etcd_data, now)?),
            ("etcd-event", self.etcd_files(&addresses.etcd_event, now)?),
        ]))
    }

    /// The files of all members of one etcd. They share a certificate, because a pod cannot choose among several.
    fn etcd_files(&self, members: &[IpAddr], now: SystemTime) -> Result<BTreeMap<&'static str, String>, PkiError> {
        let mut addresses = vec![IpAddr::from([127, 0, 0, 1])];
        addresses.extend(members);
        let [server, peer] = [(); 2].map(|()| self.etcd.issue(&Use::Peer(&addresses), now, LEAF_VALIDITY));
        let (server, peer) = (server?, peer?);
        Ok(BTreeMap::from([
            ("ca.crt", self.etcd.certificate_pem().to_owned()),
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
    pub(super) fn administrator(&self, user: &str, now: SystemTime) -> Result<Pair, PkiError> {
        self.cluster.issue(&Use::Client { user, groups: &[ADMINS] }, now, LEAF_VALIDITY)
    }

    /// The credential that makes the first RBAC rules, and ends after ten minutes. It is never written to a disk.
    ///
    /// # Errors
    /// [`PkiError`]
    pub(super) fn bootstrap(&self, now: SystemTime) -> Result<Pair, PkiError> {
        let usage = Use::Client { user: "tombolo-bootstrap", groups: &["system:masters"] };
        self.cluster.issue(&usage, now, BOOTSTRAP_VALIDITY)
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

fn params(name: &str, groups: &[&str], now: SystemTime, validity: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    groups.iter().for_each(|group| subject.push(DnType::OrganizationName, *group));
    subject.push(DnType::CommonName, name);
    params.distinguished_name = subject;
    params.not_before = OffsetDateTime::from(now - BACKDATED);
    params.not_after = OffsetDateTime::from(now + validity);
    params
}
