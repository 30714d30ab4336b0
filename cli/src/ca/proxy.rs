//! `tombolo ca issue proxy`: the proxy listener's certificate, below a CA of its own that vouches for one DNS name and no address.
//!
//! Kubeconfigs have one bundle for the API server and for its proxy. What is put there for the proxy must not be able to speak for
//! the API server: so it is constrained, critically (RFC 5280, section 4.2.1.10).

use std::path::PathBuf;
use std::time::SystemTime;

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, NameConstraints, PKCS_ECDSA_P256_SHA256,
};
use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime};
use trust::Role;

use super::issue::{IssueError, terms};
use super::record;
use crate::args::IssueProxy;
use crate::files::{self, Audience, Existing, WriteError};
use crate::names::ServerName;
use crate::pem::{self, PemError};

/// The CA outlives some of what it issues.
const CA_VALIDITY: Duration = Duration::days(10 * 365);

/// As for every certificate: clocks differ.
const BACKDATED: Duration = Duration::minutes(5);

/// Why there is no certificate for the proxy listener.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IssueProxyError {
    #[error("{0} is an address, which what vouches for a proxy must not vouch for; use a DNS name")]
    Address(ServerName),
    #[error(
        "{0} vouches for another name than {1}; keep that name, or have both made anew with --force and hand the new \
         proxy-ca.crt out"
    )]
    OtherName(PathBuf, String),
    #[error("a key or a certificate could not be made")]
    Make(#[from] rcgen::Error),
    #[error(transparent)]
    Pem(#[from] PemError),
    #[error(transparent)]
    Issue(#[from] IssueError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// What vouches for one proxy.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

/// Issues the certificate, and makes the CA if it is not there.
pub(crate) fn issue_proxy(order: &IssueProxy) -> Result<Vec<String>, IssueProxyError> {
    let IssueProxy { placement, name } = order;
    let ServerName::Dns(name) = name else { return Err(IssueProxyError::Address(name.clone())) };
    let (validity, existing) = terms(Role::Server, placement)?;
    record::trust_domain(&placement.dir).map_err(IssueError::from)?;
    let out = placement.out.as_deref().unwrap_or(&placement.dir);
    files::create_private_directory(out)?;
    let [ca, ca_key] = ["proxy-ca.crt", "proxy-ca.key"].map(|file| placement.dir.join(file));
    let [certificate, key] = ["proxy.crt", "proxy.key"].map(|file| out.join(file));
    let now = OffsetDateTime::from(SystemTime::now());
    let is_new = matches!(existing, Existing::Replace) || ca.symlink_metadata().is_err();
    let authority = if is_new {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let pem = pair.serialize_pem();
        let authority = Authority::generate(name, pair, now)?;
        let text = pem::certificate_text(&authority.certificate);
        let made =
            vec![(ca_key, pem.as_str(), Audience::Owner), (ca.clone(), text.as_str(), Audience::Everyone)];
        files::write_all(made, existing)?;
        authority
    } else {
        let pair = pem::key(&ca_key)?.pair;
        let present = pem::certificates(&ca)?.ders.swap_remove(0);
        if pem::proxy_names(&present) != Some(vec![name.clone()]) {
            return Err(IssueProxyError::OtherName(ca, name.clone()));
        }
        Authority { issuer: Issuer::from_ca_cert_der(&present, pair)?, certificate: present }
    };
    let leaf_key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let leaf = authority.leaf(name, &leaf_key, (now, now + validity.duration()))?;
    let (pem, text) = (leaf_key.serialize_pem(), pem::certificate_text(&leaf));
    let issued = vec![
        (key.clone(), pem.as_str(), Audience::Owner),
        (certificate.clone(), text.as_str(), Audience::Everyone),
    ];
    files::write_all(issued, existing)?;
    Ok(vec![
        format!(
            "wrote {} (valid {validity}; for proxy.certificateFile in server.yaml)",
            certificate.display()
        ),
        format!("wrote {} (private; for proxy.keyFile in server.yaml)", key.display()),
        format!(
            "{} vouches for {name} and no address: for `tombolo user dial-token kubeconfig --ca`",
            ca.display()
        ),
    ])
}

impl Authority {
    fn generate(name: &str, key: KeyPair, now: OffsetDateTime) -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, format!("tombolo proxy {name}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: vec![GeneralSubtree::DnsName(name.to_owned())],
            excluded_subtrees: vec![
                GeneralSubtree::IpAddress(CidrSubnet::V4([0; 4], [0; 4])),
                GeneralSubtree::IpAddress(CidrSubnet::V6([0; 16], [0; 16])),
            ],
        });
        (params.not_before, params.not_after) = (now - BACKDATED, now + CA_VALIDITY);
        let certificate = params.self_signed(&key)?.der().clone();
        Ok(Self { issuer: Issuer::new(params, key), certificate })
    }

    fn leaf(
        &self,
        name: &str,
        key: &KeyPair,
        (now, end): (OffsetDateTime, OffsetDateTime),
    ) -> Result<CertificateDer<'static>, rcgen::Error> {
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "tombolo proxy");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        (params.not_before, params.not_after) = (now - BACKDATED, end);
        Ok(params.signed_by(key, &self.issuer)?.der().clone())
    }
}
