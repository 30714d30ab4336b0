//! Tests of verbs, upgrades and long-running requests, by tables.

use super::*;

#[test]
fn verbs_are_those_of_kubernetes() {
    for (method, path, verb) in [
        ("GET", "/api/v1/pods", "list"),
        ("GET", "/api/v1/pods/", "list"),
        ("HEAD", "/api/v1/pods", "list"),
        ("GET", "/api/v1/pods?watch=true", "watch"),
        ("GET", "/api/v1/pods?watch=1&watch=true", "watch"),
        ("GET", "/api/v1/pods?watch", "watch"),
        ("GET", "/api/v1/pods?%77atch=true", "watch"),
        ("GET", "/api/v1/pods?limit=1&watch=False", "list"),
        ("GET", "/api/v1/pods?watch=0&watch=false", "list"),
        ("GET", "/api/v1/pods?watch=1%3Bx", "watch"),
        ("GET", "/api/v1/namespaces", "list"),
        ("GET", "/api/v1/namespaces/a", "get"),
        ("GET", "/api/v1/namespaces/a/pods", "list"),
        ("PUT", "/api/v1/namespaces/a/finalize", "update"),
        ("GET", "/api/v1/namespaces/a/status", "get"),
        ("GET", "/api/v1/namespaces/a/finalize", "get"),
        ("GET", "/api/v1/namespaces/a/pods/x", "get"),
        ("GET", "/api/v1/namespaces/a/pods/x?watch=true", "get"),
        ("GET", "/api/v1/namespaces/a/pods/x/log?follow=true", "get"),
        ("GET", "/api/v1/watch/namespaces/a/pods", "watch"),
        ("POST", "/apis/apps/v1/namespaces/a/deployments", "create"),
        ("PUT", "/apis/apps/v1/namespaces/a/deployments/x/status", "update"),
        ("PATCH", "/apis/apps/v1/namespaces/a/deployments/x", "patch"),
        ("DELETE", "/apis/apps/v1/namespaces/a/deployments/x", "delete"),
        ("DELETE", "/apis/apps/v1/namespaces/a/deployments", "deletecollection"),
        ("OPTIONS", "/api/v1/pods", "options"),
        ("GET", "/api/v1/namespaces/a/pods/x/exec?command=ls", "connect"),
        ("POST", "/api/v1/namespaces/a/pods/x/exec", "connect"),
        ("GET", "/api/v1/namespaces/a/pods/x/%65xec", "connect"),
        ("GET", "/%61pi/v1/namespaces/a/pods/x/attach", "connect"),
        ("GET", "/api/v1/namespaces/a/pods/x/portforward/", "connect"),
        ("GET", "/api/v1/nodes/n/proxy/exec/a/b", "connect"),
        ("GET", "/api/v1/namespaces/a/services/x:80/proxy", "connect"),
        ("DELETE", "/api/v1/namespaces/a/pods/x:80/proxy/y", "connect"),
        ("PATCH", "/api/v1/namespaces/a/pods/x/ephemeralcontainers", "connect"),
        ("GET", "/api/v1/proxy/nodes/n/", "connect"),
        ("GET", "/", "get"),
        ("GET", "/version", "get"),
        ("GET", "/api", "get"),
        ("GET", "/api/v1", "get"),
        ("GET", "/apis/apps/v1", "get"),
        ("HEAD", "/healthz", "head"),
        ("POST", "/x", "post"),
        ("PUT", "/x", "put"),
        ("PATCH", "/x", "patch"),
        ("DELETE", "/x", "delete"),
    ] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let Ok(ParsedRequest::Cluster(action)) =
            parse(None, Some(CLUSTER_HOST), &method, path.as_bytes(), None)
        else {
            panic!("{method} {path}");
        };
        assert_eq!(action.verb().as_str(), verb, "{method} {path}");
        assert!(action.verb().may_be_asked_of(action.object()), "{method} {path}");
    }
}

