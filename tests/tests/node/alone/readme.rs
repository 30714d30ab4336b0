//! README.md, command by command, by a person who has kubectl and helm, a host cluster and an edge cluster:
//! server and agents are pods on real nodes.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tests::binaries::binary;
use tests::console::{ConsoleBlock, blocks};
use tests::helm::remains::{objects_of_ours, unnamed};
use tests::kube::assets::{self, Assets};
use tests::lab::{self, Lab, SERVER, Uplink};
use tests::language::TextFile;
use tests::name_server::NameServer;
use tests::node::{self, PODS};
use tests::node_cluster::{CONTROL_PLANE, NodeCluster};
use tests::process::{Invocation, run};
use tests::skip::skip;
use tests::sources;
use tests::workstation::{Terminal, Workstation};

use super::server_pod::volume;
use crate::kubectls::{SOON, until, wrote};

/// The images' archives from `.ci/image`, in variables, and the names that the charts have for them.
const IMAGES: [(&str, &str); 2] =
    [("TOMBOLO_SERVER_IMAGE", "tunnel-server"), ("TOMBOLO_AGENT_IMAGE", "tunnel-agent")];

/// The name of the server in the README, and the ports of its Service.
const GATEWAY: &str = "gateway.example";
const DNS_PORT: u16 = 53;

/// The headings of the README under which the server is installed, and the commands are counted.
const INSTALL: &str = "Install a server";
const REACH: &str = "Reach a site in five commands";
const COMMANDS_MAX: usize = 5;
/// A command with this option prints the next command, for the site.
const PRINTS: &str = "--print helm";

/// The time in which a changed policy reaches the verdicts, as the page promises that has the command.
const POLICY_MAX: Duration = Duration::from_secs(90);
const POLICY_PAGE: &str = "docs/tasks/write-a-policy.md";
/// A list of rules that the page lets a person write into a file of values.
const WITHOUT_SECRETS: &str = r#"policy:
  rules:
  - name: admins
    effect: Allow
    subjects: [{ method: client-certificate, group: "tombolo:admins" }]
    clusters: { names: ["*"] }
    mode: kube-api
    actions: [{ verbs: ["*"], apiGroups: ["*"], resources: ["*"], namespaces: ["*"], nonResourceURLs: ["*"] }]
  - name: no-secrets
    effect: Deny
    subjects: [{ method: client-certificate, group: "tombolo:admins" }]
    clusters: { names: ["*"] }
    mode: kube-api
    actions: [{ verbs: ["*"], apiGroups: [""], resources: ["secrets"], namespaces: ["*"] }]
"#;

/// The columns of a pod that change when it is replaced or restarted.
const POD_LIFE: &str = "kubectl -n tombolo-system get pods -l app.kubernetes.io/name=tunnel-server \
                        -o 'jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[0].restartCount} {end}'";

/// The clusters and the person's terminals. Only the host cluster's API server can be reached from the cloud.
struct Person<'a> {
    host: &'a NodeCluster,
    edge: &'a NodeCluster,
    /// In the cloud, with the kubeconfig of the host cluster.
    cloud: Terminal<'a>,
    /// At the site, with the kubeconfig of the edge cluster.
    site: Terminal<'a>,
    folder: PathBuf,
    lab: &'a Lab,
}

/// Two things are put in the place of a site's own: the images are on the nodes already, under the names that
/// the charts have, and `gateway.example` leads to the Service's endpoint by a balancer of the test.
#[test]
#[ignore = "soak: its images are built for four minutes first, by .ci/image"]
fn the_readme_reaches_a_site_in_five_commands_after_installation() {
    trial("the_readme_reaches_a_site_in_five_commands_after_installation", async |person: &Person<'_>| {
        let notes = person.follows_the_readme().await;

        person.tests_both_charts().await;
        person.changes_the_policy().await;
        person.uninstalls(&notes).await;
    });
}

