//! Named networks: an address selects the one cluster of a network that has it, and an address of several
//! clusters is refused.

use rustix::process::Signal;
use serde_json::Value;
use tests::audit_log::{AuditLog, note};
use tests::caller::{GATEWAY, Http1Caller, head};
use tests::enroll::at;
use tests::fake_api::FakeApi;
use tests::listener::{Listener, echo};
use tests::pki::Issued;
use tests::rig::policy::{may_dial, user_may_dial};
use tests::rig::{Agent, ApiServer, GROUP, Reply, Rig, TOKEN, ask};

const PLANT: &str = "plant-1";
const OTHER_PLANT: &str = "plant-2";

/// No cluster is selected where several have it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_network_an_address_selects_the_one_cluster_that_has_it() {
    let mut setup = NetworksSetup::start().await;
    let target = setup.listed.address.to_string();
    for (cluster, network) in [("edge-a", PLANT), ("edge-b", OTHER_PLANT)] {
        setup.add_cluster(cluster, network, &[&target], &[&target]).await;
    }
    let bob = setup.rig.caller("bob", &[]).await;

    for (network, cluster) in [(PLANT, "edge-a"), (OTHER_PLANT, "edge-b"), (PLANT, "edge-a")] {
        let intent = setup.reached(network, &target).await;
        assert_eq!((note(&intent, "cluster"), note(&intent, "network")), (cluster, network), "{intent}");
    }
    assert_eq!(setup.dials().await, [2.0, 1.0]);
    setup.add_cluster("edge-c", PLANT, &[&target], &[&target]).await;

    let refused = setup.ask(None, &target, &[("Tombolo-Network", PLANT), ("Audit-ID", "ambiguous")]).await;

    assert_eq!((refused.status, refused.cause().as_str()), (403, "TargetAmbiguous"), "{refused:?}");
    let line = refused.head.lines().next().unwrap();
    assert!(line.contains(&format!("{target} is ambiguous among edge-a, edge-c")), "{line}");
    assert!(!refused.body.contains("edge-b") && !refused.head.contains("edge-b"), "{refused:?}");
    let log = AuditLog::of(&setup.rig).about("ambiguous");
    let completion = log.completions()[0].clone();
    assert_eq!(completion["responseStatus"]["reason"], "TargetAmbiguous", "{completion}");
    for (key, value) in [("among", "edge-a, edge-c"), ("network", PLANT), ("decision", "forbid")] {
        assert_eq!(note(&completion, key), value, "{completion}");
    }
    assert!(setup.rig.server_log().contains("an address that several clusters have"));
    // To whom policy gives one of them there is no other.
    let intent = setup.reached_by(Some(&bob), PLANT, &target).await;
    assert_eq!((note(&intent, "cluster"), intent["user"]["username"].as_str()), ("edge-a", Some("bob")));
    // Where he may reach nothing he reads what he reads of a network that there is not.
    let [nowhere, unknown] = [OTHER_PLANT, "plant-3"].map(async |network| {
        let reply = setup.ask(Some(&bob), &target, &[("Tombolo-Network", network)]).await;
        assert_eq!((reply.status, reply.cause().as_str()), (403, "TargetRefused"), "{reply:?}");
        assert!(!reply.body.contains("edge-"), "{reply:?}");
        reply.body
    });
    assert_eq!(nowhere.await, unknown.await);
    assert_eq!(setup.dials().await, [3.0, 1.0, 0.0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_names_one_network_and_no_cluster_beside_it() {
    let mut setup = NetworksSetup::start().await;
    let target = setup.listed.address.to_string();
    setup.add_cluster("edge-a", PLANT, &[&target], &[&target]).await;
    let (cluster, network) = (("Tombolo-Cluster", "edge-a"), ("Tombolo-Network", PLANT));

    for (target, headers, status, cause) in [
        (target.as_str(), &[network, cluster][..], 400, "NotARequest"),
        (&target, &[network, network], 400, "NotARequest"),
        (&target, &[("Tombolo-Network", "Plant_1")], 400, "NotARequest"),
        (&target, &[("Tombolo-Network", "")], 400, "NotARequest"),
        (&target, &[("Tombolo-Network", "edge-a")], 403, "TargetRefused"),
        ("127.1:80", &[network], 400, "NotARequest"),
        ("169.254.169.254:80", &[network], 403, "TargetRefused"),
    ] {
        let reply = setup.ask(None, target, headers).await;
        assert_eq!((reply.status, reply.cause().as_str()), (status, cause), "{headers:?}: {reply:?}");
    }
    // Who comes by a cluster's host name is bound to that cluster.
    for (name, status) in [("edge-a.clusters.test", "421"), ("edge-b.clusters.test", "421"), (GATEWAY, "200")]
    {
        let mut caller = Http1Caller::dial_name(&setup.rig, name, None).await;
        caller.write(head("CONNECT", &target, &format!("Tombolo-Network: {PLANT}\r\n"))).await;
        let answer = caller.read_head().await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{name}: {answer}");
    }
    // A request that is no CONNECT says its cluster as ever.
    let reply = setup.rig.ask_with_token("GET", "/clusters", &[network]).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(setup.listed.accepted(), 1);
}

/// No other cluster takes the address over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_stays_with_its_cluster_while_the_cluster_is_away() {
    let mut setup = NetworksSetup::start().await;
    let target = setup.listed.address.to_string();
    let elsewhere = "127.0.0.1:1";
    // A site's complete network, of which agents report the addresses that they have.
    setup.add_cluster("edge-a", PLANT, &["127.0.0.0/8"], &[&target]).await;
    setup.add_cluster("edge-b", PLANT, &["127.0.0.0/8"], &[elsewhere]).await;
    assert_eq!(note(&setup.reached(PLANT, &target).await, "cluster"), "edge-a");
    // A disconnected cluster has the addresses that its agent reported last, and not all that it might have.
    setup.stop("edge-b").await;
    assert_eq!(note(&setup.reached(PLANT, &target).await, "cluster"), "edge-a");
    setup.start_agent("edge-b", &[elsewhere]).await;

    setup.stop("edge-a").await;

    let away = setup.ask(None, &target, &[("Tombolo-Network", PLANT)]).await;
    assert_eq!((away.status, away.cause().as_str()), (503, "ClusterNotConnected"), "{away:?}");
    assert!(away.body.contains("edge-a") && !away.body.contains("edge-b"), "{away:?}");
    // Now the other cluster's agent reports that it has it.
    setup.stop("edge-b").await;
    setup.start_agent("edge-b", &[&target]).await;
    let taken = setup.ask(None, &target, &[("Tombolo-Network", PLANT)]).await;
    assert_eq!((taken.status, taken.cause().as_str()), (403, "TargetAmbiguous"), "{taken:?}");
    // Nor when the server has forgotten what the other's agents said.
    setup.rig.kill_server();
    setup.rig.start_server().await;
    setup.rig.connected("edge-b").await;
    let taken = setup.ask(None, &target, &[("Tombolo-Network", PLANT)]).await;
    assert_eq!((taken.status, taken.cause().as_str()), (403, "TargetAmbiguous"), "{taken:?}");
    assert_eq!(setup.listed.accepted(), 2);
    // People's word is what gives it away.
    at(&setup.rig, &["cluster", "update", "edge-a", "--advertise", "10.0.0.0/8"]).await;
    assert_eq!(note(&setup.reached(PLANT, &target).await, "cluster"), "edge-b");
}

/// A server, clusters in networks, and one address that any of them may have.
struct NetworksSetup {
    rig: Rig,
    fake: FakeApi,
    listed: Listener,
    agents: Vec<(String, Agent)>,
    asked: usize,
}

impl NetworksSetup {
    async fn start() -> Self {
        let rig = Rig::start_with("parking: { limitSeconds: 1 }").await;
        rig.put_policy(&[
            may_dial("dialers", ("token", &format!("token:{GROUP}")), &["*"]),
            user_may_dial("bob", ("client-certificate", "bob"), &["edge-a"]),
        ])
        .await;
        let (fake, listed) = (FakeApi::start().await.unwrap(), Listener::start(echo).await);
        Self { rig, fake, listed, agents: Vec::new(), asked: 0 }
    }

    /// Adds a cluster to a network. `listed` are the addresses in the store, and `targets` those that its
    /// agent advertises and dials.
    async fn add_cluster(&mut self, cluster: &str, network: &str, listed: &[&str], targets: &[&str]) {
        let listed = listed.iter().flat_map(|listed| ["--advertise", listed]);
        let words = ["cluster", "create", cluster, "--network", network];
        at(&self.rig, &words.into_iter().chain(listed).collect::<Vec<_>>()).await;
        self.start_agent(cluster, targets).await;
    }

    async fn start_agent(&mut self, cluster: &str, targets: &[&str]) {
        let api = ApiServer::of_fake(&self.rig, &self.fake);
        let agent = self.rig.agent_with(cluster, &api, &format!("targets: {targets:?}\n")).await;
        self.rig.connected(cluster).await;
        self.rig.listed(cluster, |listed| listed.contains(cluster) && listed.contains(targets[0])).await;
        self.agents.push((cluster.to_owned(), agent));
    }

    async fn stop(&mut self, cluster: &str) {
        let place = self.agents.iter().position(|(known, _)| known == cluster).unwrap();
        let (_, mut agent) = self.agents.remove(place);
        assert_eq!(Rig::ends_with(&mut agent.process, Signal::TERM).await, Some(0));
        self.rig.disconnected(cluster).await;
    }

    /// Number of connections that each agent has made, in the order of the agents' creation.
    async fn dials(&self) -> Vec<f64> {
        let mut dials = Vec::new();
        for (_, agent) in &self.agents {
            let made = "tombolo_agent_target_dials_total{outcome=\"connected\"}";
            dials.push(self.rig.metric(agent.probes, made).await);
        }
        dials
    }

    async fn ask(&self, identity: Option<&Issued>, target: &str, headers: &[(&str, &str)]) -> Reply {
        let authorization = format!("Bearer {TOKEN}");
        let own = [("Authorization", authorization.as_str())];
        let headers = if identity.is_some() { headers.to_vec() } else { [&own[..], headers].concat() };
        let (gateway, ca) = (self.rig.gateway(), self.rig.server_ca());
        ask(gateway, &ca, identity, "CONNECT", target, &headers).await.unwrap()
    }

    /// Sends a byte to the target by a network, reads its echo, and returns the audit line.
    async fn reached(&mut self, network: &str, target: &str) -> Value {
        self.reached_by(None, network, target).await
    }

    /// The same by the owner of a certificate.
    async fn reached_by(&mut self, identity: Option<&Issued>, network: &str, target: &str) -> Value {
        self.asked += 1;
        let id = format!("reached-{}", self.asked);
        let mut caller = Http1Caller::dial_name(&self.rig, GATEWAY, identity).await;
        let lines = format!("Tombolo-Network: {network}\r\nAudit-ID: {id}\r\n");
        let asked = match identity {
            Some(_) => format!("CONNECT {target} HTTP/1.1\r\nHost: {GATEWAY}\r\n{lines}\r\n"),
            None => head("CONNECT", target, &lines),
        };
        caller.write(asked).await;
        let answer = caller.read_head().await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        caller.write("x").await;
        assert_eq!(caller.read_exactly(1).await, b"x");
        AuditLog::of(&self.rig).about(&id).intents()[0].clone()
    }
}
