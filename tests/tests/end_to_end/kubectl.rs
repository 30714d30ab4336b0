//! The main use: the API server sees the caller of kubectl, and its audit log has both the agent and the
//! caller.

use serde_json::Value;
use tests::caller::SOON;
use tests::kube::account;
use tests::kube::audit::AuditEvent;
use tests::real_edge::{CLUSTER, RealEdge};
use tests::rig::GROUP;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_server_sees_the_caller_with_its_groups_and_not_the_agent() {
    let edge = RealEdge::shared().await;
    let kubeconfig = edge.rig.kubeconfig("bob", &[GROUP, "tombolo:team-b"], CLUSTER).await;
    let bob = edge.cluster.kubectl_with(kubeconfig);

    let can = bob.stdout(&["auth", "can-i", "delete", "nodes"]).await;
    let who = bob.stdout(&["auth", "whoami", "-o", "json"]).await;

    assert_eq!(can.trim(), "yes");
    let who: Value = serde_json::from_str(&who).expect("JSON");
    let user = &who["status"]["userInfo"];
    assert_eq!(user["username"], "bob");
    assert_eq!(user["groups"], serde_json::json!([GROUP, "tombolo:team-b", "system:authenticated"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clusters_audit_log_names_the_agent_and_the_caller() {
    let edge = RealEdge::shared().await;
    let kubeconfig = edge.rig.kubeconfig("dora", &[GROUP], CLUSTER).await;

    edge.cluster.kubectl_with(kubeconfig).stdout(&["get", "namespace", "default"]).await;

    let of_dora =
        |event: &AuditEvent| event.impersonated_user.as_ref().is_some_and(|user| user.username == "dora");
    let event = edge.cluster.wait_for_audit(SOON, of_dora).await.expect("an event of dora");
    assert_eq!(event.user.username, account::USERNAME);
}

/// The agent asked its cluster where its control plane is, and the gateway shows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_control_plane_is_found() {
    let edge = RealEdge::shared().await;
    let (advertise, port) = (edge.cluster.options().advertise, edge.cluster.address().port());
    let advertised = format!("\"endpoints\":[\"{advertise}:{port}\"]");
    edge.rig.listed(CLUSTER, |item| item.contains(&advertised)).await;
}
