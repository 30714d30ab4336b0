//! Secrets in requests and answers, however a request ends: none is written to a log. The audit log keeps
//! paths and the names of a query's parameters, which are no secrets (docs/limits.md).

mod claims;
mod configuration;
mod environment;
mod planted;

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tests::caller::{GATEWAY, Http1Caller, Http2Caller, head};
use tests::fake_api::{Answer, Behaviour, Cut, Declared, HttpVersion};
use tests::fake_edge::FakeEdge;
use tests::rig::policy::allow_all;
use tests::rig::{GROUP, Reply, TOKEN, ask};

const NAMESPACE: &str = "/clusters/edge-a/api/v1/namespaces/n";

/// All there is, but for what is noticed of the folder with the policy, in which the log lies, too: each line
/// would be one more.
const LEVEL: &str = "trace,notify=info";

/// Each place has a secret of its own, which identifies the place of a leak.
const PLACES: [&str; 17] = [
    "upload",
    "answer",
    "query",
    "header",
    "answer-header",
    "wrong-token",
    "jwt",
    "basic",
    "cookie",
    "command",
    "typed",
    "websocket-token",
    "status",
    "event",
    "proxy-authorization",
    "fragment",
    "trailer",
];

/// This holds however the request ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_of_a_request_or_an_answer_is_written_to_logs_or_audit() {
    let mut edge = FakeEdge::start_logging(LEVEL, HttpVersion::Http1).await;
    let mut refusals = Vec::new();
    for (name, behaviour) in behaviours() {
        edge.fake.otherwise(behaviour);
        for (method, path) in [
            ("GET", "/configmaps/c"),
            ("POST", "/configmaps"),
            ("DELETE", "/secrets/s"),
            ("PATCH", "/nowhere"),
        ] {
            eprintln!("{name}: {method} {path}");
            refusals.extend(asked(&edge, method, path).await);
        }
    }
    edge.fake.otherwise(Behaviour::json("{}"));
    refusals.extend(unauthenticated_requests(&edge).await);
    typed(&edge).await;
    // Where a policy forbids it, a cluster is away, and an agent is gone.
    edge.rig.put_policy(&[allow_all("others", ("client-certificate", "others"), &["*"])]).await;
    refusals.extend(asked(&edge, "POST", "/configmaps").await);
    let subject = format!("token:{GROUP}");
    edge.rig.put_policy(&[allow_all("all", ("token", &subject), &["*"])]).await;
    edge.fake.refuse().await;
    edge.fake.drop_connections();
    refusals.extend(asked(&edge, "POST", "/configmaps").await);
    edge.agent.process.kill();
    edge.rig.logged("server.log", 0, "Suspect").await;
    let impatient = [("Tombolo-Park-Limit", "0"), ("X-Canary", &canary("header"))];
    let path = format!("{NAMESPACE}/configmaps?x={}", canary("query"));
    refusals.push(edge.rig.ask_with_token("GET", &path, &impatient).await.body);

    let metrics = edge.rig.metrics(edge.rig.probes()).await;
    has_none("the server's metrics", &metrics);
    refusals.iter().for_each(|refusal| has_none("a refusal", refusal));
    assert!(refusals.len() > 20, "{} refusals of the gateway's own", refusals.len());
    let logs = written(edge.rig.path());
    assert!(logs.iter().map(|(_, text)| text.len()).sum::<usize>() > 100_000, "nothing was logged at TRACE");
    for (path, text) in logs {
        has_none(&path, &text);
    }
}

fn canary(place: &str) -> String {
    assert!(PLACES.contains(&place), "{place} is looked for");
    format!("canary-{place}-5ecre7")
}

fn has_none(what: &str, text: &str) {
    for place in PLACES {
        let found = text.lines().find(|line| line.contains(&canary(place)));
        assert!(found.is_none(), "{what} has the secret of {place}: {found:?}");
    }
}

