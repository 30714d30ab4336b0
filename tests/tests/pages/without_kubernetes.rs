//! docs/start/without-kubernetes.md, command by command: server and agent are plain processes beside a real
//! API server.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use tests::binaries::binary;
use tests::console::blocks;
use tests::kube::assets::{Assets, NodeAssets};
use tests::kube::{ClusterOptions, EdgeCluster};
use tests::lab::{Lab, SERVER, trial};
use tests::language::TextFile;
use tests::node_cluster::CONTROL_PLANE;
use tests::process::Process;
use tests::skip::skip;
use tests::sources;
use tests::workstation::{Terminal, Workstation};

const PAGE: &str = "docs/start/without-kubernetes.md";

/// The daemons, which go on, and the text in their logs with which the next command may be typed.
const DAEMONS: [(&str, &str); 2] = [("tunnel-server ", "serving"), ("tunnel-agent ", "tunnel opened")];

/// The limit for a daemon to log its text. Builds of other tests may run beside.
const LOGGED_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Nothing is put in the place of anything on the page: `gateway.example` is in `/etc/hosts`.
#[test]
fn the_page_without_kubernetes_works_as_it_is_written() {
    let test = "the_page_without_kubernetes_works_as_it_is_written";
    let controllers = match NodeAssets::find() {
        Ok(controllers) => controllers,
        Err(missing) => return skip(test, &missing.to_string()),
    };
    trial(test, async |lab: &Lab| {
        let (address, port) = CONTROL_PLANE;
        lab.cloud().ip(&format!("addr add {address}/32 dev lo")).await.unwrap();
        let place = ClusterOptions {
            network_namespace: Some(lab.cloud().path().to_owned()),
            address: address.into(),
            port: Some(port),
            advertise: address.into(),
            has_controllers: true,
            ..ClusterOptions::default()
        };
        let cluster = EdgeCluster::start_at(place).await.unwrap();
        // One of them gives the ClusterRole `view` its rules.
        let _controllers = cluster.start_controllers(&controllers).await.unwrap();
        let filled = ["wait", "--for=jsonpath={.rules[0].verbs[0]}", "clusterrole/view", "--timeout=60s"];
        cluster.admin().limit(LOGGED_MAX).stdout(&filled).await;
        let kubectl = Assets::find().unwrap().kubectl;
        let [server, agent, tombolo] = ["tunnel-server", "tunnel-agent", "tombolo"].map(binary);
        let programs: [(&str, &Path); 4] = [
            ("tunnel-server", &server),
            ("tunnel-agent", &agent),
            ("tombolo", &tombolo),
            ("kubectl", &kubectl),
        ];
        let hosts = format!("127.0.0.1 localhost\n{SERVER} gateway.example\n");
        let workstation = Workstation::new(&hosts, &programs).await.unwrap();
        symlink(sources::workspace().join("deploy"), workstation.folder().join("deploy")).unwrap();
        let terminal = workstation.terminal(lab.cloud(), &cluster.admin_kubeconfig());

        let listed = typed(&terminal, &workstation.folder()).await;

        assert!(listed.contains("kube-system"), "{listed}");
    });
}

/// Types all commands of the page, and returns the output of the one that lists namespaces.
async fn typed(terminal: &Terminal<'_>, logs: &Path) -> String {
    let text = fs::read_to_string(sources::workspace().join(PAGE)).unwrap();
    let page =
        blocks(&TextFile { path: PAGE.into(), text }).unwrap_or_else(|violation| panic!("{violation}"));
    let (mut daemons, mut listed) = (Vec::new(), String::new());
    for command in page.iter().filter(|block| block.not_run.is_none()).flat_map(|block| &block.commands) {
        let begun = Instant::now();
        match DAEMONS.iter().find(|(name, _)| command.starts_with(name)) {
            Some((name, text)) => {
                let mut daemon = terminal.start(command, &logs.join(format!("{}.log", name.trim()))).await;
                logged(&mut daemon, text).await;
                daemons.push(daemon);
            }
            None => {
                let output = terminal.run(command).await;
                if command.ends_with("get namespaces") {
                    listed = output;
                }
            }
        }
        println!("{:6.2} s  {command}", begun.elapsed().as_secs_f32());
    }
    assert_eq!(daemons.len(), DAEMONS.len());
    listed
}

async fn logged(daemon: &mut Process, text: &str) {
    let deadline = Instant::now() + LOGGED_MAX;
    while !fs::read_to_string(daemon.output()).unwrap_or_default().contains(text) {
        let is_late = Instant::now() >= deadline;
        assert!(daemon.ended().is_none() && !is_late, "it never logged {text:?}: {}", daemon.tail());
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
