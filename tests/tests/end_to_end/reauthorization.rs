//! Running exchanges end when they are no longer permitted: their caller is revoked, its credential expires,
//! policy forbids them, or they are too old. The caller sees the reason, for every kind of exchange. No other
//! exchange is affected.

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use tests::audit_log::{AuditLog, note};
use tests::caller::{GATEWAY, Http1Caller};
use tests::fake_api::{Behaviour, Store};
use tests::fake_edge::{CLUSTER, FakeEdge};
use tests::pki::Issued;
use tests::rig::policy::allow_all;
use tests::rig::{GROUP, TOKEN, ask};
use trust::user_token::TokenDigest;

const PODS: &str = "/clusters/edge-a/api/v1/namespaces/n/pods";
const WATCHED: &str = "/clusters/edge-a/api/v1/namespaces/n/configmaps";
const SOCKET: [&str; 2] = ["--socket", "admin/admin.sock"];

/// Nothing of another caller ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_ends_everything_that_its_caller_runs() {
    let site = ReauthorizationSite::start().await;
    let (ann, ben) = (site.everything(&site.ann).await, site.everything(&site.ben).await);

    let revoked = Instant::now();
    site.at(&["user", "revoke", "--name", "ann"]).await;
    ann.are_ended("CredentialRevoked", "401").await;

    // A promise of one second, which a test on a loaded machine does not hold anybody to.
    eprintln!("revoked, told and ended after {:?}", revoked.elapsed());
    ben.go_on(&site).await;
    site.edge
        .rig
        .measured("tombolo_server_request_terminations_total{reason=\"revoked\"}", |ended| ended >= 3.0)
        .await;
    site.recorded("revoked", 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_policy_ends_only_what_it_forbids() {
    let site = ReauthorizationSite::start().await;
    let (ann, ben) = (site.everything(&site.ann).await, site.everything(&site.ben).await);

    site.edge.rig.put_policy(&[allow_all("others", ("client-certificate", "others"), &["*"])]).await;

    ann.are_ended("PolicyChanged", "403").await;
    ben.go_on(&site).await;
    site.recorded("policy_changed", 3).await;
}

/// A broken file changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_removed_from_the_file_ends_what_runs_by_it() {
    let site = ReauthorizationSite::start().await;
    let rig = &site.edge.rig;
    let (mut tess, ben) = (
        site.watch_with(None, &format!("Authorization: Bearer {TOKEN}\r\n")).await,
        site.everything(&site.ben).await,
    );
    let is_current = "tombolo_server_file_reload_last_successful{file=\"tokens\"}";

    rig.write("tokens.csv", "no digest,tess,1\n");
    rig.measured(is_current, |current| current == 0.0).await;
    assert_eq!(rig.ask_with_token("GET", PODS, &[]).await.status, 404, "the last good file holds");
    site.store.put("shown", "still");
    tess.read_until("still").await;

    let other = "another-token-for-trials";
    rig.write("tokens.csv", &format!("{},other,1,\"{GROUP}\"\n", TokenDigest::of(other.as_bytes())));
    let message = tess.read_until("CredentialRevoked").await;
    assert!(message.contains("\"ERROR\"") && message.contains("\"code\":401"), "{message}");
    rig.measured(is_current, |current| current == 1.0).await;
    assert_eq!(rig.ask_with_token("GET", PODS, &[]).await.status, 401);
    let authorization = format!("Bearer {other}");
    let headers = [("Authorization", authorization.as_str())];
    let reply = ask(rig.gateway(), &rig.server_ca(), None, "GET", PODS, &headers).await.unwrap();
    assert_eq!(reply.status, 404, "who is new in the file comes in: {}", reply.body);
    ben.go_on(&site).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_exchanges_end_with_their_callers_certificate() {
    let site = ReauthorizationSite::start().await;
    let end = SystemTime::now() + Duration::from_secs(15);
    let short = site.edge.rig.caller_until("ann", &[GROUP], end);
    let (ann, ben) = (site.everything(&short).await, site.everything(&site.ben).await);

    ann.are_ended("CredentialExpired", "401").await;

    assert!(SystemTime::now() >= end, "not before its time");
    ben.go_on(&site).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_session_outlives_the_maximum_age() {
    let mut site = ReauthorizationSite::start().await;
    site.edge.rig.kill_server();
    site.edge
        .rig
        .write_config(|config| config.replacen("gateway:\n", "gateway:\n  maxSessionAgeSeconds: 6\n", 1));
    site.edge.rig.start_server().await;
    site.edge.rig.connected(CLUSTER).await;

    let ann = site.everything(&site.ann).await;

    ann.are_ended("SessionTooOld", "401").await;
    let mut again = caller(&site, &site.ann).await;
    again.write(request(WATCHED, "")).await;
    assert!(again.read_head().await.starts_with("HTTP/1.1 200 "), "its caller may begin again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_requests_and_watches_end_with_a_revocation() {
    let mut site = ReauthorizationSite::start_with("parking: { limitSeconds: 60 }").await;
    let mut watch = site.watch(&site.ann).await;
    site.edge.agent.process.kill();
    site.edge.rig.logged("server.log", 0, "Suspect").await;
    let mut waits = caller(&site, &site.ann).await;
    waits.write(request(PODS, "")).await;
    site.edge.rig.measured("tombolo_server_requests_parked", |parked| parked >= 1.0).await;

    site.at(&["user", "revoke", "--name", "ann"]).await;

    watch.read_until("CredentialRevoked").await;
    assert!(waits.read_head().await.starts_with("HTTP/1.1 401 "));
}

/// An edge with two callers: ann of the group that may everything, and ben of another that may, too.
struct ReauthorizationSite {
    edge: FakeEdge,
    store: Store,
    ann: Issued,
    ben: Issued,
}

/// One of everything that runs long.
struct Running {
    watch: Http1Caller,
    shell: Http1Caller,
    download: Http1Caller,
}

impl ReauthorizationSite {
    async fn start() -> Self {
        Self::start_with("").await
    }

    /// The same with further keys in the server's configuration.
    async fn start_with(more: &str) -> Self {
        let edge = FakeEdge::start_server_with(more).await;
        let store = Store::new();
        edge.fake.on("/api/v1/namespaces/n/pods/p/exec", Behaviour::upgrade());
        edge.fake
            .on("/api/v1/namespaces/n/pods/p/log", Behaviour::Endless(Bytes::from_static(&[b'l'; 1024])));
        edge.fake.on("/api/v1/namespaces/n/configmaps", Behaviour::Store(store.clone()));
        let rule = |name, group| allow_all(name, ("client-certificate", group), &["*"]);
        // By which the rig itself looks at the clusters.
        let ours = allow_all("tokens", ("token", "token:tombolo:admins"), &["*"]);
        edge.rig.put_policy(&[rule("admins", GROUP), rule("others", "others"), ours]).await;
        let (ann, ben) = (edge.rig.caller("ann", &[GROUP]).await, edge.rig.caller("ben", &["others"]).await);
        Self { edge, store, ann, ben }
    }

    async fn everything(&self, whose: &Issued) -> Running {
        let watch = self.watch(whose).await;
        let mut shell = caller(self, whose).await;
        let exec = format!("{PODS}/p/exec?command=sh&stdin=true");
        shell.write(request(&exec, "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n")).await;
        assert!(shell.read_head().await.starts_with("HTTP/1.1 101 "));
        shell.write("ping").await;
        assert_eq!(shell.read_exactly(4).await, b"ping");
        let mut download = caller(self, whose).await;
        download.write(request(&format!("{PODS}/p/log?follow=true"), "")).await;
        assert!(download.read_head().await.starts_with("HTTP/1.1 200 "));
        download.read_exactly(4096).await;
        Running { watch, shell, download }
    }

    /// A watch that has shown an event.
    async fn watch(&self, whose: &Issued) -> Http1Caller {
        self.watch_with(Some(whose), "").await
    }

    /// The same with further lines in the request's head.
    async fn watch_with(&self, whose: Option<&Issued>, lines: &str) -> Http1Caller {
        let mut watch = Http1Caller::dial_name(&self.edge.rig, GATEWAY, whose).await;
        let version = self.store.put("shown", "1");
        watch.write(request(&format!("{WATCHED}?watch=1&resourceVersion={version}"), lines)).await;
        assert!(watch.read_head().await.starts_with("HTTP/1.1 200 "));
        self.store.put("shown", "seen");
        watch.read_until("seen").await;
        watch
    }

    async fn at(&self, words: &[&str]) -> String {
        self.edge.rig.tombolo(&[words, &SOCKET].concat()).await
    }

    /// Waits until the audit log has as many ends for this reason.
    async fn recorded(&self, reason: &str, count: usize) {
        let ended = |log: &AuditLog| {
            log.completions().into_iter().filter(|line| note(line, "end-reason") == reason).count()
        };
        AuditLog::found(&self.edge.rig, |log| (ended(log) >= count).then_some(())).await;
    }
}

impl Running {
    /// None of them ends cleanly, and the watch gets the reason.
    async fn are_ended(mut self, cause: &str, code: &str) {
        let message = self.watch.read_until(cause).await;
        assert!(message.contains("\"ERROR\"") && message.contains(&format!("\"code\":{code}")), "{message}");
        let (rest, end) = self.watch.read_to_end().await;
        assert!(end.is_err() && !rest.ends_with(b"0\r\n\r\n"), "a watch breaks off");
        let (_, end) = self.shell.read_to_end().await;
        end.expect_err("a shell is cut off");
        let (rest, end) = self.download.read_to_end().await;
        assert!(end.is_err() && !rest.ends_with(b"0\r\n\r\n"), "a body breaks off");
    }

    async fn go_on(mut self, site: &ReauthorizationSite) {
        self.shell.write("pong").await;
        assert_eq!(self.shell.read_exactly(4).await, b"pong");
        self.download.read_exactly(1024 * 1024).await;
        site.store.put("shown", "later");
        self.watch.read_until("later").await;
    }
}

async fn caller(site: &ReauthorizationSite, identity: &Issued) -> Http1Caller {
    Http1Caller::dial_name(&site.edge.rig, GATEWAY, Some(identity)).await
}

fn request(target: &str, lines: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: {GATEWAY}\r\n{lines}\r\n")
}
