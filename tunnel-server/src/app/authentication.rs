//! Builds the configured methods of authentication, and the delegation of authorization.

use std::sync::Arc;

use daemon::{Failure, Scope};

use super::reload;
use super::trusted_roots::RootsFollower;
use crate::authz::Delegation;
use crate::config::{self, Config};
use crate::identity::oidc::{ClaimRequirements, Issuer};
use crate::identity::token_review::TokenReviewer;
use crate::identity::{AuthMethods, Authenticator, HostApi, Prefixes, SharedTokens, StaticTokens};
use crate::metrics::ReloadedFile;

/// Builds the configured methods. Tasks in `scope` keep the keys of issuers fresh.
pub(super) fn authenticator(
    trust_domain: String,
    config: &config::AuthenticationConfig,
    roots: &RootsFollower,
    scope: &Scope,
) -> Result<Authenticator, Failure> {
    let certificates = config.client_certificate.as_ref().map(|method| prefixes(&method.prefixes));
    let tokens = config.token_file.as_ref().map(|method| tokens(method, scope)).transpose()?;
    let issuers: Vec<Arc<Issuer>> =
        config.oidc.iter().map(|method| issuer(method, roots).map(Arc::new)).collect::<Result<_, _>>()?;
    for issuer in &issuers {
        scope.spawn_background(Arc::clone(issuer).follow());
    }
    let reviewer = config.token_review.as_ref().map(|method| reviewer(method, roots, scope));
    let reviewer = reviewer.transpose()?.map(Arc::new);
    let methods = AuthMethods { certificates, tokens, issuers, reviewer };
    Ok(Authenticator::new(trust_domain, methods))
}

/// The static tokens of a file, which is reloaded within `scope` whenever it may have changed.
fn tokens(method: &config::TokenFile, scope: &Scope) -> Result<SharedTokens, Failure> {
    let prefixes = prefixes(&method.prefixes);
    let tokens = StaticTokens::parse(&method.contents, prefixes).map_err(|error| method.refused(error))?;
    let book = SharedTokens::new(tokens);
    let others = book.clone();
    let take = move |contents: Vec<u8>| {
        let tokens = StaticTokens::parse(&contents, others.prefixes().clone());
        others.replace(tokens.map_err(|error| error.to_string())?);
        Ok(())
    };
    let (path, contents) = (method.path.clone(), method.contents.clone());
    scope.spawn_background(reload::follow(
        ReloadedFile::Tokens,
        path,
        contents,
        config::TokenFile::read,
        take,
    ));
    Ok(book)
}

fn issuer(method: &config::OidcConfig, roots: &RootsFollower) -> Result<Issuer, Failure> {
    let demands = ClaimRequirements {
        issuer: method.issuer.clone(),
        audience: method.audience.clone(),
        username_claim: method.username_claim.clone(),
        groups_claim: method.groups_claim.clone(),
        required: method.required_claims.clone(),
        prefixes: prefixes(&method.prefixes),
    };
    let tls = roots.servers(ReloadedFile::OidcCa, &method.roots)?;
    Issuer::new(&method.name, method.algorithms.clone(), demands, tls).map_err(Failure::could_not_go_on)
}

fn reviewer(
    method: &config::TokenReviewConfig,
    roots: &RootsFollower,
    scope: &Scope,
) -> Result<TokenReviewer, Failure> {
    let api = host_api(&method.host, ReloadedFile::TokenReviewCa, roots)?;
    let prefixes = prefixes(&method.prefixes);
    TokenReviewer::new(&method.name, api, &method.audiences, prefixes, scope.clone())
        .map_err(Failure::could_not_go_on)
}

/// The cluster that is asked about callers' requests, if one is configured.
pub(super) fn delegation(
    config: &Config,
    roots: &RootsFollower,
    scope: &Scope,
) -> Result<Delegation, Failure> {
    let Some(host) = &config.delegation else { return Ok(Delegation::default()) };
    let reviewer = config.gateway.authentication.token_review.as_ref();
    let is_reviewer = reviewer.is_some_and(|method| method.host.server == host.server);
    let api = host_api(host, ReloadedFile::DelegationCa, roots)?;
    Ok(Delegation::new(api, is_reviewer, scope.clone()))
}

/// A client for the API server of a host cluster. `ca` is the kind of its CA file.
pub(super) fn host_api(
    host: &config::HostCluster,
    ca: ReloadedFile,
    roots: &RootsFollower,
) -> Result<Arc<HostApi>, Failure> {
    let tls = roots.servers(ca, &host.roots)?;
    Ok(Arc::new(HostApi::new(host.server.clone(), host.token_file.clone(), tls)))
}

fn prefixes(config::NamePrefixes { username, groups }: &config::NamePrefixes) -> Prefixes {
    Prefixes { username: username.clone(), groups: groups.clone() }
}
