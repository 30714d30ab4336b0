//! Tokens of an issuer, verified by the keys that it publishes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::UNIX_EPOCH;

use daemon::Scope;
use http::StatusCode;
use http::header::{AUTHORIZATION, HeaderMap};
use serde_json::{Value, json};

use super::*;
use crate::identity::test_server::TestServer;
use crate::identity::{AuthMethods, Authenticator, Prefixes};
use test_signer::{TokenSigner, key_set};

const AUDIENCE: &str = "tombolo";

/// A test double of an issuer, and its documents.
struct Published {
    at: TestServer,
    publication: Arc<Mutex<Publication>>,
}

/// The documents that it publishes.
#[derive(Default)]
struct Publication {
    /// The issuer that it names, if not itself.
    issuer: Option<String>,
    keys: Option<String>,
}

/// Tokens of other keys, algorithms, audiences and issuers are refused.
#[tokio::test]
async fn only_a_token_that_a_published_key_has_signed_authenticates() {
    let (own, other, unknown) = (TokenSigner::new("a"), TokenSigner::new("a"), TokenSigner::new("b"));
    let published = Published::with(&[&own]).await;
    let authenticator = published.authenticator();
    let claims = claims(&published.at.url);
    let ask = async |token: String| {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {token}").parse().unwrap())]);
        let known = authenticator.authenticate(None, &headers, SystemTime::now()).await;
        known.map(|known| known.require_single_credential().unwrap().clone())
    };

    let caller = ask(own.token("ES256", &claims)).await.unwrap();

    assert_eq!((caller.user(), caller.method().to_string().as_str()), ("corp:ann", "oidc:corp"));
    assert!(authenticator.is_still_valid(&caller) && authenticator.changes().is_none());
    assert_eq!(authenticator.review_again(&caller, SystemTime::now()).await, Ok(()), "nobody reviews it");
    let audience = ClaimError::Audience;
    let elsewhere = with(&claims, "aud", "elsewhere");
    for (token, fault) in [
        (other.token("ES256", &claims), OidcTokenError::Signature),
        (unknown.token("ES256", &claims), OidcTokenError::UnknownKey),
        (own.token("RS256", &claims), OidcTokenError::Algorithm),
        (own.token("ES256", &elsewhere), audience.into()),
    ] {
        assert_eq!(ask(token).await, Err(NotAuthenticated::Token(fault.clone())), "{fault}");
    }
    let others = own.token("ES256", &with(&claims, "iss", "https://elsewhere.example"));
    assert_eq!(ask(others).await, Err(NotAuthenticated::UnknownToken));
    assert_eq!(ask("t0ken".to_owned()).await, Err(NotAuthenticated::UnknownToken));
}

#[tokio::test]
async fn an_unreachable_or_wrong_issuer_neither_accepts_nor_refuses() {
    let own = TokenSigner::new("a");
    let nothing = Publication { keys: None, ..Publication::default() };
    let garbage = Publication { keys: Some("no keys".to_owned()), ..Publication::default() };
    let another =
        Publication { issuer: Some("https://elsewhere.example".to_owned()), keys: Some(key_set(&[&own])) };
    for (what, publication) in [("nothing", nothing), ("garbage", garbage), ("for another", another)] {
        let published = Published::publishing(publication).await;
        let issuer = published.issuer();
        Scope::here().spawn_background(Arc::clone(&issuer).follow());
        let token = own.token("ES256", &claims(&published.at.url));
        let jwt = Jwt::parse(&token).unwrap().unwrap();

        let refused = issuer.caller(&token, &jwt, SystemTime::now()).await;

        assert_eq!(refused, Err(NotAuthenticated::Unreachable(Method::Oidc("oidc:corp".into()))), "{what}");
    }
}

