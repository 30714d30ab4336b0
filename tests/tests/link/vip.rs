//! Two sites whose control planes have one address, which the server's host has, too: each is reached from a
//! client network of its own, by an unchanged admin.conf.

mod host_cluster;
mod host_cluster_faults;
mod limits;
mod moving_records;
mod published;
mod several_servers;
mod targets;

use std::fs;
use std::io::ErrorKind;

use rustix::process::Signal;
use tests::audit_log::{AuditLog, note};
use tests::binaries::binary;
use tests::caller::SOON;
use tests::client_network::ClientNetwork;
use tests::kube::audit::AuditEvent;
use tests::lab::{Lab, trial};
use tests::process::{Invocation, run};
use tests::rig::Rig;
use tests::rig::policy::user_may_dial;

use super::by_address::{ByAddressEdge, uid};
use super::passthrough::goes_on_behind_an_outage;

/// The address of both control planes.
const CONTROL_PLANE: &str = "192.168.1.10:6443";
/// An address of the first cluster that no other one has.
const VIRTUAL: &str = "10.255.0.1:443";

/// Further addresses, of which nobody has thought.
const RANGE: &str = "  - { name: six, sources: [10.8.3.0/24], range: { network: 'fd00:7::/64', clusters: [edge-a, edge-b] } }\n";

/// The number of times that each cluster is asked in turn.
const TURNS: usize = 10;

/// The network that a client comes from selects the cluster of the address.
#[test]
fn an_unchanged_admin_conf_reaches_the_cluster_of_its_address() {
    trial("an_unchanged_admin_conf_reaches_the_cluster_of_its_address", async |lab| {
        let rig = lab.rig(&entry_points("")).await;
        let edges = [
            ByAddressEdge::start(lab, &rig, "edge-a").await,
            ByAddressEdge::start(lab, &rig, "edge-b").await,
        ];
        rig.put_policy(&rules()).await;
        let client_networks = [
            ClientNetwork::build(lab, 1).await,
            ClientNetwork::build(lab, 2).await,
            ClientNetwork::build(lab, 3).await,
        ];
        let kubectls =
            [client_networks[0].kubectl(&edges[0].cluster), client_networks[1].kubectl(&edges[1].cluster)];

        let uids = [uid(edges[0].cluster.admin()).await, uid(edges[1].cluster.admin()).await];
        assert_ne!(uids[0], uids[1]);
        for turn in 0..TURNS {
            for (kubectl, expected) in kubectls.iter().zip(&uids) {
                assert_eq!(uid(kubectl.clone()).await, *expected, "turn {turn}");
            }
        }

        // By its client certificate, which only the API server has asked for.
        let whoami = ["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"];
        let admin = edges[0].cluster.admin().stdout(&whoami).await;
        assert_eq!(kubectls[0].stdout(&whoami).await, admin);
        let crd = rig.write("islands.yaml", include_str!("../../fixtures/islands.yaml"));
        kubectls[0].stdout(&["apply", "-f", crd.to_str().unwrap()]).await;
        let made =
            |event: &&AuditEvent| event.verb == "create" && event.request_uri.contains("customresource");
        let events = edges[0].cluster.audit().unwrap();
        let made = events.iter().find(made).expect("the CRD was made");
        assert_eq!((&made.user.username, &made.impersonated_user), (&admin, &None));
        let log = AuditLog::of(&rig);
        let intents = log.intents();
        let of_network = |name: &str| {
            let user = format!("entry-point:{name}");
            intents.iter().find(|intent| intent["user"]["username"] == user).expect("it was recorded")
        };
        for (name, cluster, source) in
            [("office-1", "edge-a", "source:10.8.1.0/24"), ("office-2", "edge-b", "source:10.8.2.0/24")]
        {
            let intent = of_network(name);
            let noted = ["cluster", "target", "listener", "authenticated", "credential-serial"]
                .map(|key| note(intent, key));
            assert_eq!(noted, [cluster, CONTROL_PLANE, "vip", "false", source]);
        }

        // By an address that is nobody else's, where the certificate's name has to be said.
        let [server, name] =
            [format!("--server=https://{VIRTUAL}"), "--tls-server-name=192.168.1.10".to_owned()];
        let get = ["get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}", &server, &name];
        assert_eq!(client_networks[0].kubectl(&edges[0].cluster).stdout(&get).await, uids[0]);

        goes_on_behind_an_outage(&rig, &edges[0], &kubectls[0]).await;

        // What an address means elsewhere helps nobody, and who comes from nowhere is reset, as is who comes
        // for another's address.
        assert_eq!(client_networks[2].reached(CONTROL_PLANE).await, Err(ErrorKind::ConnectionReset));
        assert_eq!(client_networks[1].reached(VIRTUAL).await, Err(ErrorKind::ConnectionReset));
        let refused = "tombolo_server_refusals_total{reason=\"SourceRefused\"}";
        assert!((rig.metric(rig.probes(), refused).await - 2.0).abs() < 0.5);
        let output = client_networks[1].kubectl(&edges[0].cluster).refusal(&["get", "namespaces"]).await;
        assert!(output.contains("certificate signed by unknown authority"), "{output}");

        // While policy does not name its entry point, it refuses everybody, and the other one works as
        // before.
        rig.put_policy(&rules()[1..]).await;
        assert_eq!(client_networks[0].reached(CONTROL_PLANE).await, Err(ErrorKind::ConnectionReset));
        assert_eq!(uid(kubectls[1].clone()).await, uids[1]);
    });
}

