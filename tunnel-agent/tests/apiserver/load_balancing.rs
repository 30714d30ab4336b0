//! Several API servers of one cluster: who is asked, and who is not.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use daemon::Scope;
use http::{Response, StatusCode};
use http_body_util::Full;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tunnel_agent::apiserver::{ApiServer, Timeouts};

use crate::fake::{Authority, Fake, Mounted, get, http1, http2, soon, whole};

/// What `/readyz` says of one that answers nothing at all.
const SILENT: u16 = 0;

/// FakeApiServer of several: says its name to whoever asks, and whether it is ready.
struct FakeApiServer {
    fake: Fake,
    readyz: Arc<AtomicU16>,
    scope: Scope,
}

impl FakeApiServer {
    async fn start(authority: &Authority, protocol: &'static str, name: &'static str) -> Self {
        let scope = Scope::here();
        let readyz = Arc::new(AtomicU16::new(200));
        let answered = readyz.clone();
        let fake = Fake::start(&scope, authority.server(&[protocol]), move |connection, _| {
            let answered = answered.clone();
            let answer = move |request: http::Request<hyper::body::Incoming>| {
                let answered = answered.load(Ordering::SeqCst);
                async move {
                    if answered == SILENT {
                        std::future::pending::<()>().await;
                    }
                    let mut response = Response::new(Full::from(name));
                    if request.uri().path() == "/readyz" {
                        *response.status_mut() = StatusCode::from_u16(answered).unwrap();
                    }
                    response
                }
            };
            async move {
                if protocol == "h2" {
                    http2(connection, answer).await
                } else {
                    http1(connection, answer).await
                }
            }
        })
        .await;
        Self { fake, readyz, scope }
    }

    fn says(&self, readyz: u16) {
        self.readyz.store(readyz, Ordering::SeqCst);
    }

    /// Closes everything at once.
    async fn dies(self) {
        // Nothing of it was to be finished.
        let _ = self.scope.close(Duration::ZERO).await;
    }
}

/// An API server whose credential names the first of these, and which is balanced among all.
struct Balanced {
    authority: Authority,
    all: Vec<FakeApiServer>,
    api_server: ApiServer,
    _mounted: Mounted,
    _scope: Scope,
}

impl Balanced {
    async fn start(protocol: &'static str) -> Self {
        let (scope, authority) = (Scope::here(), Authority::new());
        let all = vec![
            FakeApiServer::start(&authority, protocol, "first").await,
            FakeApiServer::start(&authority, protocol, "second").await,
        ];
        let mounted = Mounted::new("token-1", &authority.pem());
        let api_server = mounted.api_server(all[0].fake.address, Timeouts::default(), &scope);
        let this = Self { authority, all, api_server, _mounted: mounted, _scope: scope };
        this.balance(&this.addresses());
        this.ready(&this.addresses()).await;
        this
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.all.iter().map(|one| one.fake.address).collect()
    }

    fn balance(&self, addresses: &[SocketAddr]) {
        self.api_server.balance(addresses);
    }

    /// Waits until exactly these are ready.
    async fn ready(&self, expected: &[SocketAddr]) {
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        let mut changes = self.api_server.changes();
        soon(async {
            loop {
                let mut ready = self.api_server.ready();
                ready.sort_unstable();
                if ready == expected {
                    return;
                }
                changes.changed().await.unwrap();
            }
        })
        .await;
    }

    async fn ask(&self) -> String {
        whole(soon(self.api_server.send(get("/"))).await.unwrap()).await.unwrap()
    }

    /// Who answers so many requests, one after the other, while nothing else changes: on a machine that is busy one that lives may
    /// be late with an answer, and is not asked for a moment.
    async fn answers(&self, requests: usize) -> BTreeMap<String, usize> {
        let mut ready = self.api_server.ready();
        ready.sort_unstable();
        soon(async {
            loop {
                self.ready(&ready).await;
                let changes = self.api_server.changes();
                let mut answers = BTreeMap::new();
                for _ in 0..requests {
                    *answers.entry(self.ask().await).or_default() += 1;
                }
                if !changes.has_changed().unwrap() {
                    return answers;
                }
            }
        })
        .await
    }