/// A token with an unknown key causes one fetch, and no further one within the pause.
#[tokio::test]
async fn an_unknown_key_refreshes_the_keys_but_not_before_the_pause_is_over() {
    let (old, new) = (TokenSigner::new("old"), TokenSigner::new("new"));
    let published = Published::with(&[&old]).await;
    let issuer = published.issuer();
    Scope::here().spawn_background(Arc::clone(&issuer).follow());
    let ask = async |by: &TokenSigner| {
        let token = by.token("ES256", &claims(&published.at.url));
        let jwt = Jwt::parse(&token).unwrap().unwrap();
        issuer.caller(&token, &jwt, SystemTime::now()).await.map(|caller| caller.user().to_owned())
    };
    assert_eq!(ask(&old).await.as_deref(), Ok("corp:ann"));
    published.publishes().keys = Some(key_set(&[&old, &new]));
    let asked = published.at.seen().len();
    assert_eq!(asked, 2, "where the keys are, and the keys");

    assert_eq!(ask(&new).await, Err(OidcTokenError::UnknownKey.into()));
    assert_eq!(published.at.seen().len(), asked, "it was asked a moment ago");
    // The paused clock advances only here.
    tokio::time::pause();
    tokio::time::advance(REFRESH_PAUSE).await;
    tokio::time::resume();
    assert_eq!(ask(&new).await.as_deref(), Ok("corp:ann"));
}

#[test]
fn debug_shows_which_issuer_it_is() {
    let tls =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
    let tls = watch::channel(Arc::new(tls)).1;
    let issuer =
        Issuer::new("corp", vec![Algorithm::ES256], requirements("https://issuer.example"), tls).unwrap();
    assert!(format!("{issuer:?}").contains("oidc:corp"), "{issuer:?}");
}

impl Published {
    async fn with(signers: &[&TokenSigner]) -> Self {
        Self::publishing(Publication { keys: Some(key_set(signers)), ..Publication::default() }).await
    }

    async fn publishing(publication: Publication) -> Self {
        let publication = Arc::new(Mutex::new(publication));
        let publishes = Arc::clone(&publication);
        let at = TestServer::answering(move |asked| {
            let publishes = publishes.lock().unwrap();
            let own = format!("https://{}", asked.header("host"));
            match asked.uri.path() {
                "/.well-known/openid-configuration" => {
                    let issuer = publishes.issuer.clone().unwrap_or_else(|| own.clone());
                    let document = json!({ "issuer": issuer, "jwks_uri": format!("{own}/keys") });
                    (StatusCode::OK, document.to_string())
                }
                "/keys" => match &publishes.keys {
                    Some(keys) => (StatusCode::OK, keys.clone()),
                    None => (StatusCode::NOT_FOUND, String::new()),
                },
                other => panic!("{other}"),
            }
        })
        .await;
        Self { at, publication }
    }

    fn publishes(&self) -> MutexGuard<'_, Publication> {
        self.publication.lock().unwrap()
    }

    fn issuer(&self) -> Arc<Issuer> {
        let requirements = requirements(&self.at.url);
        Arc::new(Issuer::new("corp", vec![Algorithm::ES256], requirements, self.at.tls()).unwrap())
    }

    /// An authenticator with only this issuer.
    fn authenticator(&self) -> Authenticator {
        let issuer = self.issuer();
        Scope::here().spawn_background(Arc::clone(&issuer).follow());
        Authenticator::new(
            "tombolo".to_owned(),
            AuthMethods { issuers: vec![issuer], ..AuthMethods::default() },
        )
    }
}

fn requirements(issuer: &str) -> ClaimRequirements {
    let prefix = "corp:".to_owned();
    ClaimRequirements {
        issuer: issuer.to_owned(),
        audience: AUDIENCE.to_owned(),
        username_claim: "sub".to_owned(),
        groups_claim: None,
        required: BTreeMap::new(),
        prefixes: Prefixes { username: prefix.clone(), groups: prefix },
    }
}

fn claims(issuer: &str) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    json!({ "iss": issuer, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 600 })
}

fn with(claims: &Value, name: &str, value: &str) -> Value {
    let mut claims = claims.clone();
    claims[name] = json!(value);
    claims
}
