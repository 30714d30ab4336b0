//! Certificates and keys out of PEM files; what is wrong with a file is said with its key in the configuration.

use std::path::Path;

use daemon::config::{KeyError, readable_file};
use rustls::RootCertStore;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::{PemObject as _, SectionKind};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::CertifiedPair;

/// Largest PEM file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Most certificates in a file; more is a mistake, such as a system's whole trust store.
const CERTIFICATES_MAX: usize = 64;

/// A certificate file and its key, which must fit.
pub(super) fn pair(certificate: (&str, &Path), key: (&str, &Path)) -> Result<CertifiedPair, KeyError> {
    let chain = certificates(certificate.0, certificate.1)?;
    let bytes = readable_file(key.0, key.1, FILE_BYTES_MAX)?;
    let refused = |reason: &dyn std::fmt::Display| {
        KeyError::new(key.0, key.1.display(), format!("an unencrypted PEM private key ({reason})"))
    };
    let private = PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| refused(&error))?;
    CertifiedKey::from_der(chain.clone(), private.clone_key(), &transport::tls::provider()).map_err(
        |error| {
            let certificate = certificate.1.display();
            KeyError::new(key.0, key.1.display(), format!("the key that belongs to {certificate} ({error})"))
        },
    )?;
    Ok(CertifiedPair { chain, key: private })
}

/// The roots in a file, each fit to verify with.
pub(super) fn roots(key: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, KeyError> {
    let roots = certificates(key, path)?;
    let mut store = RootCertStore::empty();
    for (index, root) in roots.iter().enumerate() {
        store.add(root.clone()).map_err(|error| {
            let allowed = format!("a PEM file of CA certificates (number {} in it: {error})", index + 1);
            KeyError::new(key, path.display(), allowed)
        })?;
    }
    Ok(roots)
}

fn certificates(key: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, KeyError> {
    let bytes = readable_file(key, path, FILE_BYTES_MAX)?;
    let refused = |reason: &dyn std::fmt::Display| {
        KeyError::new(key, path.display(), format!("a PEM file of certificates alone ({reason})"))
    };
    let mut certificates = Vec::new();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(&bytes) {
        let (kind, der) = section.map_err(|error| refused(&error))?;
        if kind != SectionKind::Certificate {
            return Err(refused(&"it holds something else too"));
        }
        certificates.push(CertificateDer::from(der));
    }
    match certificates.len() {
        0 => Err(refused(&"it holds none")),
        1..=CERTIFICATES_MAX => Ok(certificates),
        number => Err(refused(&format_args!("it holds {number}, the most is {CERTIFICATES_MAX}"))),
    }
}
