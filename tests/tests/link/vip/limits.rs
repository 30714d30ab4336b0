//! The limits of connections to an address at once, and that no byte of the accepted ones is lost.

use std::io::ErrorKind;

use tests::client_network::ClientNetwork;
use tests::lab::{Uplink, trial};
use tests::listener::uploads_arrive_complete;
use tests::rig::policy::{user_may_dial, usual};

use super::targets::{CLUSTER, Listed};

const ADDRESS: &str = "10.255.0.1:443";
/// The address whose target counts bytes.
const COUNTING: &str = "10.255.0.2:443";

/// Uploads that are closed at once.
const UPLOADS: usize = 50;

/// The addresses of clients in the network.
const SOURCES: [&str; 2] = ["10.8.1.2", "10.8.1.3"];

/// The next connection is reset.
#[test]
fn connections_to_an_address_are_limited_in_all_and_by_source() {
    trial("connections_to_an_address_are_limited_in_all_and_by_source", async |lab| {
        let mut rig = lab.rig("").await;
        let site = lab.site(CLUSTER, Uplink::Cable).await;
        let listed = Listed::start(&rig, &site).await;
        let rule = user_may_dial("office", ("entry-point:office", "entry-point:office"), &[CLUSTER]);
        rig.put_policy(&usual().into_iter().chain([rule]).collect::<Vec<_>>()).await;
        rig.kill_server();
        let vip = format!(
            "vip: {{ entryPoints: [{{ name: office, sources: [10.8.1.0/24], connections: 3, connectionsPerSource: 2, addresses: [{{ \
             listen: \"{ADDRESS}\", cluster: {CLUSTER}, target: \"{}\" }}, {{ listen: \"{COUNTING}\", cluster: {CLUSTER}, target: \
             \"{}\" }}] }}] }}\n",
            listed.echo.address, listed.counting.address
        );
        rig.write_config(|config| format!("{config}\n{vip}"));
        rig.start_server().await;
        rig.connected(CLUSTER).await;
        let client_network = ClientNetwork::build(lab, 1).await;
        client_network.has_too(SOURCES[1]).await;
        let [one, other] = SOURCES;

        let mut held = vec![
            client_network.echoing(one, ADDRESS).await.unwrap(),
            client_network.echoing(one, ADDRESS).await.unwrap(),
        ];
        assert_eq!(client_network.echoing(one, ADDRESS).await.map(drop), Err(ErrorKind::ConnectionReset));
        held.push(client_network.echoing(other, ADDRESS).await.unwrap());
        assert_eq!(client_network.echoing(other, ADDRESS).await.map(drop), Err(ErrorKind::ConnectionReset));

        for (limit, most) in [("vip_connections", 3.0), ("vip_source", 2.0)] {
            let used = format!("tombolo_server_limit_used{{limit=\"{limit}\"}}");
            assert!((rig.metric(rig.probes(), &used).await - most).abs() < 0.5, "{limit}");
            let limited = format!("tombolo_server_limited_total{{limit=\"{limit}\"}}");
            assert!((rig.metric(rig.probes(), &limited).await - 1.0).abs() < 0.5, "{limit}");
        }
        held.clear();
        rig.measured("tombolo_server_limit_used{limit=\"vip_connections\"}", |used| used < 0.5).await;
        drop(client_network.echoing(one, ADDRESS).await.unwrap());

        uploads_arrive_complete(UPLOADS, 3_000_000, async || {
            let used = "tombolo_server_limit_used{limit=\"vip_connections\"}";
            rig.measured(used, |used| used < 1.5).await;
            client_network.connected(COUNTING).await.unwrap()
        })
        .await;
    });
}
