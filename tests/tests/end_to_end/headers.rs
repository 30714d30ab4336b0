//! The caller's identity is the one that the gateway has authenticated, whatever the request headers claim.

use tests::caller::{GATEWAY, Http1Caller, Http2Caller, SOON, head, send_all};
use tests::fake_api::{Answer, Behaviour, HttpVersion, RecordedRequest};
use tests::fake_edge::{FakeEdge, add_cluster};
use tests::pki::Authority;
use tests::rig::{AGENT_TOKEN, GROUP, Reply, TOKEN, ask};

const PATH: &str = "/clusters/edge-a/api/v1/namespaces";

/// Headers that no caller may set, in their usual spelling.
const PROTECTED: [&str; 14] = [
    "Impersonate-User",
    "Impersonate-Group",
    "Impersonate-Uid",
    "Impersonate-Extra-Scopes",
    "Authorization",
    "Proxy-Authorization",
    "Cookie",
    "X-Remote-User",
    "X-Remote-Group",
    "X-Remote-Extra-Scopes",
    "X-Remote-Uid",
    "X-Forwarded-For",
    "Via",
    "X-Tombolo-User",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impersonation_is_refused_in_every_spelling_and_reaches_nobody() {
    let edge = setup(HttpVersion::Http1).await;
    let mut callers = Http2Caller::dial(&edge.rig).await;
    let names = [
        "Impersonate-User",
        "Impersonate-Group",
        "Impersonate-Uid",
        "Impersonate-Extra-Scopes",
        "Impersonate-X",
    ];
    for name in names {
        let spellings = [name.to_owned(), name.to_lowercase(), name.to_uppercase(), name.replace('-', "_")];
        let mixed = name.to_lowercase().replacen('-', "_", 1);
        for spelling in spellings.into_iter().chain([mixed]) {
            for value in ["system:admin", "", "a, b"] {
                let reply = edge.rig.ask_with_token("GET", PATH, &[(&spelling, value)]).await;
                is_a_status(&reply, 403, &spelling);
                let twice =
                    edge.rig.ask_with_token("GET", PATH, &[(&spelling, value), (&spelling, "x")]).await;
                is_a_status(&twice, 403, &spelling);
                let lower = spelling.to_lowercase();
                let answer = callers.ask("GET", PATH, &[(&lower, value)]).await.unwrap();
                assert_eq!(answer.status(), 403, "{lower} over HTTP/2");
            }
        }
    }
    assert!(edge.fake.requests().is_empty(), "{:?}", edge.fake.requests());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_never_switches_authentication_off() {
    let edge = setup(HttpVersion::Http1).await;
    for name in PROTECTED {
        let reply =
            ask(edge.rig.gateway(), &edge.rig.server_ca(), None, "GET", PATH, &[(name, "system:admin")])
                .await;
        is_a_status(&reply.unwrap(), 401, name);
    }
    assert!(edge.fake.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_server_sees_the_agents_credential_and_the_callers_name_alone() {
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let edge = setup(version).await;
        let strange = [
            ("Proxy-Authorization", "Basic c2VjcmV0"),
            ("Cookie", "session=secret"),
            ("X-Remote-User", "secret"),
            ("X-Remote-Group", "secret"),
            ("x-remote-extra-scopes", "secret"),
            ("X-REMOTE-UID", "secret"),
            ("X-Forwarded-For", "10.9.8.7, secret"),
            ("X-Forwarded-Client-Cert", "secret"),
            ("Forwarded", "for=secret"),
            ("X-Real-IP", "secret"),
            ("Via", "1.1 secret"),
            ("X-Tombolo-User", "secret"),
            ("Keep-Alive", "secret"),
            ("TE", "trailers"),
            ("Proxy-Connection", "keep-alive"),
            ("Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.secret, v4.channel.k8s.io"),
        ];
        let kept = [
            ("Accept", "application/json"),
            ("User-Agent", "kubectl/v1.36"),
            ("X-Custom", "kept"),
            ("x-custom", "twice"),
        ];
        let alice = edge.rig.caller("alice", &[GROUP, "team-a"]).await;

        let by_token = edge.rig.ask_with_token("GET", PATH, &[&strange[..], &kept[..]].concat()).await;
        assert_eq!(by_token.status, 200, "{by_token:?}");
        let headers = [&strange[..], &kept[..]].concat();
        let by_certificate =
            ask(edge.rig.gateway(), &edge.rig.server_ca(), Some(&alice), "GET", PATH, &headers)
                .await
                .unwrap();
        assert_eq!(by_certificate.status, 200, "{by_certificate:?}");
        let mut http2 = Http2Caller::dial_name(&edge.rig, GATEWAY, Some(&alice)).await;
        let no_h1: Vec<(String, &str)> = headers
            .iter()
            .filter(|(name, _)| !["Keep-Alive", "Proxy-Connection"].contains(name))
            .map(|(name, value)| (name.to_lowercase(), *value))
            .collect();
        let lower: Vec<(&str, &str)> = no_h1.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        assert_eq!(http2.ask("GET", PATH, &lower).await.unwrap().status(), 200);

        let requests = edge.fake.requests();
        assert_eq!(requests.len(), 3);
        let token_groups = format!("token:{GROUP}");
        speaks_for(&requests[0], "token:tess", &[&token_groups]);
        speaks_for(&requests[1], "alice", &[GROUP, "team-a"]);
        speaks_for(&requests[2], "alice", &[GROUP, "team-a"]);
        for request in &requests {
            let all = format!("{:?}", request.headers);
            assert!(!all.contains("secret") && !all.contains(TOKEN) && !all.contains("10.9.8.7"), "{all}");
            assert_eq!(request.header("x-custom"), ["kept", "twice"]);
            assert_eq!(request.header("user-agent"), ["kubectl/v1.36"]);
            assert_eq!(request.header("sec-websocket-protocol"), ["v4.channel.k8s.io"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_header_takes_no_header_of_ours_away() {
    let edge = setup(HttpVersion::Http1).await;
    let mut served = 0;
    for carrier in ["Connection", "Proxy-Connection", "connection", "Keep-Alive", "TE", "Trailer"] {
        for name in PROTECTED.into_iter().chain(["Host", "Audit-Id", "Content-Length"]) {
            let lower = name.to_lowercase();
            let quoted = format!("\"{name}\"");
            let list = format!("close, {name}\t , keep-alive");
            let tight = format!("close,{lower}");
            let upper = name.to_uppercase();
            for value in [name, &lower, &upper, &quoted, &list, &tight] {
                let reply =
                    edge.rig.ask_with_token("GET", PATH, &[(carrier, value), ("Connection", "close")]).await;
                assert!([200, 400].contains(&reply.status), "{carrier}: {value}: {reply:?}");
                if carrier.to_lowercase().ends_with("connection") {
                    is_a_status(&reply, 400, &format!("{carrier}: {value}"));
                }
                served += usize::from(reply.status == 200);
            }
            // On a line of its own.
            let lines = [(carrier, "close"), (carrier, name), ("Connection", "close")];
            served += usize::from(edge.rig.ask_with_token("GET", PATH, &lines).await.status == 200);
        }
    }
    let requests = edge.fake.requests();
    assert_eq!(requests.len(), served);
    let groups = format!("token:{GROUP}");
    requests.iter().for_each(|request| speaks_for(request, "token:tess", &[&groups]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hop_by_hop_headers_end_at_their_hop_in_both_directions() {
    let edge = setup(HttpVersion::Http1).await;
    let of_one_hop = [
        ("X-Hop", "1"),
        ("x-hop", "2"),
        ("X-Other-Hop", "3"),
        ("Keep-Alive", "timeout=5"),
        ("TE", "trailers"),
        ("Proxy-Authenticate", "Basic"),
        ("Proxy-Authentication-Info", "x"),
        ("X-Stays", "here"),
    ];
    for carrier in ["Connection", "Proxy-Connection"] {
        for named in [
            "X-Hop, x-other-hop",
            "keep-alive,X-HOP ,\tx-other-HOP",
            "\"x-hop\", x-other-hop",
            ",,x-hop,X-Other-Hop,",
        ] {
            let lines = [&[("Connection", "close"), (carrier, named)], &of_one_hop[..]].concat();
            let reply = edge.rig.ask_with_token("GET", PATH, &lines).await;
            assert_eq!(reply.status, 200, "{carrier}: {named}: {reply:?}");

            let request = edge.fake.requests().pop().unwrap();
            for (name, _) in &of_one_hop[..of_one_hop.len() - 1] {
                assert!(
                    request.header(name).is_empty(),
                    "{carrier}: {named}: {name} of {:?}",
                    request.headers
                );
            }
            assert!(request.header("proxy-connection").is_empty());
            assert_eq!(request.header("x-stays"), ["here"]);
        }
    }

    let mut headers = vec![("Connection".to_owned(), "X-Hop, keep-alive".to_owned())];
    headers.extend(of_one_hop.map(|(name, value)| (name.to_owned(), value.to_owned())));
    headers
        .extend([("Set-Cookie", "a=b"), ("Alt-Svc", "h3=\":1\"")].map(|(n, v)| (n.to_owned(), v.to_owned())));
    edge.fake.otherwise(Behaviour::Answer(Answer { status: 200, headers, body: "{}".into() }));
    let answered = edge.rig.ask_with_token("GET", PATH, &[]).await.head.to_lowercase();
    for name in ["x-hop", "keep-alive", "proxy-authenticate", "te", "set-cookie", "alt-svc"] {
        assert!(!answered.contains(&format!("\n{name}:")), "{name}: {answered}");
    }
    assert!(answered.contains("\nx-stays: here") && answered.contains("\nx-other-hop: 3"), "{answered}");
}

/// The cases are the table of `docs/workloads.md`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_on_workloads_says_what_passes() {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    let pairs = |headers: &[(&str, &str)]| -> Vec<(String, String)> {
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let (passes, stays) = (
        [("x-app", "1"), ("if-match", "a"), ("accept-language", "de")],
        [
            ("cookie", "session=1"),
            ("x-forwarded-for", "203.0.113.1"),
            ("x-forwarded-proto", "https"),
            ("forwarded", "for=203.0.113.1"),
            ("x-real-ip", "203.0.113.1"),
            ("via", "1.1 proxy"),
            ("x-remote-user", "root"),
            ("x-original-url", "/"),
            ("x-rewrite-url", "/"),
            ("x-tombolo-x", "1"),
        ],
    );
    let (answer_passes, answer_stays) = (
        [("x-app", "2"), ("etag", "\"a\""), ("cache-control", "no-store"), ("link", "</x>; rel=next")],
        [("set-cookie", "session=2"), ("alt-svc", "h3=\":1\""), ("strict-transport-security", "max-age=1")],
    );
    let headers = [pairs(&answer_passes), pairs(&answer_stays)].concat();
    edge.fake.otherwise(Behaviour::Answer(Answer { status: 200, headers, body: "{}".into() }));
    let own = "/api/v1/namespaces/n/services/s:80/proxy//a%2Fb/../c?d=//";

    let sent: Vec<(&str, &str)> = passes.iter().chain(&stays).copied().collect();
    let reply = edge.rig.ask_with_token("GET", &format!("/clusters/edge-a{own}"), &sent).await;

    let request = edge.fake.requests().pop().unwrap();
    assert_eq!((reply.status, request.target.as_str()), (200, own));
    for (name, value) in &passes {
        assert_eq!(request.header(name), [*value], "{name}");
    }
    for (name, _) in stays {
        assert!(request.header(name).is_empty(), "{name}: {:?}", request.headers);
    }
    assert_eq!(request.header("host"), [edge.fake.address().to_string()]);
    assert_eq!(request.header("authorization"), [format!("Bearer {AGENT_TOKEN}")]);
    let answered = reply.head.to_lowercase();
    for (name, value) in answer_passes {
        assert!(answered.contains(&format!("\n{name}: {value}\r\n")), "{name}: {answered}");
    }
    for (name, _) in answer_stays {
        assert!(!answered.contains(&format!("\n{name}:")), "{name}: {answered}");
    }
    assert!(!answered.contains("\nvia:"), "{answered}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_smuggle_nothing() {
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let edge = setup(version).await;
        let mut http1 = Http1Caller::dial(&edge.rig).await;
        let lines = "Transfer-Encoding: chunked\r\nTrailer: Impersonate-User, Authorization\r\n";
        http1.write(head("POST", PATH, lines)).await;
        http1.write("2\r\n{}\r\n0\r\nImpersonate-User: secret\r\nAuthorization: Bearer secret\r\n\r\n").await;
        let answered = http1.read_head().await;

        let mut http2 = Http2Caller::dial(&edge.rig).await;
        let (answer, mut sending) = http2.send("POST", PATH, &[("trailer", "impersonate-user")], false);
        send_all(&mut sending, "{}".into(), false).await.unwrap();
        let mut trailers = http::HeaderMap::new();
        trailers.insert("impersonate-user", "secret".parse().unwrap());
        trailers.insert("authorization", "Bearer secret".parse().unwrap());
        sending.send_trailers(trailers).unwrap();
        let status = tokio::time::timeout(SOON, answer).await.unwrap().unwrap().status();

        let served = usize::from(answered.starts_with("HTTP/1.1 200")) + usize::from(status == 200);
        assert_eq!(edge.fake.requests().len(), served, "{answered} {status}");
        for connection in edge.fake.connections() {
            assert!(!String::from_utf8_lossy(&connection.bytes).contains("secret"));
        }
        let groups = format!("token:{GROUP}");
        edge.fake.requests().iter().for_each(|request| speaks_for(request, "token:tess", &[&groups]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_one_credential_is_accepted_and_authorized() {
    let edge = setup(HttpVersion::Http1).await;
    let (other, _agent) = add_cluster(&edge.rig, "edge-b", HttpVersion::Http1).await;
    let (gateway, ca) = (edge.rig.gateway(), edge.rig.server_ca());
    let alice = edge.rig.caller("alice", &[GROUP]).await;
    let mallory = edge.rig.caller("mallory", &["nobodies"]).await;
    let bearer = format!("Bearer {TOKEN}");

    let both = ask(gateway, &ca, Some(&alice), "GET", PATH, &[("Authorization", &bearer)]).await.unwrap();
    is_a_status(&both, 400, "a certificate and a token");
    let twice = [("Authorization", bearer.as_str()), ("Authorization", bearer.as_str())];
    is_a_status(&ask(gateway, &ca, None, "GET", PATH, &twice).await.unwrap(), 400, "two tokens");
    is_a_status(&ask(gateway, &ca, None, "GET", PATH, &[]).await.unwrap(), 401, "nothing");
    for wrong in
        ["Bearer unknown", "Bearer", "Bearer ", "Basic dGVzczp0b2tlbg==", "Negotiate abc", "", "token"]
    {
        let reply = ask(gateway, &ca, None, "GET", PATH, &[("Authorization", wrong)]).await.unwrap();
        is_a_status(&reply, 401, wrong);
    }
    let in_query = format!("{PATH}?access_token={TOKEN}");
    is_a_status(&ask(gateway, &ca, None, "GET", &in_query, &[]).await.unwrap(), 401, "a token in the query");
    for path in [PATH, "/clusters/edge-b/api", "/clusters/no-such-cluster/api"] {
        is_a_status(&ask(gateway, &ca, Some(&mallory), "GET", path, &[]).await.unwrap(), 403, path);
    }
    // One that another authority signed does not even shake hands.
    let foreign = Authority::new("foreign").issue_user("alice", &[GROUP]);
    assert!(ask(gateway, &ca, Some(&foreign), "GET", PATH, &[]).await.is_err());

    assert!(edge.fake.requests().is_empty() && other.requests().is_empty(), "nothing of them arrives");
}

async fn setup(version: HttpVersion) -> FakeEdge {
    let edge = FakeEdge::start(version).await;
    edge.fake.otherwise(Behaviour::json("{}"));
    edge
}

fn is_a_status(reply: &Reply, status: u16, what: &str) {
    assert_eq!(reply.status, status, "{what}: {reply:?}");
    assert!(reply.body.contains("\"kind\":\"Status\""), "{what}: {reply:?}");
}

/// Checks that a request has the agent's credential and this identity, each exactly once and nothing else of
/// the kind.
fn speaks_for(request: &RecordedRequest, user: &str, groups: &[&str]) {
    assert_eq!(request.header("authorization"), [format!("Bearer {AGENT_TOKEN}")]);
    assert_eq!(request.header("impersonate-user"), [user]);
    assert_eq!(request.header("impersonate-group"), groups);
    let is_claim = |name: &str| {
        let name = name.to_lowercase().replace('_', "-");
        name.starts_with("impersonate-")
            || name.starts_with("x-remote-")
            || name == "cookie"
            || name.starts_with("proxy-")
    };
    let claims = request.headers.iter().filter(|(name, _)| is_claim(name)).count();
    assert_eq!(claims, 1 + groups.len(), "{:?}", request.headers);
}
