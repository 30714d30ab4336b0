//! Bundles of CA certificates, and the cause that an agent gives for a certificate that it does not trust.

use std::sync::Arc;

use daemon::Scope;
use http::Response;
use http_body_util::Full;
use proto::AbortCode;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::PrivateKeyDer;
use time::{Duration, OffsetDateTime};
use tunnel_agent::apiserver::{ApiServer, ApiServerError, Timeouts};
use tunnel_agent::clock::Clock;

use crate::fake::{Authority, Fake, Mounted, get, http2, soon};

/// A certificate in the form of PEM that is none, and one whose PEM is broken.
const UNREADABLE: &str = "-----BEGIN CERTIFICATE-----\nbm90aGluZw==\n-----END CERTIFICATE-----\n";
const NOT_BASE64: &str = "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n";

#[tokio::test]
async fn an_unreadable_certificate_is_skipped_and_the_others_count() {
    let server = ServerCertificate::signed(&|_| {}, &|_| {});
    for bundle in [
        format!("{UNREADABLE}{}", server.ca),
        format!("{}{UNREADABLE}", server.ca),
        format!("{NOT_BASE64}{}", server.ca),
        format!("{NOT_BASE64}{UNREADABLE}{}{}", Authority::new().pem(), server.ca),
    ] {
        assert_eq!(asked(&server, &bundle).await, None, "{bundle}");
    }
}

#[test]
fn a_bundle_without_any_certificate_is_refused() {
    for bundle in
        [UNREADABLE.to_owned(), NOT_BASE64.to_owned(), String::new(), format!("{UNREADABLE}{NOT_BASE64}")]
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mounted, scope) = (Mounted::new("token-1", &bundle), Scope::here());
            let source = mounted.source("127.0.0.1:6443".parse().unwrap());
            let refused = ApiServer::new(source, Timeouts::default(), Clock::default(), &scope);
            let message = refused.err().unwrap().to_string();
            assert!(message.contains("ca.crt"), "{message}");
        });
    }
}

#[tokio::test]
async fn a_servers_own_certificate_is_accepted_as_its_ca() {
    for is_ca in [IsCa::Ca(BasicConstraints::Unconstrained), IsCa::ExplicitNoCa, IsCa::NoCa] {
        let own = ServerCertificate::self_signed(&is_ca);
        let another = ServerCertificate::self_signed(&is_ca);

        assert_eq!(asked(&own, &own.pem).await, None, "{is_ca:?}");
        assert!(asked(&own, &another.pem).await.is_some(), "{is_ca:?}");
    }
    // The pin of a leaf that a CA has signed.
    let signed = ServerCertificate::signed(&|_| {}, &|_| {});
    assert_eq!(asked(&signed, &signed.pem).await, None);
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_reported_with_its_cause() {
    let yesterday = OffsetDateTime::now_utc() - Duration::days(1);
    let good = ServerCertificate::signed(&|_| {}, &|_| {});
    let renamed = ServerCertificate::signed(&|_| {}, &|params| {
        *params = CertificateParams::new(vec!["other.test".to_owned()]).unwrap();
    });
    let ended = ServerCertificate::signed(&|_| {}, &|params| params.not_after = yesterday);
    let ca_ended = ServerCertificate::signed(&|params| params.not_after = yesterday, &|_| {});
    let no_ca = ServerCertificate::signed(&|params| params.is_ca = IsCa::NoCa, &|_| {});

    for (server, bundle, cause) in [
        (&good, &Authority::new().pem(), AbortCode::ApiServerUnknownIssuer),
        (&renamed, &renamed.ca, AbortCode::ApiServerWrongName),
        (&ended, &ended.ca, AbortCode::ApiServerCertificateExpired),
        (&ca_ended, &ca_ended.ca, AbortCode::ApiServerCertificateExpired),
        (&no_ca, &no_ca.ca, AbortCode::ApiServerUnknownIssuer),
    ] {
        assert_eq!(asked(server, bundle).await, Some(cause));
    }
}

/// As on a machine that wakes before its certificate was issued: all that was issued since is not valid yet.
#[tokio::test]
async fn an_api_server_is_verified_by_a_clock_not_before_the_certificate() {
    let tomorrow = OffsetDateTime::now_utc() + Duration::days(1);
    let begins = |params: &mut CertificateParams| params.not_before = tomorrow;
    let server = ServerCertificate::signed(&begins, &begins);
    let clock = Clock::default();
    assert!(asked_by(clock.clone(), &server, &server.ca).await.is_some());

    clock.raise(u64::try_from(tomorrow.unix_timestamp()).unwrap());

    assert_eq!(asked_by(clock, &server, &server.ca).await, None);
}

/// The code with which a request to this server fails for an agent with this bundle.
async fn asked(server: &ServerCertificate, bundle: &str) -> Option<AbortCode> {
    asked_by(Clock::default(), server, bundle).await
}

/// The same, where certificates are verified by `clock`.
async fn asked_by(clock: Clock, server: &ServerCertificate, bundle: &str) -> Option<AbortCode> {
    let scope = Scope::here();
    let fake = Fake::start(&scope, server.config.clone(), |connection, _| {
        http2(connection, |_| async { Response::new(Full::from("x")) })
    })
    .await;
    let mounted = Mounted::new("token-1", bundle);
    let source = mounted.source(fake.address);
    let api_server = ApiServer::new(source, Timeouts::default(), clock, &scope).unwrap();

    match soon(api_server.send(get("/"))).await {
        Ok(_) => None,
        Err(error @ ApiServerError::Untrusted { .. }) => Some(error.code()),
        Err(other) => panic!("{other:?}"),
    }
}

/// A certificate for 127.0.0.1, and the CA that has signed it.
struct ServerCertificate {
    config: Arc<rustls::ServerConfig>,
    pem: String,
    ca: String,
}

impl ServerCertificate {
    fn signed(
        change_ca: &dyn Fn(&mut CertificateParams),
        change_leaf: &dyn Fn(&mut CertificateParams),
    ) -> Self {
        let mut of_ca = CertificateParams::new(Vec::new()).unwrap();
        of_ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change_ca(&mut of_ca);
        let ca = CertifiedIssuer::self_signed(of_ca, KeyPair::generate().unwrap()).unwrap();
        let (key, mut params) = (KeyPair::generate().unwrap(), params());
        change_leaf(&mut params);
        let leaf = params.signed_by(&key, &ca).unwrap();
        Self { config: config(&leaf, &key), pem: leaf.pem(), ca: ca.pem() }
    }

    fn self_signed(is_ca: &IsCa) -> Self {
        let (key, mut params) = (KeyPair::generate().unwrap(), params());
        params.is_ca = *is_ca;
        let own = params.self_signed(&key).unwrap();
        Self { config: config(&own, &key), pem: own.pem(), ca: own.pem() }
    }
}

fn params() -> CertificateParams {
    CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap()
}

fn config(certificate: &rcgen::Certificate, key: &KeyPair) -> Arc<rustls::ServerConfig> {
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}
