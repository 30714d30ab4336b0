//! Callers with tokens of an OpenID Connect issuer: the accepted ones, and a hundred alterations that are all
//! refused.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tests::caller::{GATEWAY, Http1Caller, Http2Caller, SOON};
use tests::fake_api::{Answer, Behaviour, Cut, FakeApi, HttpVersion, Store};
use tests::fake_edge::add_cluster;
use tests::oidc::{AUDIENCE, EC_KEY, Issuer, KEYS, RSA_KEY, TokenSignature};
use tests::rig::policy::allow_all;
use tests::rig::{Agent, ApiServer, GROUP, Reply, Rig, TOKEN, ask};

const PATH: &str = "/clusters/edge-a/api/v1/namespaces";

struct OidcSetup {
    issuer: Issuer,
    rig: Rig,
    fake: FakeApi,
    _agent: Agent,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_issuers_token_gives_user_and_groups_with_its_prefixes() {
    let setup = OidcSetup::set("").await;
    for token in [
        setup.issuer.token("ann"),
        setup.rsa(&setup.issuer.claims("ann")),
        setup.with("aud", &json!(["others", AUDIENCE])),
        setup.with("groups", &json!(GROUP)),
    ] {
        let reply = setup.ask(&token).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        let request = setup.fake.requests().pop().unwrap();
        assert_eq!(request.header("impersonate-user"), ["oidc:ann"]);
        assert_eq!(request.header("impersonate-group"), [format!("oidc:{GROUP}")]);
        assert!(!format!("{request:?}").contains(&token), "the token went no further");
    }
    let mut others = setup.issuer.claims("bob");
    others["groups"] = json!(["elsewhere"]);
    assert_eq!(setup.ask(&setup.issuer.token_of(&others.to_string())).await.status, 403);
    // Without groups too: a token need not name any.
    others.as_object_mut().unwrap().remove("groups");
    assert_eq!(setup.ask(&setup.issuer.token_of(&others.to_string())).await.status, 403);
    let log = setup.rig.server_log();
    assert!(!log.contains("eyJ"), "a token stands in the log");
}

/// This shows C10 of docs/security.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_altered_token_is_accepted() {
    let setup = OidcSetup::set("    requiredClaims: { tenant: acme }\n").await;
    let mut good = setup.issuer.claims("ann");
    good["tenant"] = json!("acme");
    assert_eq!(setup.ask(&setup.issuer.token_of(&good.to_string())).await.status, 200);
    let seen = setup.fake.requests().len();
    let mutants =
        [claims(&setup, &good), texts(&setup, &good), headers(&setup, &good), shapes(&setup, &good)].concat();
    assert!(mutants.len() > 100, "{}", mutants.len());
    let mut caller = Http2Caller::dial_name(&setup.rig, GATEWAY, None).await;
    for (what, token) in &mutants {
        let authorization = format!("Bearer {token}");
        let answer = caller.ask("GET", PATH, &[("authorization", &authorization)]).await.unwrap();
        assert_eq!(answer.status(), 401, "{what}");
    }
    assert_eq!(setup.fake.requests().len(), seen, "a mutant reached the API server");
    assert_eq!(
        setup.ask(&setup.issuer.token_of(&good.to_string())).await.status,
        200,
        "the good one still does"
    );
}

