//! The names in an API server's certificate: its agent reports them, and people are warned before a
//! kubeconfig fails by them.

use serde_json::Value;
use tests::enroll::at;
use tests::kube::{ClusterOptions, EdgeCluster};
use tests::rig::{ApiServer, Rig};

const CLUSTER: &str = "edge-a";

/// A name beside those that every API server of a trial has.
const NAME: &str = "api.edge-a.test";
const OTHER_NAME: &str = "api.edge-b.test";

/// The command warns of a kubeconfig that would not verify them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_names_in_an_api_servers_certificate_are_shown() {
    let place = ClusterOptions { server_names: &[NAME], ..ClusterOptions::default() };
    let cluster = EdgeCluster::start_at(place).await.unwrap();
    let account = cluster.create_agent_account().await.unwrap();
    let rig = Rig::start().await;
    let _agent = rig.agent(CLUSTER, &ApiServer::of(&cluster, &account)).await;
    let (advertise, asked) = (cluster.options().advertise, cluster.address());
    let control_plane = format!("{advertise}:{}", asked.port());
    at(&rig, &["cluster", "update", CLUSTER, "--advertise", &control_plane]).await;
    // An agent that has found it has seen its certificate.
    rig.listed(CLUSTER, |listed| listed.contains(&control_plane)).await;

    let shown: Value = serde_json::from_str(&at(&rig, &["clusters", "-o", "json"]).await).unwrap();

    let certificates = &shown["items"][0]["status"]["tunnels"][0]["certificates"];
    assert_eq!(certificates.as_array().map(Vec::len), Some(1), "{shown}");
    assert_eq!(certificates[0]["address"], asked.to_string(), "{shown}");
    assert_eq!(certificates[0]["cut"], false, "{shown}");
    let names: Vec<&str> =
        certificates[0]["names"].as_array().unwrap().iter().flat_map(Value::as_str).collect();
    for name in [NAME, "kubernetes.default.svc", &advertise.to_string(), "127.0.0.1"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    let wide = at(&rig, &["clusters", "-o", "wide"]).await;
    assert!(wide.contains("CERTIFICATE") && wide.contains(NAME), "{wide}");
    // By the address that its own kubeconfig would name, and by names that it has and has not.
    let own = std::fs::read_to_string(cluster.admin_kubeconfig()).unwrap();
    let own = own.replace(&format!("https://{asked}"), &format!("https://{control_plane}"));
    for (name, is_there) in [(None, true), (Some(NAME), true), (Some(OTHER_NAME), false)] {
        let file = rig.write("own.conf", &named(&own, name));
        let words = ["cluster", "check", CLUSTER, "--kubeconfig", file.to_str().unwrap()];
        let asked = name.map_or_else(|| advertise.to_string(), str::to_owned);
        let socket = ["--socket", "admin/admin.sock"];
        let output = rig.tombolo_writes(&[&words[..], &socket].concat()).await;
        let (good, bad) = (format!("is for {asked}"), format!("is not for {asked}, but for "));
        assert_eq!((output.contains(&good), output.contains(&bad)), (is_there, !is_there), "{output}");
        for word in
            ["apiServer.certSANs", &format!("--tls-san {asked}"), "--tls-cert-file", "--tls-sni-cert-key"]
        {
            assert_eq!(output.contains(word), !is_there, "{word}: {output}");
        }
        if is_there {
            at(&rig, &words).await;
        }
    }
}

/// The kubeconfig with another name to verify, if one is given.
fn named(kubeconfig: &str, name: Option<&str>) -> String {
    let Some(name) = name else { return kubeconfig.to_owned() };
    kubeconfig.replacen("    server: ", &format!("    tls-server-name: {name}\n    server: "), 1)
}
