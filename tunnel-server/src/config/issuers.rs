//! Those who are asked about callers: who issues their tokens, and the API servers that know more of them.

use std::path::{Path, PathBuf};

use daemon::config::{KeyError, bounded};
use http::Uri;
use http::uri::Scheme;
use jsonwebtoken::{Algorithm, AlgorithmFamily};
use proto::cluster::is_dns_label;
use rustls_pki_types::CertificateDer;

use super::value::{NOTHING, file, prefixes};
use super::{HostCluster, ISSUERS_MAX, NAMES_MAX, Oidc, TokenReview, pem, written};

/// By which tokens may be signed unless told otherwise: what every issuer has.
const ALGORITHMS_DEFAULT: [Algorithm; 2] = [Algorithm::RS256, Algorithm::ES256];

/// The claim that every token must have (OpenID Connect Core, section 2).
const USERNAME_CLAIM_DEFAULT: &str = "sub";

/// Where the reviewer stands.
pub(super) const TOKEN_REVIEW: &str = "gateway.authentication.tokenReview";

/// Where an issuer stands.
pub(super) fn key(index: usize) -> String {
    format!("gateway.authentication.oidc[{index}]")
}

pub(super) fn oidc(written: Vec<written::Oidc>, directory: &Path) -> Result<Vec<Oidc>, KeyError> {
    bounded("gateway.authentication.oidc", written.len(), 0..=ISSUERS_MAX)?;
    let mut issuers: Vec<Oidc> = Vec::new();
    for (index, written) in written.into_iter().enumerate() {
        let (key, issuer) = (key(index), issuer(&key(index), written, directory)?);
        // A token and a rule's subject each belong to one.
        if issuers.iter().any(|earlier| earlier.name == issuer.name) {
            return Err(KeyError::new(format!("{key}.name"), issuer.name, "a name that no other issuer has"));
        }
        if issuers.iter().any(|earlier| earlier.issuer == issuer.issuer) {
            return Err(KeyError::new(format!("{key}.issuer"), issuer.issuer, "each issuer once"));
        }
        issuers.push(issuer);
    }
    Ok(issuers)
}

fn issuer(way: &str, written: written::Oidc, directory: &Path) -> Result<Oidc, KeyError> {
    let written::Oidc {
        name,
        issuer,
        audience,
        ca_file,
        algorithms,
        username_claim,
        groups_claim,
        required_claims,
        username_prefix,
        groups_prefix,
    } = written;
    let at = |key: &str| format!("{way}.{key}");
    let required_claims = required_claims.unwrap_or_default();
    bounded(&at("requiredClaims"), required_claims.len(), 0..=NAMES_MAX)?;
    Ok(Oidc {
        name: label(at("name"), name)?,
        issuer: https(at("issuer"), issuer)?.0,
        audience: text(at("audience"), audience)?,
        roots: roots(&at("caFile"), ca_file, directory)?,
        algorithms: algorithms.map_or_else(
            || Ok(ALGORITHMS_DEFAULT.into()),
            |names| self::algorithms(&at("algorithms"), names),
        )?,
        username_claim: text(
            at("usernameClaim"),
            Some(username_claim.unwrap_or_else(|| USERNAME_CLAIM_DEFAULT.to_owned())),
        )?,
        groups_claim: groups_claim.map(|claim| text(at("groupsClaim"), Some(claim))).transpose()?,
        required_claims,
        prefixes: prefixes(way, username_prefix, groups_prefix)?,
    })
}

pub(super) fn token_review(written: written::TokenReview, directory: &Path) -> Result<TokenReview, KeyError> {
    let written::TokenReview { name, server, ca_file, token_file, audiences, username_prefix, groups_prefix } =
        written;
    let at = |key: &str| format!("{TOKEN_REVIEW}.{key}");
    let audiences = audiences.unwrap_or_default();
    bounded(&at("audiences"), audiences.len(), 1..=NAMES_MAX)?;
    let host = host_cluster(TOKEN_REVIEW, written::HostCluster { server, ca_file, token_file }, directory)?;
    let prefixes = prefixes(TOKEN_REVIEW, username_prefix, groups_prefix)?;
    for (key, prefix) in [("usernamePrefix", &prefixes.username), ("groupsPrefix", &prefixes.groups)] {
        if prefix.is_empty() {
            let allowed = "a prefix of its own: another cluster's names must not look like this server's";
            return Err(KeyError::new(at(key), "\"\"", allowed));
        }
    }
    Ok(TokenReview {
        name: label(at("name"), name)?,
        host,
        audiences: audiences
            .into_iter()
            .map(|audience| text(at("audiences"), Some(audience)))
            .collect::<Result<_, _>>()?,
        prefixes,
    })
}

/// An API server that is asked, whose keys stand below `way`.
pub(super) fn host_cluster(
    way: &str,
    written: written::HostCluster,
    directory: &Path,
) -> Result<HostCluster, KeyError> {
    let written::HostCluster { server, ca_file, token_file } = written;
    let at = |key: &str| format!("{way}.{key}");
    let (server_text, server) = https(at("server"), server)?;
    if server.path_and_query().is_some_and(|path| path.as_str() != "/") {
        return Err(KeyError::new(at("server"), server_text, "https://HOST[:PORT] without a path"));
    }
    Ok(HostCluster {
        server,
        roots: roots(&at("caFile"), ca_file, directory)?,
        token_file: file(&at("tokenFile"), token_file, directory)?,
    })
}

fn label(key: String, name: Option<String>) -> Result<String, KeyError> {
    let allowed = "1 to 63 lower-case letters, digits and '-', by which the policy's rules name it";
    match name {
        Some(name) if is_dns_label(&name) => Ok(name),
        Some(name) => Err(KeyError::new(key, format_args!("{name:?}"), allowed)),
        None => Err(KeyError::new(key, NOTHING, allowed)),
    }
}

fn text(key: String, text: Option<String>) -> Result<String, KeyError> {
    match text {
        Some(text) if !text.is_empty() => Ok(text),
        Some(_) | None => Err(KeyError::new(key, NOTHING, "a text that is not empty")),
    }
}

/// A URL as it was written, because an issuer is compared to the byte.
fn https(key: String, url: Option<String>) -> Result<(String, Uri), KeyError> {
    let url = text(key.clone(), url)?;
    let is_plain = |uri: &Uri| {
        let authority = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        authority && uri.scheme() == Some(&Scheme::HTTPS) && uri.query().is_none()
    };
    match url.parse::<Uri>().ok().filter(is_plain) {
        Some(uri) => Ok((url, uri)),
        None => {
            Err(KeyError::new(key, format_args!("{url:?}"), "an https URL without user, query or fragment"))
        }
    }
}

fn roots(
    key: &str,
    path: Option<PathBuf>,
    directory: &Path,
) -> Result<Vec<CertificateDer<'static>>, KeyError> {
    let path = file(key, path, directory)?;
    pem::authorities(key, &path)
}

fn algorithms(key: &str, names: Vec<String>) -> Result<Vec<Algorithm>, KeyError> {
    bounded(key, names.len(), 1..=NAMES_MAX)?;
    let algorithm = |name: String| {
        // Who may verify by a MAC may sign by it, and `none` is no algorithm.
        let found = name.parse::<Algorithm>().ok().filter(|found| found.family() != AlgorithmFamily::Hmac);
        let allowed = "RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 and EdDSA";
        found.ok_or_else(|| KeyError::new(key, format_args!("{name:?}"), allowed))
    };
    names.into_iter().map(algorithm).collect()
}
