//! Input of unauthenticated clients in logs, tables and the audit log: one line for each event, and no
//! control sequences for a terminal.

use std::fs;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tests::audit_log;
use tests::caller::{GATEWAY, Http1Caller};
use tests::fake_api::{Answer, Behaviour, HttpVersion};
use tests::fake_edge::{CLUSTER, FakeEdge, add_cluster};
use tests::raw_http2::{RawHead, RawHttp2};
use tests::rig::{GROUP, TOKEN, ask};

const PATH: &str = "/clusters/edge-a/api/v1/namespaces";
const SOCKET: [&str; 2] = ["--socket", "admin/admin.sock"];

/// Control sequences of terminals, line breaks, and changes of the text's direction.
const EVIL: [&str; 9] = [
    "\u{1b}[31m",
    "\u{1b}]0;owned\u{7}",
    "\u{9b}31m",
    "a\r\nb",
    "a\nlevel=ERROR forged",
    "\u{7f}",
    "\u{8}\u{8}",
    "\u{85}next",
    "\u{2028}next",
];

/// The input comes from unauthenticated clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_input_puts_control_characters_into_logs_tables_or_the_audit_log() {
    for format in ["text", "json"] {
        let mut edge = FakeEdge::start(HttpVersion::Http1).await;
        edge.rig.kill_server();
        fs::remove_file(edge.rig.path().join("server.log")).unwrap();
        edge.rig.take_log_format(format);
        edge.rig.start_server().await;
        edge.rig.connected(CLUSTER).await;
        let (other, agent) = add_cluster(&edge.rig, "edge-b", HttpVersion::Http1).await;

        edge.fake.otherwise(Behaviour::json("{}"));
        for evil in EVIL {
            requests(&edge, evil).await;
            certificates(&edge, evil).await;
            answers(&edge, evil).await;
            shown(&edge, evil).await;
        }
        drop((other, agent));

        for name in ["server.log", "edge-b.log"] {
            let log = fs::read_to_string(edge.rig.path().join(name)).unwrap();
            is_clean(name, &log);
            if format == "json" {
                for line in log.lines() {
                    let line: Value =
                        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
                    assert!(line["level"].is_string() && line["timestamp"].is_string(), "{line}");
                }
            } else {
                // Every line begins with its time, so none was begun by a client's input.
                assert!(log.lines().all(|line| line.starts_with("20")), "{log}");
            }
        }
        let files =
            fs::read_dir(audit_log::directory(&edge.rig)).unwrap().flatten().map(|entry| entry.path());
        for file in files.filter(|file| file.extension().is_some_and(|end| end == "log")) {
            is_clean("the audit log", &fs::read_to_string(file).unwrap());
        }
        audit_log::verify(&edge.rig).await;
    }
}

