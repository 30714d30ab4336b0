//! `loadtest get`: what a small GET pays on its way through gateway and tunnel to a real kube-apiserver.

use std::error::Error;

use ::tests::kube::EdgeCluster;
use ::tests::kube::assets::pinned_kubernetes;
use ::tests::kube::kubeconfig::Credential;
use ::tests::pki::Issued;
use ::tests::rig::{ApiServer, GROUP};
use tokio::time::sleep;

use crate::args::GetFlags;
use crate::layout::SETTLE;
use crate::report::{Heading, Report};
use crate::rig::{Tunneled, USER};
use crate::trial::{Load, compare};
use crate::way::{Door, Way};

/// What is asked for, by both ways.
const SMALL: &str = "/api/v1/namespaces/default";

/// What lets the callers' group do everything in the cluster.
const ADMINS: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: tombolo-admins }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin }
subjects: [{ apiGroup: rbac.authorization.k8s.io, kind: Group, name: \"tombolo:admins\" }]
";

/// Measures and reports.
///
/// # Errors
/// Any that stands in the way of a report.
pub async fn run(flags: &GetFlags) -> Result<(), Box<dyn Error>> {
    let cluster = EdgeCluster::start().await?;
    let account = cluster.create_agent_account().await?;
    let admins = cluster.directory().join("admins.yaml");
    std::fs::write(&admins, ADMINS)?;
    cluster.admin().stdout(&["apply", "-f", &admins.display().to_string()]).await;

    let mut tunneled = Tunneled::start(&ApiServer::of(&cluster, &account), 1, "").await;
    let ways = [direct(&cluster), tunneled.way("tunnel".to_owned(), SMALL, None).await];
    sleep(SETTLE).await;

    let heading = Heading::new("get", Some(pinned_kubernetes().to_owned()), &ways)?;
    let loads: Vec<Load> = flags.callers.iter().map(|&callers| Load::Small { callers }).collect();
    let ledger = compare(&ways, &loads, &flags.rounds).await?;
    Report::new(heading, &flags.rounds, &ledger).publish(flags.rounds.json.as_deref())?;
    cluster.stop().await?;
    Ok(())
}

/// The same user of the same group, by a certificate of the cluster's own authority.
fn direct(cluster: &EdgeCluster) -> Way {
    let door = Door {
        address: cluster.address(),
        ca_pem: cluster.ca_pem().to_owned(),
        identity: Some(certificate(cluster.issue_user(USER, &[GROUP]))),
    };
    let small = vec![door.uri(SMALL)];
    Way { name: "direct".to_owned(), door, small, bulk: None, daemons: None }
}

fn certificate(credential: Credential) -> Issued {
    match credential {
        Credential::Certificate(issued) => issued,
        Credential::Token(_) => unreachable!("a user is issued a certificate"),
    }
}
