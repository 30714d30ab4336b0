//! `tombolo ca issue proxy`: a certificate for the proxy listener, from a CA that may sign for one DNS name and no address.
//!
//! A kubeconfig has one CA bundle for the API server and for its proxy. The CA of the proxy must not be able to impersonate the
//! API server, so it has critical name constraints (RFC 5280, section 4.2.1.10).

use std::path::PathBuf;
use std::time::SystemTime;

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, NameConstraints, PKCS_ECDSA_P256_SHA256,
};
use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime};
use trust::Role;

use super::issue::{IssueError, validity_and_existing};
use super::metadata;
use crate::args::IssueProxy;
use crate::files::{self, Existing, NewFile, WriteError};
use crate::names::ServerName;
use crate::pem::{self, PemError};

/// Validity of the CA, which outlives the certificates that it issues.
const CA_VALIDITY: Duration = Duration::days(10 * 365);

/// The time by which each certificate is dated back, because clocks differ.
const BACKDATED: Duration = Duration::minutes(5);

/// The error if no certificate was issued for the proxy listener.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IssueProxyError {
    #[error("{0} is an address, for which the CA of a proxy must not sign; use a DNS name")]
    Address(ServerName),
    #[error(
        "{0} may sign for another name than {1}; keep that name, or make both anew with --force and hand the new \
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

/// The CA of one proxy.
struct ProxyCa {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

/// Issues the certificate, and makes the CA if it does not exist.
pub(crate) fn issue_proxy(args: &IssueProxy) -> Result<Vec<String>, IssueProxyError> {
    let IssueProxy { placement, name } = args;
    let ServerName::Dns(name) = name else { return Err(IssueProxyError::Address(name.clone())) };
    let (validity, existing) = validity_and_existing(Role::Server, placement)?;
    metadata::trust_domain(&placement.dir).map_err(IssueError::from)?;
    let out = placement.out.as_deref().unwrap_or(&placement.dir);
    files::create_private_directory(out)?;
    let [ca, ca_key] = ["proxy-ca.crt", "proxy-ca.key"].map(|file| placement.dir.join(file));
    let [certificate, key] = ["proxy.crt", "proxy.key"].map(|file| out.join(file));
    let now = OffsetDateTime::from(SystemTime::now());
    let is_new = matches!(existing, Existing::Replace) || ca.symlink_metadata().is_err();
    let proxy_ca = if is_new {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let key_pem = pair.serialize_pem();
        let proxy_ca = ProxyCa::generate(name, pair, now)?;
        let certificate_pem = pem::encode_certificate(&proxy_ca.certificate);
        let made = vec![NewFile::private(ca_key, key_pem), NewFile::public(ca.clone(), certificate_pem)];
        files::write_all(made, existing)?;
        proxy_ca
    } else {
        let pair = pem::read_key(&ca_key)?.pair;
        let present = pem::read_certificates(&ca)?.ders.swap_remove(0);
        if pem::constrained_dns_names(&present) != Some(vec![name.clone()]) {
            return Err(IssueProxyError::OtherName(ca, name.clone()));
        }
        ProxyCa { issuer: Issuer::from_ca_cert_der(&present, pair)?, certificate: present }
    };
    let leaf_key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let leaf = proxy_ca.issue(name, &leaf_key, (now, now + validity.duration()))?;
    let issued = vec![
        NewFile::private(key.clone(), leaf_key.serialize_pem()),
        NewFile::public(certificate.clone(), pem::encode_certificate(&leaf)),
    ];
    files::write_all(issued, existing)?;
    Ok(vec![
        format!(
            "wrote {} (valid {validity}; for proxy.certificateFile in server.yaml)",
            certificate.display()
        ),
        format!("wrote {} (private; for proxy.keyFile in server.yaml)", key.display()),
        format!(
            "{} may sign for {name} and no address: for `tombolo user dial-token kubeconfig --ca`",
            ca.display()
        ),
    ])
}

impl ProxyCa {
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

    fn issue(
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