    /// Asks until each of these has answered.
    async fn until_answered_by(&self, names: &[&str]) {
        for name in names {
            soon(async { while self.ask().await != *name {} }).await;
        }
    }
}

fn only(name: &str, requests: usize) -> BTreeMap<String, usize> {
    BTreeMap::from([(name.to_owned(), requests)])
}

#[tokio::test]
async fn requests_are_shared_evenly_among_api_servers_that_are_ready() {
    for protocol in ["h2", "http/1.1"] {
        let balanced = Balanced::start(protocol).await;
        balanced.until_answered_by(&["first", "second"]).await;

        let answers = balanced.answers(40).await;

        assert!(
            answers.len() == 2 && answers.values().all(|answered| *answered >= 15),
            "{protocol}: {answers:?}"
        );
    }
}

#[tokio::test]
async fn one_that_dies_or_falls_silent_or_is_not_ready_is_not_asked_and_one_that_comes_back_is() {
    for protocol in ["h2", "http/1.1"] {
        let mut balanced = Balanced::start(protocol).await;
        let addresses = balanced.addresses();
        balanced.until_answered_by(&["first", "second"]).await;

        for readyz in [SILENT, 500] {
            balanced.all[1].says(readyz);
            balanced.ready(&addresses[..1]).await;
            assert_eq!(balanced.answers(20).await, only("first", 20), "{protocol} {readyz}");
            assert!(balanced.api_server.is_down(addresses[1]));
            balanced.all[1].says(200);
            balanced.ready(&addresses).await;
            balanced.until_answered_by(&["first", "second"]).await;
        }
        balanced.all.swap_remove(1).dies().await;
        balanced.ready(&addresses[..1]).await;
        assert_eq!(balanced.answers(20).await, only("first", 20), "{protocol}");
    }
}

#[tokio::test]
async fn one_that_does_not_let_the_agent_ask_lives() {
    let balanced = Balanced::start("h2").await;
    let addresses = balanced.addresses();

    for readyz in [401, 403] {
        balanced.all[1].says(500);
        balanced.ready(&addresses[..1]).await;
        balanced.all[1].says(readyz);
        balanced.ready(&addresses).await;
        balanced.until_answered_by(&["second"]).await;
    }
}

#[tokio::test]
async fn one_that_joins_is_asked_and_one_that_is_taken_out_is_not() {
    let mut balanced = Balanced::start("h2").await;
    let third = FakeApiServer::start(&balanced.authority, "h2", "third").await;
    balanced.all.push(third);

    balanced.balance(&balanced.addresses());
    balanced.ready(&balanced.addresses()).await;
    balanced.until_answered_by(&["first", "second", "third"]).await;
    balanced.balance(&balanced.addresses()[2..]);
    balanced.ready(&balanced.addresses()[2..]).await;

    assert_eq!(balanced.answers(20).await, only("third", 20));
}

#[tokio::test]
async fn one_whose_certificate_another_authority_signed_is_never_asked() {
    let balanced = Balanced::start("h2").await;
    let addresses = balanced.addresses();
    let impostor = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tls = TlsAcceptor::from(Authority::new().server(&["h2"]));

    balanced.balance(&[addresses[0], impostor.local_addr().unwrap()]);
    // The second question comes after the first was judged.
    for _ in 0..2 {
        let (tcp, _) = soon(impostor.accept()).await.unwrap();
        assert!(soon(tls.accept(tcp)).await.is_err());
    }

    balanced.ready(&addresses[..1]).await;
    assert_eq!(balanced.answers(40).await, only("first", 40));
}

#[tokio::test]
async fn where_none_is_ready_the_one_that_the_credential_names_is_asked() {
    let mut balanced = Balanced::start("h2").await;
    let addresses = balanced.addresses();
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobodys = nobody.local_addr().unwrap();
    drop(nobody);

    balanced.balance(&[nobodys, addresses[1]]);
    balanced.ready(&addresses[1..]).await;
    assert_eq!(balanced.answers(5).await, only("second", 5));
    balanced.all.swap_remove(1).dies().await;
    balanced.ready(&[]).await;

    assert_eq!(balanced.answers(5).await, only("first", 5));
}
