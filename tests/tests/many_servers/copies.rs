//! One certificate that two processes use at two servers.

use tests::fake_api::FakeApi;
use tests::rig::ApiServer;

use crate::hop::HopTrial;
use crate::{PATH, SERVED, until};

#[tokio::test]
async fn a_copied_certificate_at_another_server_is_noticed_and_gets_nothing() {
    let trial = HopTrial::start().await;
    let rig = &trial.rig;
    for kind in ["crt", "key"] {
        let file = |name: &str| rig.path().join(format!("pki/{name}-agent.{kind}"));
        std::fs::copy(file("edge-a"), file("copy")).expect("a copy");
    }
    let copied_api = FakeApi::start().await.expect("a fake starts");
    let servers = format!("servers: [\"{}\"]\n", rig.gateway());

    let api = ApiServer::of_fake(rig, &copied_api);
    let _copy = rig.agent_without_certificate("copy", "edge-a", &api, &servers).await;

    let later = "two processes use one certificate at the same time: the later one is disconnected";
    rig.logged("server.log", 0, later).await;
    rig.logged("other.log", 0, "is used by another process at another server, too").await;
    let path = "/clusters/edge-a/asked";
    for gateway in [rig.gateway(), trial.other.gateway] {
        until("the first one serves", async || rig.ask_at(gateway, path).await.status == SERVED).await;
    }
    let of_copy = copied_api.requests();
    assert!(of_copy.iter().all(|request| !request.target.contains("asked")), "the copy got a request");
}

/// Its earlier process was killed, and its tunnel to the other server looks alive for minutes.
#[tokio::test]
async fn an_agent_that_was_restarted_serves_at_another_server() {
    let mut trial = HopTrial::start().await;
    trial.agent.process.kill();
    let servers = format!("servers: [\"{}\"]\n", trial.rig.gateway());
    let api = ApiServer::of_fake(&trial.rig, &trial.api);

    let _restarted = trial.rig.agent_with("edge-a", &api, &servers).await;

    let rig = &trial.rig;
    // Before the other server could have noticed the silence.
    rig.logged("other.log", 0, "tunnel closed").await;
    for gateway in [rig.gateway(), trial.other.gateway] {
        until("it serves", async || rig.ask_at(gateway, PATH).await.status == SERVED).await;
    }
    assert!(!rig.server_log().contains("two processes use one certificate"), "nobody had copied it");
}

/// No server can tell whether the frozen one has an earlier process of the agent.
#[tokio::test]
async fn a_server_that_cannot_ask_another_one_decides_alone() {
    let mut trial = HopTrial::start().await;
    let process = trial.other.process.as_mut().expect("it runs");
    process.signal(rustix::process::Signal::STOP).expect("it runs");
    trial.agent.process.kill();
    let servers = format!("servers: [\"{}\"]\n", trial.rig.gateway());
    let api = ApiServer::of_fake(&trial.rig, &trial.api);

    let _restarted = trial.rig.agent_with("edge-a", &api, &servers).await;

    let rig = &trial.rig;
    rig.logged("server.log", 0, "so this one decides alone").await;
    let gateway = rig.gateway();
    until("it serves", async || rig.ask_at(gateway, PATH).await.status == SERVED).await;
}
