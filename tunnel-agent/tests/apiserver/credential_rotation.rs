//! Credential files that change while the agent runs.

use std::time::Duration;

use daemon::Scope;
use http::header::AUTHORIZATION;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tunnel_agent::apiserver::{ApiServerError, Timeouts};

use crate::fake::{Authority, Fake, Mounted, get, http2, soon, whole};

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
            let mut response = say_token(request).await;
            *response.status_mut() = StatusCode::UNAUTHORIZED;
            response
        })
    })
    .await;
    let mut mounted = Mounted::new("token-1", &authority.pem());
    let api_server = mounted.api_server(fake.address, NEVER, &scope);

    soon(api_server.send(get("/"))).await.unwrap();
    mounted.swap("token-2", &authority.pem());
    let second = whole(soon(api_server.send(get("/"))).await.unwrap()).await.unwrap();

    assert_eq!(second, "Bearer token-2");
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
