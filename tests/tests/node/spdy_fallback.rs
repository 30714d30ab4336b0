//! kubectl falls back to SPDY where its WebSocket is refused, for example where a user may only `create` and
//! WebSocket needs `get`.

use std::time::Duration;

use tests::kube::kubeconfig::Credential;
use tests::node_edge::{NodeEdge, OPERATORS, POD, trial};

use super::exec::outputs_are_separate;
use super::forward::each_connection_is_its_own;
use super::kubectls::Client;

/// The usual form of roles for pods: an upgrade by POST is `create`, one by GET, the only one that a
/// WebSocket knows, is `get`.
const ROLE: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: { name: operator }
rules:
- { apiGroups: [\"\"], resources: [pods], verbs: [get] }
- { apiGroups: [\"\"], resources: [pods/exec, pods/portforward], verbs: [create] }
";

/// The limit for the API server to write its audit log.
const AUDITED: Duration = Duration::from_secs(30);

#[test]
fn exec_and_port_forward_use_spdy_where_websocket_is_forbidden() {
    trial("exec_and_port_forward_use_spdy_where_websocket_is_forbidden", async |edges| {
        let edge = &edges.edges[1];
        edge.apply("operator", ROLE).await;
        let group = format!("--group={OPERATORS}");
        edge.direct.stdout(&["create", "rolebinding", "operator", "--role=operator", &group]).await;

        let certificate = Credential::Certificate(edge.cluster.issue_user("direct-operator", &[OPERATORS]));
        let direct = edge.cluster.write_kubeconfig("operator.conf", certificate).expect("a file");
        let tunneled = edges.rig.kubeconfig("tunneled-operator", &[OPERATORS], edge.name).await;
        let clients = [
            ("direct-operator", edge.direct.clone().with_kubeconfig(direct)),
            ("tunneled-operator", edge.tunneled.clone().with_kubeconfig(tunneled)),
        ];
        for (name, kubectl) in clients {
            let client = Client { name: name.to_owned(), kubectl };
            outputs_are_separate(&client).await;
            each_connection_is_its_own(edge, &client, 1).await;
            for subresource in ["exec", "portforward"] {
                answered(edge, name, subresource, ("get", 403)).await;
                answered(edge, name, subresource, ("create", 101)).await;
            }
        }
    });
}

/// Waits until the API server's audit log has this request with this answer.
async fn answered(edge: &NodeEdge, user: &str, subresource: &str, (verb, code): (&str, u16)) {
    let path = format!("/api/v1/namespaces/default/pods/{POD}/{subresource}");
    let event = edge.cluster.wait_for_audit(AUDITED, |event| {
        let asked = event.impersonated_user.as_ref().unwrap_or(&event.user);
        let status = event.response_status.as_ref().and_then(|status| status.code);
        event.request_uri.starts_with(&path)
            && event.verb == verb
            && status == Some(code)
            && asked.username.ends_with(user)
    });
    event.await.unwrap_or_else(|error| panic!("{user}: {verb} {subresource} {code}: {error}"));
}