/// Old keys stay valid while the issuer is away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_issuers_new_keys_are_fetched_once_for_many_tokens() {
    let mut setup = OidcSetup::set("").await;
    assert_eq!(setup.ask(&setup.issuer.token("ann")).await.status, 200);
    // The issuer is away: what is known holds, and what is not known is neither taken nor refused for good.
    setup.issuer.fake.on(KEYS, Behaviour::Answer(Answer::json(500, "{}")));
    let header = json!({ "alg": "ES256", "kid": "ec-2" }).to_string();
    let newer = setup.issuer.signed(&header, &setup.issuer.claims("ann").to_string(), TokenSignature::Ec);
    let mut refused = setup.ask(&newer).await;
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while refused.status == 401 && std::time::Instant::now() < deadline {
        // Within the pause behind the last good answer the issuer is not asked again.
        tokio::time::sleep(Duration::from_millis(200)).await;
        refused = setup.ask(&newer).await;
    }
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert!(refused.body.contains("AuthenticatorAway"), "{}", refused.body);
    assert_eq!(setup.ask(&setup.issuer.token("ann")).await.status, 200, "the key that is known holds");
    let by_file = setup.rig.ask_with_token("GET", PATH, &[]).await;
    assert_eq!(by_file.status, 403, "other methods go on: {}", by_file.body);

    // It is back with another key: one question for all who name it.
    setup.issuer.publish(&[setup.issuer.ec_jwk("ec-2")]);
    let before = setup.fetches();
    let asked: Vec<_> = (0..50).map(|_| setup.ask_until_known(&newer)).collect();
    for reply in futures::future::join_all(asked).await {
        assert_eq!(reply.status, 200, "{}", reply.body);
    }
    assert!(setup.fetches() - before <= 2, "{} questions for one key", setup.fetches() - before);
    assert_eq!(
        setup.ask(&setup.issuer.token("ann")).await.status,
        401,
        "the key that was taken back is gone"
    );

    // And what is sent in place of keys changes nothing.
    setup
        .issuer
        .fake
        .on(KEYS, Behaviour::raw("HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n{", Cut::Hold));
    setup.issuer.fake.refuse().await;
    assert_eq!(setup.ask(&newer).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_resumes_while_its_callers_token_is_valid() {
    let OidcSetup { issuer, rig, fake, _agent: agent } = OidcSetup::set("").await;
    let store = Store::new();
    fake.on("/api/v1/namespaces", Behaviour::Store(store.clone()));
    let mut claims = issuer.claims("ann");
    let ends = SystemTime::now() + Duration::from_secs(5);
    claims["exp"] = json!(ends.duration_since(UNIX_EPOCH).unwrap().as_secs());
    let mut watch = Http1Caller::dial_name(&rig, GATEWAY, None).await;
    let version = store.put("shown", "1");
    let lines =
        format!("Host: {GATEWAY}\r\nAuthorization: Bearer {}\r\n", issuer.token_of(&claims.to_string()));
    watch.write(format!("GET {PATH}?watch=1&resourceVersion={version} HTTP/1.1\r\n{lines}\r\n")).await;
    assert!(watch.read_head().await.starts_with("HTTP/1.1 200 "));
    store.put("shown", "seen");
    watch.read_until("seen").await;

    drop(agent);
    let anybody = "impersonation: { users: [\"*\"], groups: [\"*\"] }";
    let _agent = rig.agent_with("edge-a", &ApiServer::of_fake(&rig, &fake), anybody).await;
    store.put("shown", "by the next tunnel");
    watch.read_until("by the next tunnel").await;

    // With the leeway that an issuer's clock is given.
    let message = watch.read_until("CredentialExpired").await;
    assert!(message.contains("\"ERROR\"") && message.contains("\"code\":401"), "{message}");
    assert!(SystemTime::now() >= ends, "not before its time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_issuer_affects_only_its_own_tokens() {
    let mut issuer = Issuer::start().await;
    issuer.fake.refuse().await;
    let rig = Rig::start_with(&config(&issuer, "")).await;
    let (_fake, _agent) = add_cluster(&rig, "edge-a", HttpVersion::Http1).await;
    let reply = by(&rig, &issuer.token("ann")).await;
    assert_eq!(reply.status, 503, "{}", reply.body);
    assert!(!reply.head.to_lowercase().contains("retry-after"), "{}", reply.head);
    assert_eq!(rig.ask_with_token("GET", "/clusters", &[]).await.status, 200);
    assert_eq!(by(&rig, "somebodys-opaque-token").await.status, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_ends_with_its_time_and_the_leeway() {
    let setup = OidcSetup::set("").await;
    let mut claims = setup.issuer.claims("ann");
    let now = claims["iat"].as_u64().unwrap();
    claims["exp"] = json!(now - 27);
    let short = setup.issuer.token_of(&claims.to_string());
    assert_eq!(setup.ask(&short).await.status, 200, "within the leeway");
    let deadline = tokio::time::Instant::now() + SOON;
    while setup.ask(&short).await.status == 200 {
        assert!(tokio::time::Instant::now() < deadline, "the token never expired");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(setup.ask(&short).await.body.contains("expired"));
}

/// Wrong values of every claim that is checked.
fn claims(setup: &OidcSetup, good: &Value) -> Vec<(String, String)> {
    let raw = [
        "\"1\"",
        "1.5",
        "1e400",
        "-1",
        "null",
        "[]",
        "[1]",
        "{}",
        "true",
        "18446744073709551616",
        "1e3",
        "\"\"",
    ];
    let mut mutants = Vec::new();
    for name in ["exp", "nbf", "iat", "aud", "iss", "sub"] {
        for value in raw {
            if (name, value) == ("sub", "\"1\"") {
                // Anybody may be called so.
                continue;
            }
            let changed = with_raw(good, name, value);
            mutants.push((format!("{name}: {value}"), setup.issuer.token_of(&changed)));
        }
    }
    for value in ["1", "null", "{}", "[1]", "[\"a\", null]", "[[\"a\"]]", "true"] {
        mutants.push((format!("groups: {value}"), setup.issuer.token_of(&with_raw(good, "groups", value))));
    }
    for name in ["exp", "aud", "iss", "sub", "tenant"] {
        let mut changed = good.clone();
        changed.as_object_mut().unwrap().remove(name);
        mutants.push((format!("no {name}"), setup.issuer.token_of(&changed.to_string())));
    }
    let url = setup.issuer.url();
    let now = good["iat"].as_u64().unwrap();
    for (name, value) in [
        ("exp", json!(now - 60)),
        ("nbf", json!(now + 600)),
        ("iat", json!(now + 600)),
        ("aud", json!("tombolo2")),
        ("aud", json!(["others"])),
        ("aud", json!("Tombolo")),
        ("iss", json!(format!("{url}/"))),
        ("iss", json!(url.to_uppercase())),
        ("iss", json!("https://elsewhere.example")),
        ("tenant", json!("Acme")),
        ("tenant", json!(["acme"])),
        ("sub", json!("a\r\nImpersonate-Group: system:masters")),
        ("sub", json!("a\u{0}b")),
        ("sub", json!("system:admin")),
        ("sub", json!(" a")),
        ("sub", json!("x".repeat(9_000))),
        ("groups", json!(["system:masters"])),
        ("groups", json!(["a\nb"])),
        ("groups", json!([""])),
        ("groups", json!(vec!["g"; 65])),
    ] {
        let mut changed = good.clone();
        changed[name] = value.clone();
        mutants.push((format!("{name}: {value}"), setup.issuer.token_of(&changed.to_string())));
    }
    mutants
}

/// Claims that are JSON in a way that two readers may read differently.
fn texts(setup: &OidcSetup, good: &Value) -> Vec<(String, String)> {
    let body = good.to_string();
    let body = body.trim_start_matches('{');
    [
        ("sub twice", format!("{{\"sub\":\"root\",{body}")),
        ("exp twice", format!("{{\"exp\":99999999999,{body}")),
        ("an escaped name twice", format!("{{\"\\u0073ub\":\"root\",{body}")),
        ("a lone surrogate", good.to_string().replace("\"ann\"", "\"\\ud800\"")),
        ("deep JSON", format!("{{\"deep\":{}{},{body}", "[".repeat(3_000), "]".repeat(3_000))),
        ("not JSON", "sub=ann".to_owned()),
        ("an array", "[]".to_owned()),
        ("empty", String::new()),
        ("trailing", format!("{good} {{}}")),
    ]
    .map(|(what, text)| (what.to_owned(), setup.issuer.token_of(&text)))
    .into()
}

/// Every header that would let the sender choose by what it is verified.
fn headers(setup: &OidcSetup, good: &Value) -> Vec<(String, String)> {
    let (issuer, good) = (&setup.issuer, good.to_string());
    let jwk = issuer.ec_jwk("mine");
    let signed = |header: Value, by| (header.to_string(), issuer.signed(&header.to_string(), &good, by));
    let mut mutants = vec![
        signed(json!({ "alg": "none" }), TokenSignature::Nobody),
        signed(json!({ "alg": "none", "kid": EC_KEY }), TokenSignature::Ec),
        signed(json!({ "alg": "None", "kid": EC_KEY }), TokenSignature::Nobody),
        signed(json!({ "alg": "", "kid": EC_KEY }), TokenSignature::Ec),
        signed(json!({ "kid": EC_KEY }), TokenSignature::Ec),
        signed(json!({ "alg": null, "kid": EC_KEY }), TokenSignature::Ec),
        signed(json!({ "alg": ["ES256"], "kid": EC_KEY }), TokenSignature::Ec),
        signed(json!({ "alg": "HS256", "kid": RSA_KEY }), TokenSignature::MacOfPublicKey),
        signed(json!({ "alg": "RS256", "kid": RSA_KEY }), TokenSignature::MacOfPublicKey),
        signed(json!({ "alg": "RS384", "kid": RSA_KEY }), TokenSignature::Rsa),
        signed(json!({ "alg": "PS256", "kid": RSA_KEY }), TokenSignature::Rsa),
        signed(json!({ "alg": "ES256", "kid": RSA_KEY }), TokenSignature::Ec),
        signed(json!({ "alg": "RS256", "kid": EC_KEY }), TokenSignature::Rsa),
        signed(json!({ "alg": "ES384", "kid": EC_KEY }), TokenSignature::Ec),
        signed(json!({ "alg": "es256", "kid": EC_KEY }), TokenSignature::Ec),
        signed(json!({ "alg": "ES256", "kid": EC_KEY }), TokenSignature::Nobody),
        signed(json!({ "alg": "ES256", "kid": EC_KEY }), TokenSignature::Rsa),
    ];
    for kid in [
        json!("../../../../dev/null"),
        json!("https://evil.example/key"),
        json!("ec-1' OR '1'='1"),
        json!("EC-1"),
        json!("ec-1\u{0}"),
        json!(""),
        json!("x".repeat(257)),
        json!(1),
        json!(null),
        json!(["ec-1"]),
    ] {
        mutants.push(signed(json!({ "alg": "ES256", "kid": kid }), TokenSignature::Ec));
    }
    for (name, value) in [
        ("jwk", jwk.clone()),
        ("jku", json!("https://evil.example/keys")),
        ("x5u", json!("https://evil.example/chain")),
        ("x5c", json!(["MIIB"])),
        ("jwk", json!(null)),
        ("crit", json!(["exp"])),
        ("crit", json!(["unheard-of"])),
        ("crit", json!([])),
        ("b64", json!(false)),
        ("zip", json!("DEF")),
        ("enc", json!("A256GCM")),
        ("cty", json!("JWT")),
        ("typ", json!("logout+jwt")),
        ("typ", json!("JOSE")),
        ("typ", json!(1)),
        ("typ", json!(null)),
        ("typ", json!("")),
    ] {
        let mut header = json!({ "alg": "ES256", "kid": EC_KEY });
        header[name] = value;
        mutants.push(signed(header, TokenSignature::Ec));
    }
    let twice = "{\"alg\":\"none\",\"alg\":\"ES256\",\"kid\":\"ec-1\"}";
    mutants.push(("alg twice".to_owned(), issuer.signed(twice, &good, TokenSignature::Ec)));
    mutants
}

/// Tokens that are put together wrongly.
fn shapes(setup: &OidcSetup, good: &Value) -> Vec<(String, String)> {
    let token = setup.issuer.token_of(&good.to_string());
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    let named = |what: &str, token: String| (what.to_owned(), token);
    vec![
        named("no signature", format!("{signed}.")),
        named("two parts", signed.to_owned()),
        named("four parts", format!("{token}.x")),
        named("five parts", format!("{token}.x.y")),
        named("an empty header", format!(".{claims}.{signature}")),
        named("no claims", format!("{header}..{signature}")),
        named("a cut signature", format!("{signed}.{}", &signature[1..])),
        named("padding", format!("{token}==")),
        named("a changed claim", format!("{header}.{}x.{signature}", &claims[..claims.len() - 1])),
        named(
            "another token's signature",
            format!("{signed}.{}", setup.issuer.token("bob").rsplit_once('.').unwrap().1),
        ),
        named("longer than any", format!("{token}{}", "A".repeat(16 * 1024))),
    ]
}

/// The claims with one of them replaced by JSON that need not be JSON.
fn with_raw(good: &Value, name: &str, value: &str) -> String {
    let mut changed = good.clone();
    changed[name] = json!("MARK");
    changed.to_string().replace("\"MARK\"", value)
}

impl OidcSetup {
    /// A server that takes tokens of an issuer, with `more` of its configuration, and a cluster in which its
    /// group may all.
    async fn set(more: &str) -> Self {
        let issuer = Issuer::start().await;
        let rig = Rig::start_with(&config(&issuer, more)).await;
        let (fake, agent) = add_cluster(&rig, "edge-a", HttpVersion::Http1).await;
        fake.otherwise(Behaviour::json("{}"));
        // Nobody else: a token of the file does not count for the issuer's.
        let group = format!("oidc:{GROUP}");
        rig.put_policy(&[allow_all("corp", ("\"oidc:corp\"", &group), &["*"])]).await;
        Self { issuer, rig, fake, _agent: agent }
    }

    fn rsa(&self, claims: &Value) -> String {
        let header = json!({ "alg": "RS256", "kid": RSA_KEY }).to_string();
        self.issuer.signed(&header, &claims.to_string(), TokenSignature::Rsa)
    }

    fn with(&self, name: &str, value: &Value) -> String {
        let mut claims = self.issuer.claims("ann");
        claims[name] = value.clone();
        self.issuer.token_of(&claims.to_string())
    }

    async fn ask(&self, token: &str) -> Reply {
        by(&self.rig, token).await
    }

    /// Asks until the issuer was asked again, which it is not within the pause behind its last answer.
    async fn ask_until_known(&self, token: &str) -> Reply {
        let deadline = tokio::time::Instant::now() + SOON;
        loop {
            let reply = self.ask(token).await;
            if reply.status == 200 || tokio::time::Instant::now() > deadline {
                return reply;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    fn fetches(&self) -> usize {
        self.issuer.fake.requests().iter().filter(|request| request.target == KEYS).count()
    }
}

/// An authenticator of this issuer's tokens, with `more` of its configuration.
pub(super) fn config(issuer: &Issuer, more: &str) -> String {
    format!(
        "    oidc:\n    - name: corp\n      issuer: {}\n      audience: {AUDIENCE}\n      caFile: {:?}\n      \
         groupsClaim: groups\n      usernamePrefix: \"oidc:\"\n      groupsPrefix: \"oidc:\"\n{}",
        issuer.url(),
        issuer.ca_file(),
        more.replace("    ", "      ")
    )
}

async fn by(rig: &Rig, token: &str) -> Reply {
    assert_ne!(token, TOKEN);
    let authorization = format!("Bearer {token}");
    let headers = [("Authorization", authorization.as_str())];
    ask(rig.gateway(), &rig.server_ca(), None, "GET", PATH, &headers).await.expect("the gateway answers")
}