/// The behaviours of an API server, with secrets in its answers.
fn behaviours() -> Vec<(&'static str, Behaviour)> {
    let body = format!("{{\"data\":\"{}\"}}", canary("answer"));
    let headers = vec![("X-Canary".to_owned(), canary("answer-header"))];
    let status = format!("{{\"kind\":\"Status\",\"messages\":\"{}\"}}", canary("status"));
    let answer = |status: u16, body: &str| {
        Behaviour::Answer(Answer { status, headers: headers.clone(), body: body.to_owned().into() })
    };
    let away = |to: String| {
        let headers = vec![("Location".to_owned(), to)];
        Behaviour::Answer(Answer { status: 307, headers, body: body.clone().into() })
    };
    vec![
        ("well", answer(200, &body)),
        ("forbidden", answer(403, &status)),
        ("failed", answer(500, &status)),
        ("sent elsewhere", away(format!("https://elsewhere.test/?x={}", canary("query")))),
        (
            "cut",
            Behaviour::Truncate {
                declared: Declared::ContentLength(1_000),
                sent: body.clone().into(),
                cut: Cut::Reset,
            },
        ),
        (
            "cut between chunks",
            Behaviour::Truncate { declared: Declared::Chunked, sent: body.clone().into(), cut: Cut::Close },
        ),
        ("no HTTP", Behaviour::raw(format!("{}\r\n\r\n", canary("answer")), Cut::Close)),
        (
            "a head too large",
            Behaviour::raw(
                format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", canary("answer-header").repeat(10_000)),
                Cut::Close,
            ),
        ),
        (
            "a length that is none",
            Behaviour::raw(
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", canary("answer-header")),
                Cut::Close,
            ),
        ),
        (
            "chunks that are none",
            Behaviour::raw(
                format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}\r\n", canary("answer")),
                Cut::Close,
            ),
        ),
        (
            "a 101 that nobody asked for",
            Behaviour::raw(
                format!("HTTP/1.1 101 Switching Protocols\r\nUpgrade: {}\r\n\r\n", canary("answer-header")),
                Cut::Close,
            ),
        ),
        ("hung up", Behaviour::raw("", Cut::Reset)),
    ]
}

