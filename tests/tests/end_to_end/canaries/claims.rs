//! Secrets in the claims of accepted and refused tokens: only the claims that make up an identity are written
//! down.

use rcgen::KeyPair;
use serde_json::{Value, json};
use tests::caller::{GATEWAY, Http1Caller, Http2Caller};
use tests::enroll::{self, AttestationClaim, AttestationClient, EnrollmentListener, at, pod_agent, private};
use tests::fake_api::{Answer, Behaviour, HttpVersion};
use tests::fake_edge::add_cluster;
use tests::kube::EdgeCluster;
use tests::oidc::{EC_KEY, Issuer, KEYS, TokenSignature};
use tests::rig::policy::{allow_all, usual};
use tests::rig::{ApiServer, GROUP, Rig, ask};

use super::planted::Planted;
use super::{LEVEL, written};
use crate::oidc;

const PATH: &str = "/clusters/edge-a/api/v1/namespaces";

/// The audience of tokens of edge-a's pods.
const AUDIENCE: &str = "tombolo:tombolo:edge-a";

/// No other claim is written down, neither of a good token nor of a bad one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_claims_of_an_identity_are_written_down() {
    let (mut planted, issuer) = (Planted::default(), Issuer::start().await);
    let mac = json!({ "kty": "oct", "kid": "mac", "k": planted.canary("mac") });
    issuer.publish(&[issuer.ec_jwk(EC_KEY), issuer.rsa_jwk(), mac]);
    let config = oidc::config(&issuer, "    requiredClaims: { tenant: acme }\n");
    let rig = Rig::start_logging(LEVEL, &config).await;
    let (fake, _agent) = add_cluster(&rig, "edge-a", HttpVersion::Http1).await;
    fake.otherwise(Behaviour::json("{}"));
    let corp = allow_all("corp", ("\"oidc:corp\"", &format!("oidc:{GROUP}")), &["*"]);
    rig.put_policy(&[usual().as_slice(), &[corp]].concat()).await;

    let tokens = [of_claims(&issuer, &mut planted), of_headers(&issuer, &mut planted)].concat();
    for (what, token, status) in &tokens {
        let signature = token.rsplit_once('.').expect("a JWT").1;
        planted.know(what, signature);
        assert_eq!(asked(&rig, &planted, token).await, *status, "{what}");
    }
    assert_eq!(fake.requests().last().expect("a request").header("impersonate-user"), ["oidc:ann"]);
    // And of an issuer that says what it should not.
    let body = format!("{{ \"error\": \"{}\" }}", planted.canary("issuers-answer"));
    for answer in
        [Answer::json(500, body.as_str()), Answer::json(200, body.as_str()), Answer::json(200, &body[..20])]
    {
        issuer.fake.on(KEYS, Behaviour::Answer(answer));
        let header = json!({ "alg": "ES256", "kid": "unheard-of" }).to_string();
        let token = issuer.signed(&header, &issuer.claims("ann").to_string(), TokenSignature::Ec);
        let status = asked(&rig, &planted, &token).await;
        assert!([401, 503].contains(&status), "{status}");
    }
    quiet(&rig, &planted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_pods_token_only_its_identity_is_written_down() {
    let mut planted = Planted::default();
    let cluster = EdgeCluster::start().await.expect("a cluster starts");
    let account = cluster.create_agent_account().await.expect("an account for the agent");
    let mut rig = Rig::start_logging(LEVEL, "").await;
    let listener = enroll::open(&mut rig).await;
    let api_server = ApiServer::of(&cluster, &account);
    planted.know("account", account.token());
    let (_, _file) = enroll::token(&rig, "edge-a").await;
    let mut agents = Vec::new();
    for (name, output) in [
        ("one", "further pods of its ServiceAccount need no token"),
        ("two", "this pod was enrolled by its ServiceAccount"),
    ] {
        let pod = cluster.create_pod(name).await;
        let token = cluster.signed_again(&cluster.pod_token(&pod, AUDIENCE).await, |claims| {
            merge(claims, &of_nobody(&mut planted, name));
        });
        planted.know(name, token.rsplit_once('.').expect("a JWT").1);
        private(&rig, &format!("{name}.token"), &token);
        agents.push(pod_agent(&rig, &listener, name, "edge-a", &api_server).await);
        rig.logged(&format!("{name}.log"), 0, output).await;
    }

    let pod = cluster.create_pod("three").await;
    let good = cluster.pod_token(&pod, AUDIENCE).await;
    for (number, claims) in wrong_of_pods(&mut planted).iter().enumerate() {
        let place = format!("wrong-{number}");
        let token = cluster.signed_again(&good, |good| {
            merge(good, &of_nobody(&mut planted, &place));
            merge(good, claims);
        });
        planted.know(&place, token.rsplit_once('.').expect("a JWT").1);
        let refused = attest(&rig, &listener, &token).await.expect_err("it is wrong");
        planted.has_none(&format!("the answer to {claims}"), &format!("{refused:?}"));
        if number == 0 {
            private(&rig, "three.token", &token);
            agents.push(pod_agent(&rig, &listener, "three", "edge-a", &api_server).await);
            rig.logged("three.log", 0, "got no certificate").await;
        }
    }
    for words in
        [["cluster", "attestation", "show", "edge-a"].as_slice(), &["agent", "list"], &["token", "list"]]
    {
        planted.has_none(&words.join(" "), &at(&rig, words).await);
    }
    for agent in &agents {
        planted.has_none("an agent's metrics", &rig.metrics(agent.probes).await);
    }
    quiet(&rig, &planted).await;
}

/// Tokens of the issuer's, by what is peculiar to their claims, and what they are answered with.
fn of_claims(issuer: &Issuer, planted: &mut Planted) -> Vec<(String, String, u16)> {
    let mut good = issuer.claims("ann");
    let now = good["iat"].as_u64().expect("a time");
    merge(&mut good, &json!({ "tenant": "acme" }));
    let mut secret = |place: &str| planted.canary(place);
    let cases = [
        ("good", json!({}), 200),
        ("forbidden", json!({ "groups": ["elsewhere"] }), 403),
        ("expired", json!({ "exp": now - 600 }), 401),
        ("too early", json!({ "nbf": now + 600 }), 401),
        ("for others", json!({ "aud": secret("audience") }), 401),
        ("of others", json!({ "iss": secret("issuer") }), 401),
        ("of nobody", json!({ "sub": { "secret": secret("subject") } }), 401),
        ("of no group", json!({ "groups": { "secret": secret("groups") } }), 401),
        ("of groups in groups", json!({ "groups": [[secret("group")]] }), 401),
        ("of another tenant", json!({ "tenant": secret("tenant") }), 401),
        ("of several tenants", json!({ "tenant": [secret("tenants")] }), 401),
        ("without an end", json!({ "exp": secret("end") }), 401),
        ("without a beginning", json!({ "iat": { "secret": secret("beginning") } }), 401),
        ("with a name that is none", json!({ "jti": { "secret": secret("name") } }), 200),
    ];
    let token = |(what, claims, status): (&str, Value, u16)| {
        let mut all = good.clone();
        merge(&mut all, &of_nobody(planted, &what.replace(' ', "-")));
        merge(&mut all, &claims);
        (what.to_owned(), issuer.token_of(&all.to_string()), status)
    };
    cases.into_iter().map(token).collect()
}

/// The same by what is peculiar to their headers, signatures and form.
fn of_headers(issuer: &Issuer, planted: &mut Planted) -> Vec<(String, String, u16)> {
    let mut good = issuer.claims("ann");
    merge(&mut good, &json!({ "tenant": "acme" }));
    merge(&mut good, &of_nobody(planted, "header"));
    let cut = format!("{{ \"secret\": \"{}", planted.canary("cut-claims"));
    let mut secret = |place: &str| planted.canary(place);
    let ec = |header: Value, claims: &str| {
        let mut all = json!({ "alg": "ES256", "kid": EC_KEY });
        merge(&mut all, &header);
        issuer.signed(&all.to_string(), claims, TokenSignature::Ec)
    };
    let claims = good.to_string();
    let header = json!({ "alg": "ES256", "kid": EC_KEY }).to_string();
    let none = json!({ "alg": "none", "secret": secret("unsigned") }).to_string();
    [
        (
            "a key that is not known",
            ec(json!({ "kid": "unknown", "secret": secret("unknown-key") }), &claims),
            401,
        ),
        ("a key that is no name", ec(json!({ "kid": { "secret": secret("no-key") } }), &claims), 401),
        ("another type", ec(json!({ "typ": secret("type") }), &claims), 401),
        ("what must be understood", ec(json!({ "crit": [secret("critical")] }), &claims), 401),
        ("another's signature", issuer.signed(&header, &claims, TokenSignature::Rsa), 401),
        (
            "a MAC",
            issuer.signed(&none.replace("none", "HS256"), &claims, TokenSignature::MacOfPublicKey),
            401,
        ),
        ("claims that are cut", ec(json!({}), &cut), 401),
        // The last one is good, and reaches the API server.
        ("what nobody asks for", ec(json!({ "secret": secret("jwt-header") }), &claims), 200),
    ]
    .map(|(what, token, status)| (what.to_owned(), token, status))
    .into()
}

/// Claims about a pod that is not let in.
fn wrong_of_pods(planted: &mut Planted) -> [Value; 8] {
    let mut secret = |place: &str| planted.canary(place);
    [
        json!({ "exp": 1 }),
        json!({ "aud": [secret("pods-audience")] }),
        json!({ "aud": { "secret": secret("pods-audiences") } }),
        json!({ "iss": secret("pods-issuer") }),
        json!({ "sub": { "secret": secret("pods-subject") } }),
        json!({ "iat": secret("pods-beginning") }),
        json!({ "kubernetes.io": secret("pods-account") }),
        json!({ "kubernetes.io": { "namespace": "tombolo", "pod": { "name": [secret("pods-name")] } } }),
    ]
}

/// Claims that nobody asks for.
fn of_nobody(planted: &mut Planted, place: &str) -> Value {
    let mut secret = |kind: &str| planted.canary(&format!("{kind}-of-{place}"));
    json!({
        "secret": secret("claim"), "nonce": secret("nonce"), "at_hash": secret("hash"), "sid": secret("session"),
        "salary": { "of": [{ "ann": secret("nested-claim") }] },
    })
}

fn merge(claims: &mut Value, others: &Value) {
    for (name, value) in others.as_object().expect("an object") {
        claims[name] = value.clone();
    }
}

/// Sends requests with the token in every possible place, and returns the status of a plain one.
async fn asked(rig: &Rig, planted: &Planted, token: &str) -> u16 {
    let authorization = format!("Bearer {token}");
    let (gateway, ca) = (rig.gateway(), rig.server_ca());
    let headers = [("Authorization", authorization.as_str())];
    let reply = ask(gateway, &ca, None, "GET", PATH, &headers).await.expect("the gateway answers");
    let mut caller = Http2Caller::dial_name(rig, GATEWAY, None).await;
    let answer = caller.ask("GET", PATH, &[("authorization", &authorization)]).await.expect("an answer");
    planted.has_none("an answer", &String::from_utf8_lossy(answer.body()));
    let mut caller = Http1Caller::dial_name(rig, GATEWAY, None).await;
    let shell = "/clusters/edge-a/api/v1/namespaces/n/pods/p/exec?command=sh";
    let lines = format!(
        "Host: {GATEWAY}\r\nAuthorization: {authorization}\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
    );
    caller.write(format!("POST {shell} HTTP/1.1\r\n{lines}\r\n")).await;
    planted.has_none("the head of an answer", &caller.read_head().await);
    planted.has_none("an answer", &format!("{}{}", reply.head, reply.body));
    // The last one is the plain one, so that it is the last that the API server sees.
    let reply = ask(gateway, &ca, None, "GET", PATH, &headers).await.expect("the gateway answers");
    reply.status
}

/// Presents a token with a right proof.
async fn attest(rig: &Rig, listener: &EnrollmentListener, token: &str) -> Result<(), tonic::Status> {
    let key = KeyPair::generate().expect("a key");
    let mut line = AttestationClient::connect(rig, listener).await;
    let nonce = line.nonce().await;
    let claim = AttestationClaim { cluster: "edge-a", token, nonce, key: &key, signer: &key };
    line.attest(&claim).await.map(drop)
}

/// None of it is in the server's metrics, in a log or in the audit log.
async fn quiet(rig: &Rig, planted: &Planted) {
    planted.has_none("the server's metrics", &rig.metrics(rig.probes()).await);
    let logs = written(rig.path());
    assert!(logs.iter().any(|(path, _)| path.contains("/audit/")), "nothing was audited");
    assert!(logs.iter().map(|(_, text)| text.len()).sum::<usize>() > 50_000, "nothing was logged at TRACE");
    logs.iter().for_each(|(path, text)| planted.has_none(path, text));
}
