//! Builds the ways in which callers prove who they are, and whom else to ask whether they may.

use std::sync::Arc;

use daemon::{Failure, Scope};
use rustls::client::Resumption;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;

use super::files;
use crate::config::{self, Config};
use crate::identity::oidc::{ClaimRequirements, Issuer};
use crate::identity::token_review::TokenReviewer;
use crate::identity::{AuthMethods, Authenticator, HostApi, Prefixes, SharedTokens, StaticTokens};
use crate::metrics::Reread;
use crate::permit::Delegation;

/// The ways that are configured; the keys of issuers are kept fresh within `scope`.
pub(super) fn authenticator(
    trust_domain: String,
    ways: &config::AuthenticationConfig,
    scope: &Scope,
) -> Result<Authenticator, Failure> {
    let certificates = ways.client_certificate.as_ref().map(|way| prefixes(&way.prefixes));
    let tokens = ways.token_file.as_ref().map(|way| tokens(way, scope)).transpose()?;
    let issuers: Vec<Arc<Issuer>> =
        ways.oidc.iter().map(|way| issuer(way).map(Arc::new)).collect::<Result<_, _>>()?;
    for issuer in &issuers {
        scope.attend(Arc::clone(issuer).follow());
    }
    let reviewer = ways.token_review.as_ref().map(|way| reviewer(way, scope)).transpose()?.map(Arc::new);
    let ways = AuthMethods { certificates, tokens, issuers, reviewer };
    Ok(Authenticator::new(trust_domain, ways))
}

/// The tokens of a file, which is read again within `scope` whenever it may have changed.
fn tokens(way: &config::TokenFile, scope: &Scope) -> Result<SharedTokens, Failure> {
    let prefixes = prefixes(&way.prefixes);
    let tokens = StaticTokens::parse(&way.contents, prefixes).map_err(|error| way.refused(error))?;
    let book = SharedTokens::new(tokens);
    let others = book.clone();
    let take = move |contents: Vec<u8>| {
        let tokens = StaticTokens::parse(&contents, others.prefixes().clone());
        others.replace(tokens.map_err(|error| error.to_string())?);
        Ok(())
    };
    let (path, contents) = (way.path.clone(), way.contents.clone());
    scope.attend(files::follow(Reread::Tokens, path, contents, config::TokenFile::read, take));
    Ok(book)
}

fn issuer(way: &config::OidcConfig) -> Result<Issuer, Failure> {
    let demands = ClaimRequirements {
        issuer: way.issuer.clone(),
        audience: way.audience.clone(),
        username_claim: way.username_claim.clone(),
        groups_claim: way.groups_claim.clone(),
        required: way.required_claims.clone(),
        prefixes: prefixes(&way.prefixes),
    };
    let tls = trusting(&way.roots)?;
    Issuer::new(&way.name, way.algorithms.clone(), demands, tls).map_err(Failure::could_not_go_on)
}

fn reviewer(way: &config::TokenReviewConfig, scope: &Scope) -> Result<TokenReviewer, Failure> {
    let (api, prefixes) = (host_api(&way.host)?, prefixes(&way.prefixes));
    TokenReviewer::new(&way.name, api, &way.audiences, prefixes, scope.clone())
        .map_err(Failure::could_not_go_on)
}

/// Whom else to ask whether callers may, if anybody is configured.
pub(super) fn delegation(config: &Config, scope: &Scope) -> Result<Delegation, Failure> {
    let Some(host) = &config.delegation else { return Ok(Delegation::default()) };
    let reviewer = config.gateway.authentication.token_review.as_ref();
    let is_reviewer = reviewer.is_some_and(|way| way.host.server == host.server);
    Ok(Delegation::to(host_api(host)?, is_reviewer, scope.clone()))
}

/// Whom the configuration names to be asked.
pub(super) fn host_api(host: &config::HostCluster) -> Result<Arc<HostApi>, Failure> {
    Ok(Arc::new(HostApi::new(host.server.clone(), host.token_file.clone(), trusting(&host.roots)?)))
}

fn prefixes(config::NamePrefixes { username, groups }: &config::NamePrefixes) -> Prefixes {
    Prefixes { username: username.clone(), groups: groups.clone() }
}

/// TLS towards somebody whom these roots vouch for, and nobody else's.
fn trusting(roots: &[CertificateDer<'static>]) -> Result<ClientConfig, Failure> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots.iter().cloned());
    let builder = ClientConfig::builder_with_provider(transport::tls::provider())
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(Failure::could_not_go_on)?;
    let mut config = builder.with_root_certificates(store).with_no_client_auth();
    // A resumed session does not look at the certificate again.
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