/// Sends the request over both versions, with secrets in all its parts. Returns the gateway's own messages.
async fn asked(edge: &FakeEdge, method: &str, path: &str) -> Vec<String> {
    let path = format!("{NAMESPACE}{path}?{}={}&token={}", "name", canary("query"), canary("query"));
    let body = format!("{{\"data\":{{\"key\":\"{}\"}}}}", canary("upload"));
    let length = body.len().to_string();
    let canary = canary("header");
    let secret = [
        ("X-Canary", canary.as_str()),
        ("User-Agent", "tests"),
        ("Cookie", &format!("s={}", self::canary("cookie"))),
        ("Proxy-Authorization", &self::canary("proxy-authorization")),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let lines: String = secret.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let raw = format!(
        "{}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}",
        head(method, &path, &lines).trim_end_matches("\r\n").to_owned() + "\r\n"
    );
    let mut messages = Vec::new();
    if let Ok(reply) =
        tests::rig::ask_raw(edge.rig.gateway(), &edge.rig.server_ca(), None, raw.as_bytes()).await
    {
        messages.extend(own_message(&reply));
    }
    let mut caller = Http2Caller::dial(&edge.rig).await;
    let headers = [("x-canary", canary.as_str()), ("content-type", "application/json")];
    if let Ok(answer) = caller.ask(method, &path, &headers).await
        && answer.status().is_server_error()
    {
        messages.push(String::from_utf8_lossy(answer.body()).into_owned());
    }
    // Not what the API server itself has said.
    messages.retain(|text| text.contains("\"reason\":") && !text.contains(&self::canary("status")));
    messages
}

fn own_message(reply: &Reply) -> Option<String> {
    (reply.status >= 400).then(|| reply.body.clone())
}

/// Requests of clients without any right, or with malformed bytes.
async fn unauthenticated_requests(edge: &FakeEdge) -> Vec<String> {
    let path = format!("{NAMESPACE}/pods?x={}", canary("query"));
    let (gateway, ca) = (edge.rig.gateway(), edge.rig.server_ca());
    let jwt = format!("eyJhbGciOiJFUzI1NiJ9.{}.{}", canary("jwt"), canary("jwt"));
    let mut messages = Vec::new();
    for value in [
        format!("Bearer {}", canary("wrong-token")),
        format!("Bearer {jwt}"),
        format!("Basic {}", canary("basic")),
        format!("{} x", canary("wrong-token")),
        format!("Bearer {} {}", canary("wrong-token"), canary("wrong-token")),
    ] {
        let reply = ask(gateway, &ca, None, "GET", &path, &[("Authorization", &value)]).await.unwrap();
        assert!(reply.status == 401 || reply.status == 400, "{reply:?}");
        messages.push(reply.body);
    }
    let nobody = edge.rig.caller_until("nobody", &[], SystemTime::now() + Duration::from_secs(600));
    for (identity, headers) in [
        (
            None,
            vec![(
                "Sec-WebSocket-Protocol",
                format!("base64url.bearer.authorization.k8s.io.{}", canary("websocket-token")),
            )],
        ),
        (
            None,
            vec![
                ("Authorization", format!("Bearer {TOKEN}")),
                ("Impersonate-User", "bob".to_owned()),
                ("X-Canary", canary("header")),
            ],
        ),
        (None, vec![("Authorization", format!("Bearer {TOKEN}")), ("X_Remote_User", canary("header"))]),
        (
            None,
            vec![
                ("Authorization", format!("Bearer {TOKEN}")),
                ("Origin", format!("https://{}", canary("header"))),
            ],
        ),
        (Some(&nobody), vec![("X-Canary", canary("header"))]),
    ] {
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        messages.push(ask(gateway, &ca, identity, "GET", &path, &headers).await.unwrap().body);
    }
    for raw in unreadable(&path) {
        if let Ok(reply) = tests::rig::ask_raw(gateway, &ca, None, raw.as_bytes()).await {
            messages.extend(own_message(&reply));
        }
    }
    messages
}

/// Requests that cannot be parsed, or that never end.
fn unreadable(path: &str) -> [String; 5] {
    [
        format!(
            "GET {path}#{} HTTP/1.1\r\nHost: {GATEWAY}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n",
            canary("fragment")
        ),
        format!(
            "GET {path} HTTP/1.1\r\nHost: {GATEWAY}\r\nAuthorization: Bearer {TOKEN}\r\nX : {}\r\n\r\n",
            canary("header")
        ),
        format!("GET {path} HTTP/9.1\r\nHost: {GATEWAY}\r\nX: {}\r\n\r\n", canary("header")),
        format!(
            "POST {path} HTTP/1.1\r\nHost: {GATEWAY}\r\nAuthorization: Bearer {TOKEN}\r\nTransfer-Encoding: chunked\r\n\r\n{}\r\n",
            canary("upload")
        ),
        format!(
            "POST {path} HTTP/1.1\r\nHost: {GATEWAY}\r\nAuthorization: Bearer {TOKEN}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\nX: {}\r\n\r\n",
            canary("trailer")
        ),
    ]
}

/// Types into a shell that is named in the query.
async fn typed(edge: &FakeEdge) {
    edge.fake.otherwise(Behaviour::upgrade());
    let path = format!("{NAMESPACE}/pods/p/exec?command={}&stdin=true", canary("command"));
    for protocol in ["SPDY/3.1", "websocket"] {
        let mut caller = Http1Caller::dial(&edge.rig).await;
        caller.write(head("GET", &path, &format!("Connection: Upgrade\r\nUpgrade: {protocol}\r\n"))).await;
        let head = caller.read_head().await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let line = canary("typed");
        caller.write(&line).await;
        assert_eq!(caller.read_exactly(line.len()).await, line.as_bytes());
    }
}

/// Every log and the files of the audit log: their names and texts.
fn written(folder: &Path) -> Vec<(String, String)> {
    let of =
        |folder: &Path| fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()).collect::<Vec<_>>();
    let files = of(folder).into_iter().chain(of(&folder.join("server.state/audit")));
    files
        .filter(|path| path.extension().is_some_and(|end| end == "log"))
        .map(|path| {
            (path.display().to_string(), String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned())
        })
        .collect()
}
