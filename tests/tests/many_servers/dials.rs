//! Targets that are dialed through a hop. Egress, the proxy and virtual addresses dial in the same way, at every server.

use tests::caller::status_of_connect;
use tests::echo::Echo;
use tests::enroll;
use tests::rig::policy::{may_dial, usual};
use tests::rig::{ApiServer, GROUP};

use crate::hop::HopTrial;
use crate::until;

#[tokio::test]
async fn a_target_is_dialed_through_the_server_that_has_the_tunnel() {
    let (trial, echo) = (HopTrial::start().await, Echo::start().await);
    let (target, relayed) = (echo.address.to_string(), "tombolo_server_relayed_requests_total");
    let more = format!("servers: [\"{}\"]\ntargets: [{target:?}]\n", trial.other.gateway);
    let api = ApiServer::of_fake(&trial.rig, &trial.api);
    let _agent = trial.rig.agent_with("edge-b", &api, &more).await;
    trial.rig.connected("edge-b").await;
    enroll::at(&trial.rig, &["cluster", "update", "edge-b", "--advertise", &target]).await;
    let dialers = may_dial("dialers", ("token", &format!("token:{GROUP}")), &["edge-b"]);
    trial.rig.put_policy(&usual().into_iter().chain([dialers]).collect::<Vec<_>>()).await;
    let before = trial.rig.metric(trial.other.probes, relayed).await;

    until("it is dialed", async || status_of_connect(&trial.rig, "edge-b", &target).await == 200).await;

    assert_eq!(echo.accepted(), 1);
    assert!(trial.rig.metric(trial.other.probes, relayed).await > before);
}
