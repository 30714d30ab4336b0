//! Several API servers of one cluster, and those of them that get requests.

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

/// The status of an API server that answers nothing at all.
const SILENT: u16 = 0;

/// One of several API servers: answers with its name, and whether it is ready.
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

    /// Closes all of its connections at once.
    async fn dies(self) {
        // Nothing has to finish first.
        let _ = self.scope.close(Duration::ZERO).await;
    }
}

/// A client whose credential names the first of these API servers, and which is balanced among all of them.
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

    /// Counts the answers to so many requests, one after the other, by API server, while nothing else
    /// changes. On a busy machine one that is alive may be late with an answer, and gets no requests for a
    /// moment.
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
async fn a_dead_silent_or_unready_one_gets_no_requests_until_it_is_back() {
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
async fn one_that_refuses_the_agents_probe_is_ready() {
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
async fn an_added_one_gets_requests_and_a_removed_one_does_not() {
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
async fn one_with_a_certificate_of_another_authority_gets_no_requests() {
    let balanced = Balanced::start("h2").await;
    let addresses = balanced.addresses();
    let impostor = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tls = TlsAcceptor::from(Authority::new().server(&["h2"]));

    balanced.balance(&[addresses[0], impostor.local_addr().unwrap()]);
    // The second probe comes after the first one was evaluated.
    for _ in 0..2 {
        let (tcp, _) = soon(impostor.accept()).await.unwrap();
        assert!(soon(tls.accept(tcp)).await.is_err());
    }

    balanced.ready(&addresses[..1]).await;
    assert_eq!(balanced.answers(40).await, only("first", 40));
}

#[tokio::test]
async fn where_none_is_ready_the_one_in_the_credential_gets_requests() {
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
