//! The list `gateway.authentication.oidc`: issuers of OpenID Connect tokens.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use daemon::config::{KeyError, bounded};
use jsonwebtoken::{Algorithm, AlgorithmFamily};
use serde::Deserialize;

use super::host_cluster::{https_roots, https_url};
use super::roots::TrustedRoots;
use super::value::{NAMES_MAX, NamePrefixes, label, prefixes, text};

/// Most issuers of callers' tokens.
pub const ISSUERS_MAX: usize = 16;

/// Signature algorithms that are accepted by default: those that every issuer has.
const ALGORITHMS_DEFAULT: [Algorithm; 2] = [Algorithm::RS256, Algorithm::ES256];

/// The claim that every token must have (OpenID Connect Core, section 2).
const USERNAME_CLAIM_DEFAULT: &str = "sub";

/// An issuer of OpenID Connect tokens.
#[derive(Debug)]
pub struct OidcConfig {
    /// The issuer's name in policy rules, a DNS label.
    pub name: String,
    /// An https URL; a token's `iss` must equal it byte by byte.
    pub issuer: String,
    /// The audience that tokens must name.
    pub audience: String,
    /// The roots that the issuer's certificate must chain to; at least one.
    pub roots: TrustedRoots,
    /// Accepted signature algorithms; at least one, and no MAC.
    pub algorithms: Vec<Algorithm>,
    /// The claim that names the user.
    pub username_claim: String,
    /// The claim that names the groups.
    pub groups_claim: Option<String>,
    /// Required claims and the text that each must have.
    pub required_claims: BTreeMap<String, String>,
    /// The prefixes of the issuer's names.
    pub prefixes: NamePrefixes,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawOidc {
    /// Name of the issuer, a DNS label. The policy calls its method `oidc:NAME`.
    #[cfg_attr(test, schemars(required))]
    name: Option<String>,
    /// https URL of the issuer. A token's `iss` has to be equal byte by byte.
    #[cfg_attr(test, schemars(required))]
    issuer: Option<String>,
    /// Audience that each token has to name.
    #[cfg_attr(test, schemars(required))]
    audience: Option<String>,
    /// PEM file with the CA certificates of the issuer's web server.
    #[cfg_attr(test, schemars(required))]
    ca_file: Option<PathBuf>,
    /// Accepted signature algorithms: RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA.
    #[cfg_attr(test, schemars(extend("default" = ["RS256", "ES256"]), length(min = 1, max = NAMES_MAX)))]
    algorithms: Option<Vec<String>>,
    /// Claim that has the user name.
    #[cfg_attr(test, schemars(extend("default" = USERNAME_CLAIM_DEFAULT)))]
    username_claim: Option<String>,
    /// Claim that has the groups. Without it, callers have no groups.
    groups_claim: Option<String>,
    /// Claims that a token has to have, each with its text.
    #[cfg_attr(test, schemars(extend("default" = {})))]
    required_claims: Option<BTreeMap<String, String>>,
    /// In front of the user names of this method, so that names of two methods differ. One method at most may have "",
    /// and none may begin with system:.
    #[cfg_attr(test, schemars(required))]
    username_prefix: Option<String>,
    /// The same in front of the groups.
    #[cfg_attr(test, schemars(required))]
    groups_prefix: Option<String>,
}

/// The key of the issuer with this index.
pub(super) fn issuer_key(index: usize) -> String {
    format!("gateway.authentication.oidc[{index}]")
}

pub(super) fn oidc(raw: Vec<RawOidc>, directory: &Path) -> Result<Vec<OidcConfig>, KeyError> {
    bounded("gateway.authentication.oidc", raw.len(), 0..=ISSUERS_MAX)?;
    let mut issuers: Vec<OidcConfig> = Vec::new();
    for (index, raw) in raw.into_iter().enumerate() {
        let key = issuer_key(index);
        let issuer = issuer(&key, raw, directory)?;
        // A token and a rule's subject each belong to one issuer.
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

fn issuer(section: &str, raw: RawOidc, directory: &Path) -> Result<OidcConfig, KeyError> {
    let RawOidc {
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
    } = raw;
    let at = |key: &str| format!("{section}.{key}");
    let required_claims = required_claims.unwrap_or_default();
    bounded(&at("requiredClaims"), required_claims.len(), 0..=NAMES_MAX)?;
    Ok(OidcConfig {
        name: label(at("name"), name)?,
        issuer: https_url(at("issuer"), issuer)?.0,
        audience: text(at("audience"), audience)?,
        roots: https_roots(&at("caFile"), ca_file, directory)?,
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
        prefixes: prefixes(section, username_prefix, groups_prefix)?,
    })
}

fn algorithms(key: &str, names: Vec<String>) -> Result<Vec<Algorithm>, KeyError> {
    bounded(key, names.len(), 1..=NAMES_MAX)?;
    let algorithm = |name: String| {
        // A key that verifies a MAC can also sign it, and `none` is no algorithm.
        let found = name.parse::<Algorithm>().ok().filter(|found| found.family() != AlgorithmFamily::Hmac);
        let allowed = "RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 and EdDSA";
        found.ok_or_else(|| KeyError::new(key, format_args!("{name:?}"), allowed))
    };
    names.into_iter().map(algorithm).collect()
}
