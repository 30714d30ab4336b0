//! Reads certificates and keys from PEM files. Each error names the configuration key of the file.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use daemon::config::{KeyError, describe_pem_error, readable_file};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::{PemObject as _, SectionKind};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::extensions::{ExtendedKeyUsage, GeneralName};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::time::ASN1Time;

/// Largest PEM file, in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Most certificates in a file; more is a mistake, such as a system's whole trust store.
pub(super) const CERTIFICATES_MAX: usize = 64;

/// A certificate chain, leaf first, and the key that fits the leaf.
#[derive(Debug)]
pub struct CertifiedPair {
    /// The chain; at least one certificate.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key of the leaf.
    pub key: PrivateKeyDer<'static>,
    /// The files from which both were read.
    pub files: PairFiles,
}

/// The files of a certificate and its key, each with its configuration key.
#[derive(Debug, Clone)]
pub struct PairFiles {
    certificate: (String, PathBuf),
    key: (String, PathBuf),
    side: PairSide,
}

/// The side of TLS at which a certificate is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PairSide {
    Server,
    Client,
}

impl Clone for CertifiedPair {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key(), files: self.files.clone() }
    }
}

impl PairFiles {
    /// Reads the pair, which must fit. Blocks.
    ///
    /// # Errors
    ///
    /// [`KeyError`], which says what is wrong with which file.
    pub fn read(&self) -> Result<CertifiedPair, KeyError> {
        let Self { certificate: (certificate_key, certificate), key: (key_key, key), side } = self;
        pair_of(*side, (certificate_key, certificate), (key_key, key))
    }

    /// Checks that a pair of these files is valid at `now`.
    ///
    /// # Errors
    ///
    /// [`KeyError`], which names the file of the certificate.
    pub fn check_validity(&self, pair: &CertifiedPair, now: SystemTime) -> Result<(), KeyError> {
        let (key, path) = &self.certificate;
        check_validity(key, path, pair, now)
    }

    /// The paths of the certificate and of its key.
    #[must_use]
    pub fn paths(&self) -> [&Path; 2] {
        [&self.certificate.1, &self.key.1]
    }
}

/// Reads the certificate file of a server and its key, which must fit. Each file comes with its configuration key.
pub(super) fn pair(certificate: (&str, &Path), key: (&str, &Path)) -> Result<CertifiedPair, KeyError> {
    pair_of(PairSide::Server, certificate, key)
}

fn pair_of(
    side: PairSide,
    certificate: (&str, &Path),
    key: (&str, &Path),
) -> Result<CertifiedPair, KeyError> {
    let chain = certificates(certificate.0, certificate.1, CERTIFICATES_MAX)?;
    let bytes = readable_file(key.0, key.1, FILE_BYTES_MAX)?;
    let refused = |reason: &dyn std::fmt::Display| {
        KeyError::new(key.0, key.1.display(), format!("an unencrypted PEM private key ({reason})"))
    };
    let private =
        PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| refused(&describe_pem_error(&error)))?;
    CertifiedKey::from_der(chain.clone(), private.clone_key(), &transport::tls::provider()).map_err(
        |error| {
            let certificate = certificate.1.display();
            KeyError::new(key.0, key.1.display(), format!("the key that belongs to {certificate} ({error})"))
        },
    )?;
    let named = |(key, path): (&str, &Path)| (key.to_owned(), path.to_owned());
    let files = PairFiles { certificate: named(certificate), key: named(key), side };
    let pair = CertifiedPair { chain, key: private, files };
    check_side(certificate.0, certificate.1, &pair)?;
    Ok(pair)
}

/// Refuses the certificate of the other side, such as that of an agent, which no client would accept from a server.
fn check_side(key: &str, path: &Path, pair: &CertifiedPair) -> Result<(), KeyError> {
    let Some(leaf) = leaf(pair) else { return Ok(()) };
    // Without such an extension a certificate is for everything.
    let usage = leaf.extended_key_usage().ok().flatten();
    let side = pair.files.side;
    let is_for = |usage: &ExtendedKeyUsage<'_>| match side {
        PairSide::Server => usage.server_auth,
        PairSide::Client => usage.client_auth,
    };
    if usage.is_none_or(|usage| is_for(usage.value) || usage.value.any) {
        return Ok(());
    }
    let names = leaf.subject_alternative_name().ok().flatten();
    let names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
    let uri = names.iter().find_map(|name| if let GeneralName::URI(uri) = name { Some(*uri) } else { None });
    let whose = uri.map_or_else(String::new, |uri| format!(" of {uri}"));
    let (found, allowed) = match side {
        PairSide::Server => ("client", "a server's certificate: tombolo ca issue server --name HOST"),
        PairSide::Client => ("server", "a client's certificate, with the extended key usage clientAuth"),
    };
    let found = format!("{}, a {found}'s certificate{whose},", path.display());
    Err(KeyError::new(key, found, allowed))
}