/// In paths, queries, hosts and headers, over both versions.
async fn requests(edge: &FakeEdge, evil: &str) {
    let encoded: String = evil.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let auth = format!("Authorization: Bearer {TOKEN}\r\n");
    for lines in [
        format!("GET {PATH}/{evil} HTTP/1.1\r\nHost: {GATEWAY}\r\n{auth}\r\n"),
        format!("GET {PATH}/{encoded}?{encoded}={encoded} HTTP/1.1\r\nHost: {GATEWAY}\r\n{auth}\r\n"),
        format!("GET {PATH}?x={evil} HTTP/1.1\r\nHost: {GATEWAY}\r\n{auth}\r\n"),
        format!("GET /clusters/{encoded}/version HTTP/1.1\r\nHost: {GATEWAY}\r\n{auth}\r\n"),
        format!("GET {PATH} HTTP/1.1\r\nHost: {evil}\r\n{auth}\r\n"),
        format!("GET {PATH} HTTP/1.1\r\nHost: {GATEWAY}\r\n{auth}User-Agent: {evil}\r\nX-{evil}: a\r\n\r\n"),
        format!("GET {PATH} HTTP/1.1\r\nHost: {GATEWAY}\r\n{auth}User-Agent: {evil}\r\n\r\n"),
        format!("GET {PATH} HTTP/1.1\r\nHost: {GATEWAY}\r\n{auth}Audit-ID: {evil}\r\nOrigin: {evil}\r\n\r\n"),
        format!(
            "GET {PATH} HTTP/1.1\r\nHost: {GATEWAY}\r\nAuthorization: Bearer {evil}\r\nUser-Agent: {evil}\r\n\r\n"
        ),
        format!("GET {PATH} HTTP/1.1\r\nHost: {GATEWAY}\r\n{auth}Impersonate-User: {evil}\r\n\r\n"),
        format!(
            "GET {PATH} HTTP/1.1\r\nHost: {GATEWAY}\r\n{auth}Connection: Upgrade\r\nUpgrade: {evil}\r\n\r\n"
        ),
        format!("{evil} {PATH} HTTP/1.1\r\nHost: {GATEWAY}\r\n{auth}\r\n"),
    ] {
        let mut caller = Http1Caller::dial(&edge.rig).await;
        let _ = caller.try_write(lines).await; // Who refuses it may close before it has it all.
        let _ = caller.try_read_head_or_end().await;
    }
    for name in [":path", ":authority", ":method", "user-agent", "x-evil", "origin", "authorization"] {
        let head: RawHead = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", GATEWAY),
            (":path", PATH),
            ("authorization", &format!("Bearer {TOKEN}")),
        ]
        .iter()
        .filter(|(known, _)| *known != name)
        .chain([&(name, evil)])
        .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
        .collect();
        let _ = RawHttp2::dial(&edge.rig, GATEWAY, None).await.ask(&[head]).await; // Any end is an answer.
    }
}

/// In the names of users and groups.
async fn certificates(edge: &FakeEdge, evil: &str) {
    let end = SystemTime::now() + Duration::from_secs(3600);
    for (user, group) in [(evil, GROUP), ("ann", evil)] {
        let identity = edge.rig.caller_until(user, &[group], end);
        // Refused at the handshake or behind it.
        let _ = ask(edge.rig.gateway(), &edge.rig.server_ca(), Some(&identity), "GET", PATH, &[]).await;
    }
}

/// Sends the text in the answers of an API server.
async fn answers(edge: &FakeEdge, evil: &str) {
    let headers = vec![("Location".to_owned(), format!("https://elsewhere.test/{evil}"))];
    for status in [200, 302, 503] {
        let body = format!("{{\"kind\":\"Status\",\"message\":\"{evil}\"}}").into();
        edge.fake.on("/evil", Behaviour::Answer(Answer { status, headers: headers.clone(), body }));
        edge.rig.ask_with_token("GET", "/clusters/edge-a/evil", &[]).await;
    }
}

/// Shows the texts in the commands of an administrator.
async fn shown(edge: &FakeEdge, evil: &str) {
    // Refused as a name, or shown without harm.
    let revoked = [&["user", "revoke", "--name", evil], SOCKET.as_slice()].concat();
    is_clean("user revoke", &edge.rig.tombolo_writes(&revoked).await);
    // What people type themselves is refused in words of the library that reads it.
    let label = format!("site={evil}");
    for words in [&["cluster", "label", CLUSTER, &label][..], &["cluster", "create", evil]] {
        edge.rig.tombolo_writes(&[words, &SOCKET].concat()).await;
    }
    for words in [
        &["user", "list"][..],
        &["clusters"],
        &["clusters", "-o", "wide"],
        &["clusters", "-o", "json"],
        &["cluster", "list"],
    ] {
        is_clean(&words.join(" "), &edge.rig.tombolo_writes(&[words, &SOCKET].concat()).await);
    }
}

/// Asserts that there are no control characters for a terminal.
fn is_clean(what: &str, text: &str) {
    let obeyed = |c: &char| (c.is_control() && *c != '\n') || matches!(c, '\u{2028}' | '\u{2029}');
    let found: Vec<&str> = text.lines().filter(|line| line.chars().any(|c| obeyed(&c))).collect();
    assert!(found.is_empty(), "{what:?}: {found:?}");
}