fn trial(test: &str, does: impl AsyncFnOnce(&Person<'_>) + Send) {
    if let Err(unable) = node::assets() {
        return skip(test, &unable.to_string());
    }
    let helm = match assets::helm() {
        Ok(helm) => helm,
        Err(missing) => return skip(test, &missing.to_string()),
    };
    let Some(archives) = archives() else {
        return skip(
            test,
            "no variable says where the images are, run: .ci/image tunnel-server; .ci/image tunnel-agent",
        );
    };
    let done = lab::run(async |lab| {
        let resolver = Some(SERVER);
        let (host, edge) = tokio::join!(
            NodeCluster::start(lab, "host", Uplink::Cable, None),
            NodeCluster::start(lab, "edge", Uplink::Cable, resolver)
        );
        has_images(&host, &archives[..1]).await;
        // The doctor of an agent is in the server's image.
        has_images(&edge, &archives).await;
        has_a_volume(&host).await;
        is_reached_from_the_cloud(lab, &host).await;
        let dns = SocketAddr::from((SERVER, DNS_PORT));
        let _name_server = NameServer::start(dns, GATEWAY, SERVER).await.expect("the port is free");
        let (kubectl, tombolo) = (Assets::find().expect("they are there").kubectl, binary("tombolo"));
        let programs: [(&str, &Path); 3] = [("kubectl", &kubectl), ("helm", &helm), ("tombolo", &tombolo)];
        let hosts = format!("127.0.0.1 localhost\n{SERVER} {GATEWAY}\n");
        let workstation = Workstation::new(&hosts, &programs).await.expect("a machine");
        let folder = workstation.folder();
        symlink(sources::workspace().join("deploy"), folder.join("deploy")).expect("it is ours");
        let person = Person {
            cloud: workstation.terminal(lab.cloud(), &host.cluster.admin_kubeconfig()),
            site: workstation.terminal(edge.site.pod(), &edge.cluster.admin_kubeconfig()),
            host: &host,
            edge: &edge,
            folder,
            lab,
        };
        does(&person).await;
    });
    done.expect("a lab");
}

impl Person<'_> {
    /// Types the commands of the README, in order. Returns the notes of both charts, the server's first.
    async fn follows_the_readme(&self) -> [String; 2] {
        let [mut server_notes, mut agent_notes, mut listed] = [const { String::new() }; 3];
        let mut counted = 0;
        for block in page("README.md").iter().filter(|block| block.not_run.is_none()) {
            for command in &block.commands {
                let output = self.types(&self.cloud, command).await;
                counted += usize::from(block.section == REACH);
                if command.starts_with("helm install ") {
                    server_notes.clone_from(&output);
                }
                if command.contains(PRINTS) {
                    agent_notes = self.types(&self.site, &output).await;
                    counted += usize::from(block.section == REACH);
                }
                listed = output;
            }
            if block.section == INSTALL {
                self.balances().await;
            }
        }
        println!("{counted} commands after installation");
        assert!((2..=COMMANDS_MAX).contains(&counted), "{counted} commands in \"{REACH}\"");
        // What the last command lists is of the edge cluster, which has the agents' namespace.
        let names: Vec<&str> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert!(names.contains(&"tombolo") && !names.contains(&"tombolo-system"), "{listed}");
        [server_notes, agent_notes]
    }

    /// `helm test` of each chart, as its notes name it.
    async fn tests_both_charts(&self) {
        for (terminal, namespace, release) in
            [(&self.cloud, "tombolo-system", "tunnel-server"), (&self.site, "tombolo", "tunnel-agent")]
        {
            let command = format!("helm -n {namespace} test {release}");
            let begun = Instant::now();
            let output = terminal.output(&command).await.expect("helm ends");
            println!("{:6.2} s  {command}", begun.elapsed().as_secs_f32());
            if !output.status.success() {
                let log = format!(
                    "kubectl -n {namespace} logs {release}-doctor; kubectl -n {namespace} describe pods"
                );
                panic!("{command}: {output:?}\n{}", terminal.run(&log).await);
            }
        }
    }

    /// A rule that denies is in force within the promised time. The server's pod is the same, and a watch that
    /// was open goes on.
    async fn changes_the_policy(&self) {
        let alice = "kubectl --kubeconfig edge-a.conf";
        let before = self.cloud.run(POD_LIFE).await;
        let log = self.folder.join("watch.log");
        let mut watch =
            self.cloud.start(&format!("{alice} get namespaces --watch --output name"), &log).await;
        wrote(&mut watch, "namespace/default").await;
        self.cloud.run(&format!("{alice} get secrets -n tombolo")).await;
        fs::write(self.folder.join("policy-values.yaml"), WITHOUT_SECRETS).expect("it is ours");

        let commands: Vec<String> = page(POLICY_PAGE).into_iter().flat_map(|block| block.commands).collect();
        let upgrade =
            commands.iter().find(|command| command.starts_with("helm upgrade ")).expect("the command");

        self.types(&self.cloud, upgrade).await;
        let begun = Instant::now();
        let refusal = until("the rule is in force", async || {
            let output =
                self.cloud.output(&format!("{alice} get secrets -n tombolo")).await.expect("kubectl ends");
            (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
        })
        .await;

        let took = begun.elapsed();
        println!("{:6.2} s  until the policy was in force", took.as_secs_f32());
        assert!(took < POLICY_MAX && refusal.contains("in its policy"), "{took:?}: {refusal}");
        self.site.run("kubectl create namespace made-meanwhile").await;
        wrote(&mut watch, "namespace/made-meanwhile").await;
        let after = self.cloud.run(POD_LIFE).await;
        assert!(after == before && after.ends_with(" 0 "), "{before:?} {after:?}");
    }

    /// Afterwards each cluster has nothing of ours but the objects that the notes name.
    async fn uninstalls(&self, [server_notes, agent_notes]: &[String; 2]) {
        for (terminal, at, command, notes) in [
            (&self.site, self.edge, "helm -n tombolo uninstall tunnel-agent", agent_notes),
            (&self.cloud, self.host, "helm -n tombolo-system uninstall tunnel-server", server_notes),
        ] {
            self.types(terminal, command).await;
            let begun = Instant::now();
            // Pods end, and owners' objects are collected.
            loop {
                let left = unnamed(&objects_of_ours(&at.cluster).await, notes);
                if left.is_empty() {
                    break;
                }
                assert!(begun.elapsed() < SOON, "{command} leaves {left:?}: {notes}");
            }
        }
    }

    /// Runs a command and prints how long it took.
    async fn types(&self, terminal: &Terminal<'_>, command: &str) -> String {
        let begun = Instant::now();
        let output = terminal.output(command).await.unwrap_or_else(|error| panic!("{command}: {error}"));
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            panic!("{command}\n{}\n{stdout}\n{stderr}\n{}", output.status, self.state().await);
        }
        let line = command.lines().find(|line| !line.starts_with('#')).unwrap_or_default();
        println!("{:6.2} s  {}", begun.elapsed().as_secs_f32(), line.trim_end_matches('\\'));
        stdout.into_owned()
    }

    /// The pods of both clusters and their logs, for messages.
    async fn state(&self) -> String {
        let mut state = String::new();
        for (terminal, namespace, owner) in [
            (&self.cloud, "tombolo-system", "deployment/tunnel-server"),
            (&self.site, "tombolo", "deployment/tunnel-agent"),
        ] {
            let words = format!(
                "kubectl -n {namespace} get pods -o wide; kubectl -n {namespace} get events; \
                 kubectl -n {namespace} logs {owner} --tail=40 --all-pods || true"
            );
            let output = terminal.output(&words).await;
            state += &output.map_or_else(
                |error| error.to_string(),
                |output| String::from_utf8_lossy(&output.stdout).into_owned(),
            );
        }
        state
    }

    /// Lets the server's address lead to the Service's endpoint, as a balancer does. The callers' addresses
    /// stay theirs.
    async fn balances(&self) {
        let slices = "--selector=kubernetes.io/service-name=tunnel-server";
        let ready = "jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].addresses[0]}";
        let words = ["get", "endpointslices", "--namespace", "tombolo-system", slices, "-o", ready];
        let endpoint: Ipv4Addr = until("the Service has one endpoint", async || {
            self.host.direct.stdout(&words).await.parse().ok()
        })
        .await;
        let mut rules = "add table ip balancer\n\
                         add chain ip balancer in { type nat hook prerouting priority -100; }\n\
                         add chain ip balancer local { type nat hook output priority -100; }\n"
            .to_owned();
        for chain in ["in", "local"] {
            for ports in ["tcp dport { 8443, 8444 }", "udp dport 8443"] {
                rules +=
                    &format!("add rule ip balancer {chain} ip daddr {SERVER} {ports} dnat to {endpoint}\n");
            }
        }
        in_the_cloud(self.lab, "nft", &[&rules]).await;
    }
}

