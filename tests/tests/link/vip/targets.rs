//! The table of targets, behind addresses of the server's host.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use tests::caller::status_of_connect;
use tests::client_network::ClientNetwork;
use tests::echo::Echo;
use tests::fake_api::{FakeApi, FakeApiOptions};
use tests::lab::{Site, Uplink, trial};
use tests::listener::{Listener, count};
use tests::rig::policy::{may_dial, user_may_dial};
use tests::rig::{Agent, ApiServer, GROUP, Rig};
use tests::targets;

pub(super) const CLUSTER: &str = "edge-a";

/// The address comes in CONNECT's target, or an address of the host selects it.
#[test]
fn connect_and_host_addresses_judge_an_address_alike() {
    trial("connect_and_host_addresses_judge_an_address_alike", async |lab| {
        let mut rig = lab.rig("").await;
        let site = lab.site(CLUSTER, Uplink::Cable).await;
        let Listed { echo: listed, .. } = &Listed::start(&rig, &site).await;
        let by_token = may_dial("admins", ("token", &format!("token:{GROUP}")), &["*"]);
        rig.put_policy(&[
            by_token,
            user_may_dial("office", ("entry-point:office", "entry-point:office"), &[CLUSTER]),
        ])
        .await;

        let mut judged = Vec::new();
        let rows = targets::around(listed.address);
        for target in &rows {
            // No HTTP request could contain these.
            let is_tolerated = !target.contains(' ') && !target.starts_with(':');
            let status = if is_tolerated { status_of_connect(&rig, CLUSTER, target).await } else { 400 };
            judged.push((target, status));
        }
        assert!(rows.len() > 500, "{}", rows.len());
        judged.retain(|(_, status)| *status != 400);
        assert!(judged.len() > 100, "{judged:?}");

        // What is none for the one a configuration cannot name, either: that is seen where TLS passes
        // through.
        let addresses: Vec<SocketAddr> = (0..judged.len()).map(virtual_address).collect();
        let entries = judged.iter().zip(&addresses).map(|((target, _), address)| {
            format!("    - {{ listen: \"{address}\", cluster: {CLUSTER}, target: {target:?} }}\n")
        });
        let entries: String = entries.collect();
        rig.kill_server();
        rig.write_config(|config| {
            format!("{config}\nvip:\n  entryPoints:\n  - name: office\n    sources: [10.8.1.0/24]\n    addresses:\n{entries}")
        });
        rig.start_server().await;
        rig.connected(CLUSTER).await;
        let client_network = ClientNetwork::build(lab, 1).await;
        for ((target, status), address) in judged.iter().zip(addresses) {
            let reached = client_network.echoing("10.8.1.2", &address.to_string()).await.map(drop);
            match status {
                200 => assert_eq!(reached, Ok(()), "{target}"),
                403 => assert_eq!(reached, Err(ErrorKind::ConnectionReset), "{target}"),
                other => panic!("{target}: {other}"),
            }
        }
        assert!(judged.iter().any(|(_, status)| *status == 200));
    });
}

/// An agent at a site, and the targets that it has.
pub(super) struct Listed {
    pub(super) echo: Echo,
    pub(super) counting: Listener,
    _agent: Agent,
    _fake: FakeApi,
}

impl Listed {
    pub(super) async fn start(rig: &Rig, site: &Site) -> Self {
        let fake = site.fake_api(FakeApiOptions::default()).await;
        let (echo, counting) = (site.run(Echo::start()).await, site.run(Listener::start(count)).await);
        let api = ApiServer::of_fake(rig, &fake);
        let targets = [echo.address.to_string(), counting.address.to_string()];
        let agent = site.agent_of(rig, CLUSTER, &api, &format!("targets: {targets:?}\n")).await;
        rig.connected(CLUSTER).await;
        let [here, there] = &targets;
        tests::enroll::at(rig, &["cluster", "update", CLUSTER, "--advertise", here, "--advertise", there])
            .await;
        Self { echo, counting, _agent: agent, _fake: fake }
    }
}

fn virtual_address(index: usize) -> SocketAddr {
    let offset = u32::try_from(index).expect("few") + 1;
    SocketAddrV4::new(Ipv4Addr::from_bits(Ipv4Addr::new(10, 255, 0, 0).to_bits() + offset), 443).into()
}
