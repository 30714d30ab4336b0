//! Streams go on and requests are answered while the addresses of the agent change.

use std::net::Ipv4Addr;

use tests::caller::{Http1Caller, Http2Caller, head};
use tests::fake_api::{Behaviour, FakeApi, FakeApiOptions, HttpVersion};
use tests::lab::{Lab, Site, Uplink, trial};
use tests::rig::{Agent, Rig};

const EXEC: &str = "/api/v1/namespaces/n/pods/p/exec?command=sh&stdin=true";
/// Echoes and requests between two changes.
const ROUNDS: u8 = 5;

#[test]
fn no_stream_breaks_and_no_request_fails_while_ports_and_addresses_change() {
    trial("no_stream_breaks_while_addresses_change", async |lab| {
        let uplink = Uplink::simulated("delay=10ms").with(&["--nat"]);
        let mut edge = AddressEdge::start(lab, uplink).await;
        // Where the NAT's further addresses are.
        lab.cloud().ip("route add 100.127.0.0/24 dev site-0").await.unwrap();
        edge.goes_on().await;
        for last in 1..4 {
            edge.site.link().rebind(None).await;
            edge.goes_on().await;
            edge.site.link().rebind(Some(Ipv4Addr::new(100, 127, 0, last))).await;
            edge.goes_on().await;
            // As when a lease ends: no address at all for a moment, then another.
            let pod = edge.site.pod();
            let device = format!("eth{}", last - 1);
            pod.ip(&format!("addr flush dev {device}")).await.unwrap();
            pod.ip(&format!("addr add 10.42.0.{}/24 dev {device}", 100 + last)).await.unwrap();
            pod.ip("route add default via 10.42.0.1").await.unwrap();
            edge.goes_on().await;
            // As where a network card is replaced, or a pod's network is set up again.
            edge.site.replace_interface(&format!("eth{last}"), 200 + last).await;
            edge.goes_on().await;
        }
        let opened = edge.rig.server_log().matches("tunnel opened").count();
        assert_eq!(opened, 1, "the tunnel of the beginning");
    });
}

#[test]
fn no_stream_or_request_fails_while_the_nodes_uplink_changes_addresses() {
    trial("no_stream_breaks_while_the_nodes_uplink_gets_other_addresses", async |lab| {
        let mut edge = AddressEdge::start(lab, Uplink::simulated("delay=10ms")).await;
        edge.goes_on().await;
        for last in 1..4 {
            edge.site.replace_address(lab.cloud(), Ipv4Addr::new(100, 127, 0, last)).await;
            edge.goes_on().await;
        }
        let opened = edge.rig.server_log().matches("tunnel opened").count();
        assert_eq!(opened, 1, "the tunnel of the beginning");
    });
}

/// A site whose API server echoes on upgraded connections and answers everything else.
struct AddressEdge {
    rig: Rig,
    site: Site,
    _agent: Agent,
    _api: FakeApi,
    piped: Http1Caller,
    caller: Http2Caller,
    sent: u8,
}

impl AddressEdge {
    async fn start(lab: &Lab, uplink: Uplink) -> Self {
        let rig = lab.rig("").await;
        let site = lab.site("edge-a", uplink).await;
        let api = site
            .fake_api(FakeApiOptions { versions: vec![HttpVersion::Http1], ..FakeApiOptions::default() })
            .await;
        api.on("/api/v1/namespaces/n/pods/p/exec", Behaviour::upgrade());
        api.otherwise(Behaviour::json("{}"));
        let agent = site.agent(&rig, &api, "").await;
        let mut piped = Http1Caller::dial(&rig).await;
        let upgrade = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n";
        piped.write(head("POST", &format!("/clusters/edge-a{EXEC}"), upgrade)).await;
        assert!(piped.read_head().await.starts_with("HTTP/1.1 101 "));
        let caller = Http2Caller::dial(&rig).await;
        Self { rig, site, _agent: agent, _api: api, piped, caller, sent: 0 }
    }

    /// All bytes that were sent are echoed in order, and requests are answered.
    async fn goes_on(&mut self) {
        for _ in 0..ROUNDS {
            self.sent += 1;
            self.piped.write([self.sent; 100]).await;
            assert_eq!(self.piped.read_exactly(100).await, [self.sent; 100]);
            let answer = self.caller.ask("GET", "/clusters/edge-a/x", &[]).await.unwrap();
            assert_eq!((answer.status().as_u16(), answer.body().as_ref()), (200, b"{}".as_slice()));
        }
    }
}
