//! A foreign page in a browser reaches no cluster, whatever credential the browser adds.

use tests::caller::{GATEWAY, Http1Caller, Http2Caller, head};
use tests::fake_api::{Answer, Behaviour, FakeApi, HttpVersion};
use tests::fake_edge::add_cluster;
use tests::rig::{Agent, GROUP, Reply, Rig, ask};

const PATH: &str = "/clusters/edge-a/api/v1/namespaces";

/// The origin of a page that the server's configuration lists.
const CONSOLE: &str = "https://console.example";

/// A browser sends it, whatever credential it adds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_pages_request_is_refused_before_authentication() {
    let (rig, fake, _agent) = setup().await;
    let alice = rig.caller("alice", &[GROUP]).await;
    for headers in [
        [("Origin", "https://evil.example")].as_slice(),
        &[("Origin", "null")],
        &[("Origin", CONSOLE), ("Origin", "https://evil.example")],
        &[("Origin", "https://evil.example"), ("Sec-Fetch-Site", "same-origin")],
        &[("Sec-Fetch-Site", "cross-site")],
        &[("Sec-Fetch-Site", "same-site")],
        &[("Service-Worker", "script"), ("Sec-Fetch-Site", "same-origin")],
        &[("Service-Worker", "script"), ("Origin", CONSOLE)],
    ] {
        for method in ["GET", "POST", "OPTIONS"] {
            let by_certificate =
                ask(rig.gateway(), &rig.server_ca(), Some(&alice), method, PATH, headers).await;
            refused(&by_certificate.unwrap(), headers);
            refused(&rig.ask_with_token(method, PATH, headers).await, headers);
        }
        // Who is not known learns the same.
        let unknown = ask(rig.gateway(), &rig.server_ca(), None, "GET", PATH, headers).await.unwrap();
        refused(&unknown, headers);
        let upgrade = [("Connection", "Upgrade"), ("Upgrade", "websocket")];
        let exec = "/clusters/edge-a/api/v1/namespaces/n/pods/p/exec?command=sh";
        let socket = [headers, &upgrade].concat();
        let socket = ask(rig.gateway(), &rig.server_ca(), Some(&alice), "GET", exec, &socket).await.unwrap();
        refused(&socket, headers);
    }
    assert!(fake.requests().is_empty(), "{:?}", fake.requests());
    let mut callers = Http2Caller::dial(&rig).await;
    let answer = callers.ask("GET", PATH, &[("origin", "https://evil.example")]).await.unwrap();
    assert_eq!(answer.status(), 403);
    assert!(fake.requests().is_empty(), "{:?}", fake.requests());
}

/// The headers of every answer tell a browser that it is data and not a page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listed_origin_a_person_and_a_program_are_served() {
    let (rig, fake, _agent) = setup().await;
    let headers = [
        ("Content-Type", "text/html"),
        ("Content-Security-Policy", "default-src *"),
        ("X-Content-Type-Options", "none"),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let page = Answer { status: 200, headers, body: "<script>alert(1)</script>".into() };
    fake.otherwise(Behaviour::Answer(page));
    for headers in [
        [].as_slice(),
        &[("Origin", CONSOLE), ("Sec-Fetch-Site", "cross-site")],
        &[("Sec-Fetch-Site", "none")],
        &[("Sec-Fetch-Site", "same-origin")],
    ] {
        let reply = rig.ask_with_token("GET", PATH, headers).await;
        assert_eq!(reply.status, 200, "{headers:?}: {}", reply.body);
        is_disarmed(&reply);
    }
    for reply in [
        rig.ask_with_token("GET", "/clusters", &[]).await,
        rig.ask_with_token("GET", "/clusters/edge-b/api", &[]).await,
        ask(rig.gateway(), &rig.server_ca(), None, "GET", PATH, &[]).await.unwrap(),
    ] {
        is_disarmed(&reply);
    }
    fake.otherwise(Behaviour::upgrade());
    let answered = socket_of(&rig, CONSOLE).await;
    assert!(answered.starts_with("HTTP/1.1 101 "), "{answered}");
}

/// As Python's websocket-client does, and with it Python's client of Kubernetes.
/// The same host with another port or scheme is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_may_name_the_gateway_itself_as_its_origin() {
    let (rig, fake, _agent) = setup().await;
    fake.otherwise(Behaviour::Answer(Answer::json(200, "{}")));
    let itself = format!("https://{GATEWAY}");
    let mut callers = Http2Caller::dial(&rig).await;
    let answer = callers.ask("GET", PATH, &[("origin", &itself)]).await.unwrap();
    assert_eq!(answer.status(), 200);
    fake.otherwise(Behaviour::upgrade());

    let answered = socket_of(&rig, &itself).await;

    assert!(answered.starts_with("HTTP/1.1 101 "), "{answered}");
    for other in [format!("{itself}:8443"), format!("http://{GATEWAY}"), format!("https://edge-a.{GATEWAY}")]
    {
        let answered = socket_of(&rig, &other).await;
        assert!(answered.starts_with("HTTP/1.1 403 "), "{other}: {answered}");
        let answer = callers.ask("GET", PATH, &[("origin", &other)]).await.unwrap();
        assert_eq!(answer.status(), 403, "{other}");
    }
}

/// The answer to a WebSocket request with this origin, of a page or a program.
async fn socket_of(rig: &Rig, origin: &str) -> String {
    let mut caller = Http1Caller::dial(rig).await;
    let exec = "/clusters/edge-a/api/v1/namespaces/n/pods/p/exec?command=sh";
    let lines = format!("Connection: Upgrade\r\nUpgrade: websocket\r\nOrigin: {origin}\r\n");
    caller.write(head("GET", exec, &lines)).await;
    caller.read_head().await
}

async fn setup() -> (Rig, FakeApi, Agent) {
    let rig = Rig::start_with(&format!("  browserOrigins: [\"{CONSOLE}\"]\n")).await;
    let (fake, agent) = add_cluster(&rig, "edge-a", HttpVersion::Http1).await;
    (rig, fake, agent)
}

fn refused(reply: &Reply, headers: &[(&str, &str)]) {
    assert_eq!(reply.status, 403, "{headers:?}: {}", reply.body);
    assert!(reply.body.contains("BrowserRefused"), "{headers:?}: {}", reply.body);
    is_disarmed(reply);
}

fn is_disarmed(reply: &Reply) {
    let head = reply.head.to_lowercase();
    let has = |line: &str| head.lines().filter(|found| *found == line).count();
    assert_eq!(has("x-content-type-options: nosniff"), 1, "{head}");
    assert_eq!(has("content-security-policy: sandbox"), 1, "{head}");
    assert!(!head.contains("x-content-type-options: none"), "{head}");
}