#[test]
fn no_request_has_a_verb_that_may_not_be_asked_of_its_object() {
    let of = |path: &str| action(CLUSTER_HOST, path).unwrap().object().clone();
    let [pods, exec, version] = ["/api/v1/pods", "/api/v1/namespaces/a/pods/x/exec", "/version"].map(of);
    let asked =
        |object| Verb::ALL.into_iter().filter(move |verb| verb.may_be_asked_of(object)).map(Verb::as_str);
    assert_eq!(asked(&exec).collect::<Vec<_>>(), ["connect"]);
    assert_eq!(
        asked(&pods).collect::<Vec<_>>(),
        ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "options"]
    );
    assert_eq!(
        asked(&version).collect::<Vec<_>>(),
        ["get", "patch", "delete", "head", "options", "post", "put"]
    );
    for verb in Verb::ALL {
        assert_eq!(verb.as_str().parse(), Ok(verb));
    }
    assert_eq!("Get".parse::<Verb>(), Err(NotAVerb));
}

#[test]
fn an_upgrade_is_for_what_kubernetes_upgrades() {
    let upgraded = |protocol: UpgradeProtocol, path: &str| {
        parse(None, Some(CLUSTER_HOST), &Method::GET, path.as_bytes(), Some(protocol)).err()
    };
    for path in [
        "/api/v1/namespaces/a/pods/x/exec",
        "/api/v1/namespaces/a/pods/x/attach",
        "/api/v1/namespaces/a/pods/x/portforward",
        "/api/v1/namespaces/a/services/x/proxy",
        "/api/v1/nodes/n/proxy/x",
    ] {
        assert_eq!(upgraded(UpgradeProtocol::WebSocket, path), None, "{path}");
        assert_eq!(upgraded(UpgradeProtocol::Spdy31, path), None, "{path}");
    }
    for path in [
        "/api/v1/pods?watch=1",
        "/api/v1/watch/pods",
        "/api/v1/namespaces/a/pods/x/log",
        "/api/v1/namespaces/a/pods/x/log?follow=1",
    ] {
        assert_eq!(upgraded(UpgradeProtocol::WebSocket, path), None, "{path}");
        assert_eq!(upgraded(UpgradeProtocol::Spdy31, path), Some(UpgradeNotHere), "{path}");
    }
    for path in [
        "/",
        "/version",
        "/api/v1/pods",
        "/api/v1/namespaces/a/pods/x",
        "/api/v1/namespaces/a/pods/x/ephemeralcontainers",
        "/x/exec",
        "/api/v1/namespaces/a/pods/log",
    ] {
        assert_eq!(upgraded(UpgradeProtocol::WebSocket, path), Some(UpgradeNotHere), "{path}");
        assert_eq!(upgraded(UpgradeProtocol::Spdy31, path), Some(UpgradeNotHere), "{path}");
    }
}

#[test]
fn what_kubernetes_gives_no_deadline_gets_none_here() {
    let long_running = |path: &str| action(CLUSTER_HOST, path).unwrap().is_long_running();
    for path in [
        "/api/v1/pods?watch=1",
        "/api/v1/watch/pods",
        "/api/v1/namespaces/a/pods/x/log",
        "/api/v1/namespaces/a/pods/x/exec",
        "/api/v1/namespaces/a/pods/x/attach",
        "/api/v1/namespaces/a/pods/x/portforward",
        "/api/v1/namespaces/a/services/x/proxy/y",
        "/api/v1/nodes/n/proxy",
        "/debug/pprof/profile",
    ] {
        assert!(long_running(path), "{path}");
    }
    for path in [
        "/",
        "/version",
        "/api/v1/pods",
        "/api/v1/pods?watch=0",
        "/api/v1/namespaces/a/pods/log",
        "/api/v1/namespaces/a/pods/x/ephemeralcontainers",
        "/apis/apps/v1/namespaces/a/deployments/x/scale",
        "/debug/pprofx/y",
        "/debug/pprof",
    ] {
        assert!(!long_running(path), "{path}");
    }
}
