//! What the agent learns of its cluster's endpoints.

use http::{Response, StatusCode};
use http_body_util::Full;
use tunnel_agent::apiserver::{DocumentError, Limits};
use tunnel_agent::discovery::{Discovery, DiscoveryError, ask};

use crate::fake::{http2, pair, soon};

const SLICES: &str = r#"{"items":[{"addressType":"IPv4","endpoints":[{"addresses":["192.168.1.10"]}],
    "ports":[{"name":"https","port":6443}]}]}"#;

#[tokio::test]
async fn what_the_cluster_says_is_published() {
    let (scope, _fake, api_server) = pair(&["h2"], Limits::default(), |connection, _| {
        http2(connection, |request: http::Request<hyper::body::Incoming>| async move {
            let asked = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices\
                         ?fieldSelector=metadata.name%3Dkubernetes";
            let right = request.uri().path_and_query().is_some_and(|path| path == asked);
            Response::new(Full::from(if right { SLICES } else { "{}" }))
        })
    })
    .await;
    let discovery = Discovery::new(api_server, Vec::new(), &[]);
    let mut endpoints = discovery.subscribe();

    scope.spawn(discovery.run(scope.clone()));
    soon(endpoints.changed()).await.unwrap();

    assert_eq!(*endpoints.borrow(), ["192.168.1.10:6443"]);
    soon(scope.close(crate::fake::PATIENCE)).await.unwrap();
}

#[tokio::test]
async fn configured_endpoints_win_and_nobody_is_asked() {
    let (scope, fake, api_server) = pair(&["h2"], Limits::default(), |_, _| std::future::pending()).await;
    let discovery = Discovery::new(api_server, vec!["10.0.0.1:6443".to_owned()], &[]);
    let endpoints = discovery.subscribe();

    soon(discovery.run(scope)).await;

    assert_eq!(*endpoints.borrow(), ["10.0.0.1:6443"]);
    assert_eq!(fake.connections(), 0);
}

#[tokio::test]
async fn a_refusal_says_what_to_do() {
    let (_scope, _fake, api_server) = pair(&["h2"], Limits::default(), |connection, _| {
        http2(connection, |_| async {
            let mut response = Response::new(Full::from("{}"));
            *response.status_mut() = StatusCode::FORBIDDEN;
            response
        })
    })
    .await;

    let refused = soon(ask(&api_server)).await.unwrap_err();

    assert!(
        matches!(refused, DiscoveryError::Document(DocumentError::Status(StatusCode::FORBIDDEN))),
        "{refused:?}"
    );
    assert!(refused.to_string().contains("set advertise"), "{refused}");
}

#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    let (_scope, _fake, api_server) = pair(&["h2"], Limits::default(), |connection, _| {
        http2(connection, |_| async { Response::new(Full::from(vec![b' '; 1024 * 1024 + 1])) })
    })
    .await;

    let refused = soon(ask(&api_server)).await;

    assert!(matches!(refused, Err(DiscoveryError::Document(DocumentError::TooLarge(_)))), "{refused:?}");
}
