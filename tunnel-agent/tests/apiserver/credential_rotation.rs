//! Credential files that change while the agent runs.

use std::time::Duration;

use daemon::Scope;
use http::header::AUTHORIZATION;
use http::{Request, Response, StatusCode};
use http_body_util::{Empty, Full};
use hyper::body::Incoming;
use proto::upgrade_protocol::UpgradeProtocol;
use tunnel_agent::apiserver::{AnswerDeadline, ApiServerError, Timeouts, UpgradeAnswer};

use crate::fake::{Authority, Fake, Log, Mounted, get, http1, http2, soon, whole};

/// Timeouts with which the files are read before every request.
const ALWAYS: Timeouts = Timeouts {
    connect: Duration::from_secs(5),
    head: Duration::from_secs(75),
    idle: Duration::from_secs(60),
    recheck: Duration::ZERO,
};

/// Timeouts with which the files are read again only for a reason.
const NEVER: Timeouts = Timeouts { recheck: Duration::from_secs(3600), ..ALWAYS };

#[tokio::test]
async fn a_swapped_token_is_used_by_the_next_request_on_the_same_connection() {
    let (scope, authority) = (Scope::here(), Authority::new());
    let fake =
        Fake::start(&scope, authority.server(&["h2"]), |connection, _| http2(connection, say_token)).await;
    let mut mounted = Mounted::new("token-1", &authority.pem());
    let api_server = mounted.api_server(fake.address, ALWAYS, &scope);

    let first = whole(soon(api_server.send(get("/"))).await.unwrap()).await.unwrap();
    mounted.swap("token-2", &authority.pem());
    let second = whole(soon(api_server.send(get("/"))).await.unwrap()).await.unwrap();

    assert_eq!((first.as_str(), second.as_str()), ("Bearer token-1", "Bearer token-2"));
    assert_eq!(fake.connections(), 1);
}

#[tokio::test]
async fn after_a_401_the_files_are_looked_at_at_once() {
    let (scope, authority) = (Scope::here(), Authority::new());
    let fake = Fake::start(&scope, authority.server(&["h2"]), |connection, _| {
        http2(connection, |request| async move {
            let is_old = request.headers()[AUTHORIZATION] == "Bearer token-1";
            let mut response = say_token(request).await;
            if is_old {
                *response.status_mut() = StatusCode::UNAUTHORIZED;
            }
            response
        })
    })
    .await;
    let mut mounted = Mounted::new("token-1", &authority.pem());
    let api_server = mounted.api_server(fake.address, NEVER, &scope);

    let first = soon(api_server.send(get("/"))).await;
    mounted.swap("token-2", &authority.pem());
    let second = whole(soon(api_server.send(get("/"))).await.unwrap()).await.unwrap();

    assert!(matches!(first, Err(ApiServerError::CredentialRefused)), "{first:?}");
    assert_eq!(second, "Bearer token-2");
}

/// The API server is asked with the credential that the request bore, and about nothing else.
#[tokio::test]
async fn a_401_is_the_agents_only_if_the_api_server_refuses_it_again() {
    for (protocol, probed, is_refused) in [
        ("h2", 401, true),
        ("http/1.1", 401, true),
        ("h2", 200, false),
        ("http/1.1", 200, false),
        ("h2", 403, false),
        ("h2", 503, false),
    ] {
        let (log, scope, authority) = (Log::default(), Scope::here(), Authority::new());
        let seen = log.clone();
        let fake = Fake::start(&scope, authority.server(&[protocol]), move |connection, _| {
            let log = seen.clone();
            let answer = move |request: Request<Incoming>| {
                let path = request.uri().path().to_owned();
                let is_impersonated = request.headers().contains_key("impersonate-user");
                log.add(format!(
                    "{path} {} {is_impersonated}",
                    request.headers()[AUTHORIZATION].to_str().unwrap()
                ));
                let status = if path == "/version" { probed } else { 401 };
                let mut response = Response::new(Full::from("who are you?"));
                *response.status_mut() = StatusCode::from_u16(status).unwrap();
                response.headers_mut().insert("www-authenticate", "Basic realm=x".parse().unwrap());
                async { response }
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
        let mounted = Mounted::new("token-1", &authority.pem());
        let api_server = mounted.api_server(fake.address, NEVER, &scope);
        let request = || Request::get("/pods/p/log").header("impersonate-user", "ann");

        let answered = soon(api_server.send(request().body(Empty::new()).unwrap())).await;
        let upgraded = match protocol {
            "h2" => None,
            _ => {
                let (request, to) = (request().body(()).unwrap(), UpgradeProtocol::WebSocket);
                Some(soon(api_server.upgrade_by(request, to, AnswerDeadline::Default)).await)
            }
        };

        let case = format!("{protocol} {probed}");
        assert_eq!(log.lines()[1], "/version Bearer token-1 false", "{case}");
        if is_refused {
            assert!(matches!(answered, Err(ApiServerError::CredentialRefused)), "{case}: {answered:?}");
            assert!(
                matches!(upgraded, None | Some(Err(ApiServerError::CredentialRefused))),
                "{case}: {upgraded:?}"
            );
        } else {
            let answered = answered.unwrap();
            assert_eq!(answered.status(), 401, "{case}");
            assert_eq!(answered.headers()["www-authenticate"], "Basic realm=x", "{case}");
            assert_eq!(whole(answered).await.unwrap(), "who are you?", "{case}");
            assert!(matches!(upgraded, None | Some(Ok(UpgradeAnswer::Declined(_)))), "{case}: {upgraded:?}");
        }
    }
}

#[tokio::test]
async fn a_swapped_ca_replaces_the_old_one_for_the_next_connection() {
    let (scope, old, new) = (Scope::here(), Authority::new(), Authority::new());
    let fake = Fake::start(&scope, old.server(&["h2"]), |connection, _| http2(connection, say_token)).await;
    let mut mounted = Mounted::new("token-1", &old.pem());
    let api_server = mounted.api_server(fake.address, ALWAYS, &scope);
    soon(api_server.send(get("/"))).await.unwrap();

    mounted.swap("token-1", &new.pem());
    let refused = soon(api_server.send(get("/"))).await;
    mounted.swap("token-1", &format!("{}{}", new.pem(), old.pem()));
    let trusted = soon(api_server.send(get("/"))).await;

    assert!(matches!(refused, Err(ApiServerError::Untrusted { .. })), "{refused:?}");
    assert!(trusted.is_ok(), "{trusted:?}");
    assert_eq!(fake.connections(), 2);
}

#[tokio::test]
async fn files_that_become_unusable_leave_the_last_good_ones_in_force() {
    let (scope, authority) = (Scope::here(), Authority::new());
    let fake =
        Fake::start(&scope, authority.server(&["h2"]), |connection, _| http2(connection, say_token)).await;
    let mut mounted = Mounted::new("token-1", &authority.pem());
    let api_server = mounted.api_server(fake.address, ALWAYS, &scope);

    for (token, ca) in [("", authority.pem()), ("token-2", "no PEM".to_owned())] {
        mounted.swap(token, &ca);
        let answered = whole(soon(api_server.send(get("/"))).await.unwrap()).await.unwrap();
        assert_eq!(answered, "Bearer token-1");
    }
}

async fn say_token(request: Request<Incoming>) -> Response<Full<bytes::Bytes>> {
    let tokens = request.headers().get_all(AUTHORIZATION).iter();
    let answered: Vec<_> = tokens.map(|token| token.to_str().unwrap()).collect();
    Response::new(Full::from(answered.join(",")))
}