/// Reads a certificate file and its key, as [`pair`] does. The certificate must be valid now.
pub(super) fn valid_pair(certificate: (&str, &Path), key: (&str, &Path)) -> Result<CertifiedPair, KeyError> {
    let pair = pair(certificate, key)?;
    check_validity(certificate.0, certificate.1, &pair, SystemTime::now())?;
    Ok(pair)
}

/// The same for the certificate that this server shows as a client of another one.
pub(super) fn valid_client_pair(
    certificate: (&str, &Path),
    key: (&str, &Path),
) -> Result<CertifiedPair, KeyError> {
    let pair = pair_of(PairSide::Client, certificate, key)?;
    check_validity(certificate.0, certificate.1, &pair, SystemTime::now())?;
    Ok(pair)
}

/// Checks that the leaf of `pair`, which was read at `path`, is valid at `now`. Without this check every caller and agent
/// would report the expired certificate in its own words.
pub(super) fn check_validity(
    key: &str,
    path: &Path,
    pair: &CertifiedPair,
    now: SystemTime,
) -> Result<(), KeyError> {
    let Some(leaf) = leaf(pair) else {
        return Err(KeyError::new(key, path.display(), "a certificate that can be read"));
    };
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    let shown = |time: ASN1Time| time.to_rfc2822().unwrap_or_else(|time| time);
    let validity = leaf.validity();
    if seconds > validity.not_after.timestamp() {
        let found = format!("{} (expired at {})", path.display(), shown(validity.not_after));
        let allowed = match pair.files.side {
            PairSide::Server => "a new one: tombolo ca issue server --force",
            PairSide::Client => "a new one",
        };
        return Err(KeyError::new(key, found, allowed));
    }
    if seconds < validity.not_before.timestamp() {
        let found = format!("{} (valid only from {})", path.display(), shown(validity.not_before));
        return Err(KeyError::new(key, found, "a valid one, or correct this machine's clock"));
    }
    Ok(())
}

/// The DNS names of the leaf of `pair`; none if it cannot be read.
pub(super) fn dns_names(pair: &CertifiedPair) -> Vec<String> {
    let leaf = leaf(pair);
    let names = leaf.as_ref().and_then(|leaf| leaf.subject_alternative_name().ok().flatten());
    let names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
    let dns = names
        .iter()
        .filter_map(|name| if let GeneralName::DNSName(name) = name { Some(*name) } else { None });
    dns.map(str::to_owned).collect()
}

/// The fields of the leaf, if it can be read.
fn leaf(pair: &CertifiedPair) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(pair.chain.first()?).ok().map(|(_, leaf)| leaf)
}

/// The certificates of a PEM file, in which there is nothing else.
pub(super) fn certificates(
    key: &str,
    path: &Path,
    max: usize,
) -> Result<Vec<CertificateDer<'static>>, KeyError> {
    let bytes = readable_file(key, path, FILE_BYTES_MAX)?;
    let refused = |reason: &dyn std::fmt::Display| {
        KeyError::new(key, path.display(), format!("a PEM file of certificates alone ({reason})"))
    };
    let mut certificates = Vec::new();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(&bytes) {
        let (kind, der) = section.map_err(|error| refused(&describe_pem_error(&error)))?;
        if kind != SectionKind::Certificate {
            return Err(refused(&"it holds something else too"));
        }
        certificates.push(CertificateDer::from(der));
    }
    match certificates.len() {
        0 => Err(refused(&"it holds none")),
        number if number <= max => Ok(certificates),
        number => Err(refused(&format_args!("it holds {number}, the most is {max}"))),
    }
}
