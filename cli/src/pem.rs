//! Reads certificates and keys from PEM files. Every error names the file.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{KeyPair, PublicKeyData};
use rustls_pki_types::pem::{PemObject, SectionKind};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::parse_x509_certificate;
use x509_parser::prelude::{GeneralName, GeneralSubtree, X509Certificate};

use crate::files::{self, ReadError};
use crate::tls::ClientIdentity;

/// Most certificates in a file. More are a mistake, such as the whole trust store of a system.
const CERTIFICATES_MAX: usize = 64;
/// Characters in a full line of PEM (RFC 7468, section 2).
const LINE_CHARACTERS: usize = 64;

/// A PEM file of certificates, all of which parse, without a private key.
pub(crate) struct CertificateFile {
    /// The file's text, as it was read.
    pub(crate) text: String,
    /// At least one, in the order of the file.
    pub(crate) ders: Vec<CertificateDer<'static>>,
}

/// A PEM file that holds one private key.
pub(crate) struct KeyFile {
    /// The file's text, as it was read.
    pub(crate) text: String,
    pub(crate) der: PrivateKeyDer<'static>,
    pub(crate) pair: KeyPair,
}

/// The error if a file is not the PEM file that was expected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PemError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{0} is damaged PEM: {1}")]
    Damaged(PathBuf, &'static str),
    #[error("{0} holds no certificate (no BEGIN CERTIFICATE block)")]
    NoCertificate(PathBuf),
    #[error(
        "{0} holds a private key, which does not belong beside a certificate; pass the file with the certificate only"
    )]
    PrivateKeyInside(PathBuf),
    #[error("{0} holds more than {max} certificates", max = CERTIFICATES_MAX)]
    TooMany(PathBuf),
    #[error("certificate {1} of {0} is not a valid X.509 certificate")]
    NotACertificate(PathBuf, usize),
    #[error("{0} holds no private key (no unencrypted PRIVATE KEY block)")]
    NoKey(PathBuf),
    #[error("the private key in {0} is of a kind that is not supported; use ECDSA, Ed25519 or RSA")]
    UnusableKey(PathBuf, #[source] rcgen::Error),
}

impl PemError {
    /// Describes the damage without quoting the file, which may hold a key.
    pub(crate) fn damaged(path: &Path, error: &rustls_pki_types::pem::Error) -> Self {
        Self::Damaged(path.to_owned(), daemon::config::describe_pem_error(error))
    }
}

/// Reads a file of certificates.
pub(crate) fn read_certificates(path: &Path) -> Result<CertificateFile, PemError> {
    let text = files::read(path)?;
    let ders = parse_certificates(&text, path)?;
    Ok(CertificateFile { text, ders })
}

/// Reads a certificate chain and its key, as a TLS client presents them. Does not check that they belong together.
pub(crate) fn read_identity(certificate: &Path, key: &Path) -> Result<ClientIdentity, PemError> {
    let chain = read_certificates(certificate)?.ders;
    Ok(ClientIdentity { chain, key: read_key(key)?.der })
}

/// Parses the certificates in `text`, which came from the file `path`. There is at least one.
pub(crate) fn parse_certificates(text: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let mut ders = Vec::new();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(text.as_bytes()) {
        let (kind, der) = section.map_err(|error| PemError::damaged(path, &error))?;
        if matches!(kind, SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey) {
            return Err(PemError::PrivateKeyInside(path.to_owned()));
        }
        if kind != SectionKind::Certificate {
            continue;
        }
        if ders.len() == CERTIFICATES_MAX {
            return Err(PemError::TooMany(path.to_owned()));
        }
        let der = CertificateDer::from(der);
        if parse_x509(&der).is_none() {
            return Err(PemError::NotACertificate(path.to_owned(), ders.len() + 1));
        }
        ders.push(der);
    }
    if ders.is_empty() {
        return Err(PemError::NoCertificate(path.to_owned()));
    }
    Ok(ders)
}

/// Reads a file with one unencrypted private key.
pub(crate) fn read_key(path: &Path) -> Result<KeyFile, PemError> {
    let text = files::read(path)?;
    let der = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| {
        if matches!(error, rustls_pki_types::pem::Error::NoItemsFound) {
            PemError::NoKey(path.to_owned())
        } else {
            PemError::damaged(path, &error)
        }
    })?;
    let pair = KeyPair::try_from(&der).map_err(|error| PemError::UnusableKey(path.to_owned(), error))?;
    Ok(KeyFile { text, der, pair })
}

/// The fields of a certificate. `None` unless the bytes are exactly one certificate.
pub(crate) fn parse_x509<'a>(der: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    let (rest, certificate) = parse_x509_certificate(der).ok()?;
    rest.is_empty().then_some(certificate)
}

/// Tells whether the certificate was issued for this key.
pub(crate) fn is_for_key(certificate: &X509Certificate<'_>, key: &KeyPair) -> bool {
    certificate.public_key().raw == key.subject_public_key_info()
}

/// The URIs among the alternative names of a certificate.
pub(crate) fn uris(certificate: &X509Certificate<'_>) -> Vec<String> {
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
    let uri = |name: &GeneralName<'_>| {
        if let GeneralName::URI(uri) = name { Some((*uri).to_owned()) } else { None }
    };
    names.iter().filter_map(uri).collect()
}

/// The DNS names to which this CA is limited by critical name constraints. `None` if it may sign for anything else, such as
/// an address.
pub(crate) fn constrained_dns_names(der: &CertificateDer<'_>) -> Option<Vec<String>> {
    let certificate = parse_x509(der)?;
    let extension = certificate.name_constraints().ok().flatten().filter(|found| found.critical)?;
    let is_ca = certificate.basic_constraints().ok().flatten().is_some_and(|found| found.value.ca);
    let excluded = extension.value.excluded_subtrees.as_deref().unwrap_or_default();
    // An address of zeros with a mask of zeros excludes all addresses.
    let excludes_all = |bytes: usize| {
        excluded.iter().any(|subtree| {
            matches!(subtree.base, GeneralName::IPAddress(mask) if mask.len() == bytes && mask.iter().all(|byte| *byte == 0))
        })
    };
    let permitted = extension.value.permitted_subtrees.as_deref().unwrap_or_default();
    let name = |subtree: &GeneralSubtree<'_>| {
        let GeneralName::DNSName(name) = subtree.base else { return None };
        // With a leading dot it would exclude the name itself; empty, it would allow all names.
        (!name.is_empty() && !name.starts_with('.')).then(|| name.to_ascii_lowercase())
    };
    let names: Vec<String> = permitted.iter().map(name).collect::<Option<_>>()?;
    (is_ca && excludes_all(2 * 4) && excludes_all(2 * 16) && !names.is_empty()).then_some(names)
}

/// Encodes a certificate as PEM.
pub(crate) fn encode_certificate(der: &CertificateDer<'_>) -> String {
    let encoded = BASE64.encode(der);
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(LINE_CHARACTERS));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}
