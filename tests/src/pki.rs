//! Throw-away certificate authorities and the certificates that they issue, as PEM.

use std::net::IpAddr;
use std::time::SystemTime;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};

/// An authority with an ECDSA P-256 key, valid for as long as any test.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate_pem: String,
}

/// A certificate with its key.
#[derive(Debug, Clone)]
pub struct Issued {
    /// The certificate in PEM format.
    pub certificate_pem: String,
    /// The key as PKCS#8 PEM.
    pub key_pem: String,
}

impl Authority {
    /// Makes a self-signed authority with this name.
    pub fn new(common_name: &str) -> Self {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished_name(common_name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let certificate_pem = params.self_signed(&key).expect("an authority can sign itself").pem();
        Self { issuer: Issuer::new(params, key), certificate_pem }
    }

    /// An existing authority, from its PEM.
    ///
    /// # Panics
    /// If it is no PEM of an authority.
    pub fn of(certificate_pem: &str, key_pem: &str) -> Self {
        let key = KeyPair::from_pem(key_pem).expect("a key");
        let issuer = Issuer::from_ca_cert_pem(certificate_pem, key).expect("an authority's certificate");
        Self { issuer, certificate_pem: certificate_pem.to_owned() }
    }

    /// The authority's own certificate, PEM.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The authority's key as PKCS#8 PEM.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Issues a server certificate for host names and addresses.
    pub fn issue_server(&self, names: &[&str], addresses: &[IpAddr]) -> Issued {
        let names: Vec<String> = names
            .iter()
            .map(|&name| name.to_owned())
            .chain(addresses.iter().map(IpAddr::to_string))
            .collect();
        let mut params = CertificateParams::new(names).expect("the names are valid");
        params.distinguished_name = distinguished_name("server", &[]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(params)
    }

    /// Issues a client certificate as Kubernetes reads it: user in the common name, groups as organizations.
    ///
    /// # Panics
    /// With more than two groups: rcgen holds one value per attribute type, and there are two spellings of
    /// this one.
    pub fn issue_user(&self, user: &str, groups: &[&str]) -> Issued {
        self.issue(user_params(user, groups))
    }

    /// The same, valid to the second in which `end` is.
    ///
    /// # Panics
    /// As above.
    pub fn issue_user_until(&self, user: &str, groups: &[&str], end: SystemTime) -> Issued {
        let mut params = user_params(user, groups);
        params.not_after = end.into();
        self.issue(params)
    }

    /// Issues a client certificate of this user, with a URI.
    pub fn issue_named(&self, user: &str, groups: &[&str], uri: &str) -> Issued {
        self.issue(named_params(user, groups, uri))
    }

    /// The same, valid to the second in which `end` is.
    pub fn issue_named_until(&self, user: &str, groups: &[&str], uri: &str, end: SystemTime) -> Issued {
        let mut params = named_params(user, groups, uri);
        params.not_after = end.into();
        self.issue(params)
    }

    fn issue(&self, mut params: CertificateParams) -> Issued {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.issuer).expect("the authority can sign");
        Issued { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() }
    }
}

fn user_params(user: &str, groups: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name(user, groups);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn named_params(user: &str, groups: &[&str], uri: &str) -> CertificateParams {
    let mut params = user_params(user, groups);
    params.subject_alt_names = vec![SanType::URI(uri.try_into().expect("a URI is ASCII"))];
    params
}

fn distinguished_name(common_name: &str, organizations: &[&str]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    let kinds = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
    assert!(organizations.len() <= kinds.len(), "at most {} groups fit into a certificate here", kinds.len());
    for (kind, organization) in kinds.into_iter().zip(organizations) {
        name.push(kind, *organization);
    }
    name.push(DnType::CommonName, common_name);
    name
}