/// Nothing else of the host is touched.
#[test]
fn a_server_reverts_all_changes_to_its_host_however_it_ends() {
    trial("a_server_reverts_all_changes_to_its_host_however_it_ends", async |lab| {
        let mut rig = lab.rig("").await;
        rig.kill_server();
        let without = state(lab).await;
        let as_it_was = fs::read_to_string(rig.path().join("server.yaml")).unwrap();
        let with = |vip: &str| format!("{as_it_was}\n{vip}");

        let ranged = format!("{}{RANGE}", entry_points(""));
        rig.write_config(|_| with(&ranged));
        let config = rig.path().join("server.yaml").display().to_string();
        let says = run(
            &Invocation::of(binary("tunnel-server"))
                .arguments(["--config", &config, "--dry-run"])
                .in_network_namespace(Some(lab.cloud().path().to_owned()))
                .in_directory(rig.path()),
            SOON,
        )
        .await
        .unwrap();
        let says = String::from_utf8(says.stdout).unwrap();
        assert!(
            [
                "ip tuntap add dev tombolo0 mode tun",
                "ip address add 192.168.1.10/32 dev tombolo0",
                "entry-point:office-2",
                "ip address add fd00:7::1/128 dev tombolo0",
                "# edge-a would be given fd00:7::1",
            ]
            .iter()
            .all(|line| says.contains(line)),
            "{says}"
        );
        assert_eq!(state(lab).await, without, "a dry run changes nothing");

        for end in [Signal::TERM, Signal::KILL] {
            rig.start_server().await;
            let during = state(lab).await;
            assert!(during.contains("192.168.1.10") && during.contains("10.255.0.1"), "{during}");
            assert!(during.contains("fd00:7::1/128") && during.contains("fd00:7::2/128"), "{during}");
            let _ = Rig::ends_with(rig.server(), end).await;
            assert_eq!(state(lab).await, without, "{end:?}");
        }

        // Somebody else's interface, and addresses that others near by have.
        lab.cloud().ip("tuntap add dev tombolo0 mode tun").await.unwrap();
        let with_theirs = state(lab).await;
        let refused = rig.start_server_and_fail().await;
        assert_eq!(refused, Some(1));
        assert!(rig.server_log().contains("tombolo0 is there already"), "{}", rig.server_log());
        assert_eq!(state(lab).await, with_theirs);
        lab.cloud().ip("link delete tombolo0").await.unwrap();
        let _client_network = ClientNetwork::build(lab, 7).await;
        let with_network = state(lab).await;
        for too_close in ["10.8.7.9:6443", "192.0.2.1:6443"] {
            rig.write_config(|_| with(&entry_points(too_close)));
            assert_eq!(rig.start_server_and_fail().await, Some(1), "{too_close}");
            assert!(rig.server_log().contains("this host would answer"), "{}", rig.server_log());
            assert_eq!(state(lab).await, with_network);
        }
    });
}

/// All that the kernel knows of interfaces, addresses, routes and rules in the cloud, but of counters.
async fn state(lab: &Lab) -> String {
    let mut all = String::new();
    for words in
        ["-o link show", "-o address show", "route show table all", "-6 route show table all", "rule show"]
    {
        all.push_str(&lab.cloud().ip(words).await.unwrap());
    }
    all
}

/// An office for each cluster, to which one address means its own; `more` is another address of the second.
fn entry_points(more: &str) -> String {
    let more =
        if more.is_empty() { String::new() } else { format!(", {{ listen: \"{more}\", cluster: edge-b }}") };
    format!(
        "vip:\n  entryPoints:\n  - name: office-1\n    sources: [10.8.1.0/24]\n    addresses:\n    - {{ listen: \"{CONTROL_PLANE}\", \
         cluster: edge-a }}\n    - {{ listen: \"{VIRTUAL}\", cluster: edge-a, target: \"{CONTROL_PLANE}\" }}\n  - name: office-2\n    \
         sources: [10.8.2.0/24]\n    addresses: [{{ listen: \"{CONTROL_PLANE}\", cluster: edge-b }}{more}]\n"
    )
}

fn rules() -> [String; 2] {
    [("office-1", "edge-a"), ("office-2", "edge-b")].map(|(name, cluster)| {
        let entry_point = format!("entry-point:{name}");
        user_may_dial(name, (&entry_point, &entry_point), &[cluster])
    })
}
