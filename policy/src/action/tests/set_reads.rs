//! Claims about reads of cluster sets.

use super::*;

fn set_read(method: &Method, target: &str) -> Result<SetRead, ActionError> {
    let host = Some(PATH_HOST.as_bytes());
    let target = target.as_bytes();
    let head = Head { method, authority: None, host, server_name: None, target, upgrade: None };
    match Action::parse(&GatewayNames::default(), &head)? {
        ParsedRequest::ClusterSet(read) => Ok(*read),
        other @ (ParsedRequest::Cluster(_) | ParsedRequest::ClusterList(_)) => panic!("{other:?}"),
    }
}

#[test]
fn a_read_of_a_set_is_an_action_at_each_cluster() {
    for (rest, kind, at_cluster) in [
        ("/api/v1/pods", SetReadKind::List, "/api/v1/pods"),
        ("/api/v1/pods?limit=500&labelSelector=a%3Db", SetReadKind::List, "/api/v1/pods?labelSelector=a%3Db"),
        ("/api/v1/pods?clusterSelector=stage%3Dlive&timeoutSeconds=3", SetReadKind::List, "/api/v1/pods"),
        ("/api/v1/pods?resourceVersion=0&continue=x&watch=0", SetReadKind::List, "/api/v1/pods?watch=0"),
        (
            "/apis/apps/v1/namespaces/n/deployments/d",
            SetReadKind::Name,
            "/apis/apps/v1/namespaces/n/deployments/d",
        ),
        ("/api/v1/namespaces/n/pods/p/status", SetReadKind::Name, "/api/v1/namespaces/n/pods/p/status"),
        ("/api", SetReadKind::Discovery, "/api"),
        ("/apis/apps/v1", SetReadKind::Discovery, "/apis/apps/v1"),
        ("/version?timeout=32s", SetReadKind::Document, "/version?timeout=32s"),
        ("/openapi/v3/apis/apps/v1", SetReadKind::Document, "/openapi/v3/apis/apps/v1"),
    ] {
        let read = set_read(&Method::GET, &format!("/clustersets/global{rest}")).unwrap();
        assert_eq!((read.set(), read.kind()), ("global", kind), "{rest}");
        let action = read.action("edge-a".parse().unwrap(), None, None).unwrap();
        assert_eq!(action.path().as_str(), at_cluster, "{rest}");
        let own = Action::of_cluster("edge-a".parse().unwrap(), &Method::GET, at_cluster, None).unwrap();
        assert_eq!(action, own, "policy sees what it sees of a single request: {rest}");
    }
}

#[test]
fn each_cluster_has_its_own_page() {
    let read =
        set_read(&Method::GET, "/clustersets/s/api/v1/pods?limit=7&continue=ours&fieldSelector=a").unwrap();
    assert_eq!((read.limit(), read.continue_token()), (Some(7), Some("ours")));
    let action = read.action("edge-a".parse().unwrap(), Some(3), Some("its/own")).unwrap();
    assert_eq!(action.path().as_str(), "/api/v1/pods?fieldSelector=a&limit=3&continue=its%2Fown");
}

#[test]
fn a_set_is_read_and_nothing_else() {
    for (method, rest, refused) in [
        (Method::POST, "/api/v1/namespaces/n/pods", ActionError::SetOnlyRead),
        (Method::DELETE, "/api/v1/namespaces/n/pods/p", ActionError::SetOnlyRead),
        (Method::OPTIONS, "/api/v1/pods", ActionError::SetOnlyRead),
        (Method::GET, "/api/v1/pods?watch=1", ActionError::SetOnlyRead),
        (Method::GET, "/api/v1/watch/pods", ActionError::SetOnlyRead),
        (Method::GET, "/api/v1/namespaces/n/pods/p/log", ActionError::SetOnlyRead),
        (Method::GET, "/api/v1/namespaces/n/pods/p/exec", ActionError::SetOnlyRead),
        (Method::GET, "/api/v1/namespaces/n/services/s/proxy/x", ActionError::SetOnlyRead),
        (Method::GET, "/metrics", ActionError::NotOfASet),
        (Method::GET, "/debug/pprof/heap", ActionError::NotOfASet),
        (Method::GET, "/", ActionError::NotOfASet),
        (Method::GET, "", ActionError::NotOfASet),
        (Method::GET, "/clusters/edge-a/api/v1/pods", ActionError::NestedCluster),
        (Method::GET, "/clustersets/s/api/v1/pods", ActionError::NestedCluster),
        (Method::GET, "/api/v1/pods?limit=many", ActionError::NotANumber("limit")),
        (Method::GET, "/api/v1/pods?timeoutSeconds=-1", ActionError::NotANumber("timeoutSeconds")),
        (Method::GET, "/api/v1/pods?limit=1&limit=2", ActionError::Twice("limit")),
        (Method::GET, "/api/v1/pods?resourceVersion=7", ActionError::SetVersion),
    ] {
        assert_eq!(
            set_read(&method, &format!("/clustersets/s{rest}")).err(),
            Some(refused),
            "{method} {rest}"
        );
    }
    assert_eq!(set_read(&Method::GET, "/clustersets/S/api").err(), Some(ActionError::NotASetName));
    let selector = set_read(&Method::GET, "/clustersets/s/api/v1/pods?clusterSelector=a%20b").unwrap_err();
    assert!(matches!(selector, ActionError::ClusterSelector(_)), "{selector}");
}