/// The blocks of a page.
fn page(path: &str) -> Vec<ConsoleBlock> {
    let text = fs::read_to_string(sources::workspace().join(path)).expect("the page");
    blocks(&TextFile { path: path.into(), text }).unwrap_or_else(|violation| panic!("{violation}"))
}

/// The archives of the images, and the names of both.
fn archives() -> Option<Vec<(PathBuf, &'static str)>> {
    IMAGES.into_iter().map(|(variable, name)| Some((PathBuf::from(env::var_os(variable)?), name))).collect()
}

/// Gives the node the images under the names by which the charts' default values ask for them.
async fn has_images(at: &NodeCluster, archives: &[(PathBuf, &str)]) {
    for (archive, name) in archives {
        at.node.load_archive(archive).await.expect("an image");
        let default = format!("localhost/tombolo/{name}:{}", env!("CARGO_PKG_VERSION"));
        at.node.tag(&format!("tombolo.test/{name}:1"), &default).await.expect("it has the image");
    }
}

/// Makes a volume for the server's claim, as a provisioner would.
async fn has_a_volume(at: &NodeCluster) {
    let state = at.cluster.directory().join("state");
    fs::create_dir(&state).expect("a folder");
    let file = at.cluster.directory().join("volume.yaml");
    fs::write(&file, volume(&state)).expect("it is ours");
    at.direct.stdout(&["apply", "-f", file.to_str().expect("a path")]).await;
}

/// Gives the cloud routes to the host cluster's API server and pods, and lets it forward.
async fn is_reached_from_the_cloud(lab: &Lab, host: &NodeCluster) {
    let (api_server, _) = CONTROL_PLANE;
    for network in [PODS.to_owned(), format!("{api_server}/32")] {
        let to_node = format!("route add {network} via {}", host.site.address());
        lab.cloud().ip(&to_node).await.expect("a route");
        host.site.node().ip(&format!("route add {network} via {}", lab::POD)).await.expect("a route");
    }
    in_the_cloud(lab, "sh", &["-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"]).await;
}

async fn in_the_cloud(lab: &Lab, program: &str, words: &[&str]) {
    let invocation = Invocation::of(program)
        .arguments(words.iter().copied())
        .in_network_namespace(Some(lab.cloud().path().to_owned()));
    let output = run(&invocation, SOON).await.expect("it ends");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}
