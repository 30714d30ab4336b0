//! The sections `tls` and `trust`, and the identity that follows from them: server certificate, trust bundle, server ID.

use std::path::{Path, PathBuf};

use daemon::config::{KeyError, readable_file};
use proto::cluster::is_dns_label;
use proto::spiffe::{self, TRUST_DOMAIN_DEFAULT};
use serde::Deserialize;
use trust::Role;
use trust::bundle::{Anchors, BUNDLE_BYTES_MAX, TrustBundle};

use super::pem::{self, CertifiedPair};
use super::value::{NOTHING, file};

const CERTIFICATE_FILE: &str = "tls.certificateFile";
const KEY_FILE: &str = "tls.keyFile";
const BUNDLE_FILE: &str = "trust.bundleFile";

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawTls {
    /// PEM file with the server's certificate, and intermediates after it. The server reads it again when it changes.
    #[cfg_attr(test, schemars(required))]
    certificate_file: Option<PathBuf>,
    /// PEM file with the private key of the certificate.
    #[cfg_attr(test, schemars(required))]
    key_file: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawTrust {
    /// The signed list of the servers' roots (`trust.bundle`), which agents get. `enrollment` needs it.
    bundle_file: Option<PathBuf>,
}

pub(super) fn trust_domain(raw: Option<String>) -> Result<String, KeyError> {
    let domain = raw.unwrap_or_else(|| TRUST_DOMAIN_DEFAULT.to_owned());
    if !spiffe::is_trust_domain(&domain) {
        let allowed = "1 to 255 lower-case letters, digits, '.', '-' and '_'";
        return Err(KeyError::new("trustDomain", domain, allowed));
    }
    Ok(domain)
}

/// The server's certificate and key, which must fit and be valid now.
pub(super) fn certificate(raw: RawTls, directory: &Path) -> Result<CertifiedPair, KeyError> {
    let RawTls { certificate_file, key_file } = raw;
    let certificate = file(CERTIFICATE_FILE, certificate_file, directory)?;
    let key = file(KEY_FILE, key_file, directory)?;
    pem::valid_pair((CERTIFICATE_FILE, &certificate), (KEY_FILE, &key))
}

/// The path of the bundle file and its bytes; no path and no bytes where none is configured.
pub(super) fn bundle_file(
    raw: RawTrust,
    domain: &str,
    directory: &Path,
) -> Result<(Option<PathBuf>, Vec<u8>), KeyError> {
    let RawTrust { bundle_file } = raw;
    let Some(path) = bundle_file else { return Ok((None, Vec::new())) };
    let path = file(BUNDLE_FILE, Some(path), directory)?;
    let bytes = trust_bundle(&path, domain)?;
    Ok((Some(path), bytes))
}

/// The bytes of the bundle file at `path`, checked against its own roots and this trust domain. Blocks.
///
/// Agents verify the bundle against the roots that they trust. This check uses the bundle's own roots, so that a mistake
/// shows at once and not at every site.
///
/// # Errors
///
/// [`KeyError`], which says what is wrong with the file.
pub fn trust_bundle(path: &Path, domain: &str) -> Result<Vec<u8>, KeyError> {
    let bytes = readable_file(BUNDLE_FILE, path, BUNDLE_BYTES_MAX as u64)?;
    let refused = |reason: &dyn std::fmt::Display| {
        let allowed = format!("a trust bundle of this trust domain, as `tombolo ca` writes it ({reason})");
        KeyError::new(BUNDLE_FILE, path.display(), allowed)
    };
    let domain = domain.parse().map_err(|error| refused(&error))?;
    let roots =
        TrustBundle::decode_unverified(&bytes).map_err(|error| refused(&error))?.roots(Role::Server).to_vec();
    Anchors::new(domain).and_roots(&roots).accept(&bytes, None).map_err(|error| refused(&error))?;
    Ok(bytes)
}

/// The configured server ID, or the one in the server's certificate.
pub(super) fn server_id(
    configured: Option<String>,
    certificate: &CertifiedPair,
    trust_domain: &str,
) -> Result<String, KeyError> {
    let from_certificate = || {
        let leaf = certificate.chain.first()?;
        trust::identity::server(leaf, trust_domain).ok().map(|id| id.to_string())
    };
    let allowed = "1 to 63 lower-case letters, digits and '-'";
    match configured {
        Some(id) if is_dns_label(&id) => Ok(id),
        Some(id) => Err(KeyError::new("serverId", id, allowed)),
        None => from_certificate().ok_or_else(|| {
            let allowed = format!(
                "{allowed}; it may be left out only where the certificate holds spiffe://{trust_domain}/server/ID"
            );
            KeyError::new("serverId", NOTHING, allowed)
        }),
    }
}
