//! A machine with real systemd, kubelet and containerd becomes a worker by one command, reboots while all but its masters is dark, and
//! stops being a worker.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::binaries::binary;
use tests::dial::dial;
use tests::kube::controllers::Controllers;
use tests::lb_cluster::{LB, LbCluster, MASTERS, READY_MAX, until};
use tests::node::{BootedMachine, Image, assets};
use tests::process::{Invocation, Process};
use tests::skip::skip;
use tests::sources::workspace;
use tokio::time::{sleep, timeout};

use crate::command::Ended;
use crate::kubeadm;

/// The name of the machine and of its Node.
const NAME: &str = "worker";

/// The address of the machine at the first master.
const ADDRESS: &str = "10.7.1.1";

/// The image of the machine's pod.
const IMAGE: &str = "tombolo.test/pod:1";

/// The image of the static pod, as it is shipped.
const NODE_LB_IMAGE: &str = "tombolo/node-lb:0.1.0";

/// No trace on the machine.
const NOTHING: [String; 0] = [];

/// Pause between two looks at the journal of a join, which is to be killed after a step, and between two handshakes by way of node-lb.
const SHORT_PAUSE: Duration = Duration::from_millis(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_command_makes_a_worker_and_reset_leaves_nothing() {
    let Some(mut worker) = BootedWorker::new("one_command_makes_a_worker_and_reset_leaves_nothing").await
    else {
        return;
    };
    let before = worker.traces().await;
    worker.what_does_not_fit_is_refused().await;
    assert_eq!(worker.left_since(&before).await, NOTHING, "nothing is half done");

    let killed = worker.join_with_kills().await;
    assert!(killed > 10, "a join has many steps, and {killed} were interrupted");
    worker.join().await;
    worker.runs_a_pod().await;
    assert!(!worker.machine.on_disk("/etc/kubernetes/bootstrap-kubelet.conf").exists(), "the token is gone");

    // Also after a loss of power, by what is on its disk.
    worker.reboot().await;

    let reset = worker.tombolo(&["node", "reset"]).await;
    assert!(reset.is_done, "{}", reset.said);
    assert_eq!(worker.left_since(&before).await, NOTHING, "reset leaves nothing");
    worker.cluster.edge.admin().stdout(&["delete", "node", NAME]).await;

    let begun = Instant::now();
    worker.join().await;
    println!("without a kill: Ready after {:.1} s", begun.elapsed().as_secs_f64());
}

/// Twenty times, with all API servers and with one of them dead in turns. The bars are those of docs/node-lb.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: a worker reboots 20 times, 4 min"]
async fn a_worker_that_reboots_while_dark_finds_its_control_plane() {
    let Some(mut worker) =
        BootedWorker::new("a_worker_that_reboots_while_dark_finds_its_control_plane").await
    else {
        return;
    };
    worker.join().await;
    worker.runs_a_pod().await;
    let (mut answers, mut ready) = (Vec::new(), Vec::new());
    for round in 0..20 {
        let dead = (round % 2 == 1).then_some(MASTERS - 1);
        if let Some(dead) = dead {
            worker.cluster.kill(dead);
        }
        let boot = worker.reboot().await;
        answers.push(boot.first_answer);
        ready.push(boot.at_work);
        if let Some(dead) = dead {
            worker.cluster.start_again(dead).await;
        }
    }
    let longest = |times: &[Duration]| times.iter().max().copied().unwrap_or_default();
    println!("first answers after node-lb's start: {answers:.2?}");
    println!("kubelet Ready and its pod running: {ready:.2?}");
    assert!(longest(&answers) <= Duration::from_secs(1), "{answers:?}");
    assert!(longest(&ready) <= Duration::from_secs(15), "{ready:?}");
}

/// `deploy/node-lb/static-pod.yaml` in place of the unit. kubelet then starts before node-lb, after each loss of power, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: kubelet runs node-lb as a static pod, 30 s"]
async fn kubelet_runs_node_lb_as_a_static_pod_and_comes_by_it() {
    let Some(mut worker) = BootedWorker::new("kubelet_runs_node_lb_as_a_static_pod_and_comes_by_it").await
    else {
        return;
    };
    worker.join().await;
    worker.runs_a_pod().await;
    worker.runs_node_lb_as_a_static_pod().await;
    for _ in 0..2 {
        let before = worker.lives().await;
        worker.machine.cut_power().await.expect("it has power");
        let begun = Instant::now();
        worker.machine.power_on().await.expect("it boots");
        worker.is_at_work_again(before).await;
        println!("kubelet Ready and its pod running after {:.1} s", begun.elapsed().as_secs_f64());
    }
    let unit = worker.machine.run("systemctl", &["is-active", "node-lb"]).await.expect("it runs");
    assert!(!unit.status.success(), "the unit does not run");
}

/// A machine in the network of the masters, and the command that joins it.
struct BootedWorker {
    // The machine goes before what it talks to.
    machine: BootedMachine,
    join: Vec<String>,
    _controllers: Controllers,
    cluster: LbCluster,
}

/// The times of one boot.
struct Boot {
    /// From the start of node-lb to the first handshake with an API server through it.
    first_answer: Duration,
    /// From the power to a Node that is Ready and a pod that runs.
    at_work: Duration,
}

impl BootedWorker {
    /// Starts a cluster with all that machines which join read, and a machine that has joined nothing; `None` where that is not possible.
    async fn new(test: &str) -> Option<Self> {
        let cluster = LbCluster::start().await.map_err(|error| skip(test, &error.to_string())).ok()?;
        let assets = assets().map_err(|error| skip(test, &error.to_string())).ok()?;
        let programs = [
            (binary("node-lb"), "node-lb"),
            (binary("tombolo"), "tombolo"),
            (assets.kubelet.clone(), "kubelet"),
        ];
        let pod = [(assets.pod.as_path(), "bin/pod")];
        let image = Image { name: IMAGE, programs: &pod, entrypoint: &["/bin/pod"], ..Image::default() };
        let machine = BootedMachine::boot(&cluster.worker, NAME, &programs, &image).await.expect("it boots");
        let controllers = cluster.edge.start_controllers(&assets).await.expect("the controllers start");
        let kubelet = kubeadm::kubelet_configuration(machine.cgroups());
        for phase in [["bootstrap-token", "--skip-token-print"].as_slice(), &["upload-config", "kubelet"]] {
            kubeadm::init_phase(&cluster, &assets, phase, &kubelet).await;
        }
        let mut worker = Self { machine, join: Vec::new(), _controllers: controllers, cluster };
        worker.join = worker.join_words().await;
        Some(worker)
    }

    /// The printed command without its first word, once the cluster lists all its API servers.
    async fn join_words(&self) -> Vec<String> {
        let kubeconfig = format!("--kubeconfig={}", self.cluster.edge.admin_kubeconfig().display());
        let program = Invocation::of(binary("tombolo"))
            .arguments(["node", "join-command", &kubeconfig])
            .in_network_namespace(Some(self.cluster.worker.path().to_owned()));
        let line = until("the command names all API servers", READY_MAX, async || {
            let printed = Ended::of(&program).await;
            assert!(printed.is_done, "{}", printed.said);
            let line = printed.out.trim().to_owned();
            (line.matches("--api-server").count() == MASTERS).then_some(line)
        });
        let line = format!("{} --node-ip {ADDRESS}", line.await);
        line.split(' ').skip(1).map(str::to_owned).collect()
    }

    /// Runs tombolo on the machine.
    async fn tombolo(&self, words: &[&str]) -> Ended {
        Ended::of(&self.machine.inside("tombolo", words)).await
    }

    /// Runs the printed command with further words.
    async fn try_join(&self, more: &[&str]) -> Ended {
        let words: Vec<&str> = self.join.iter().map(String::as_str).chain(more.iter().copied()).collect();
        self.tombolo(&words).await
    }

    async fn join(&self) {
        let ended = self.try_join(&[]).await;
        let is_ready = ended.said.contains("the Node worker is Ready");
        assert!(ended.is_done && is_ready, "{}\n{}", ended.said, self.machine.log());
    }

    async fn what_does_not_fit_is_refused(&self) {
        let refused = async |reason: &str, more: &[&str]| {
            let ended = self.try_join(more).await;
            assert!(!ended.is_done && ended.said.contains(reason), "{reason}: {}", ended.said);
        };
        let listening = async { tokio::net::TcpListener::bind(LB).await.expect("the port is free") };
        let listener = self.cluster.on_worker.run(listening).await;
        refused("another program listens at 127.0.0.1:7443", &[]).await;
        drop(listener);

        refused("/nowhere.sock; start the container runtime", &["--cri-socket", "/nowhere.sock"]).await;

        // A kubelet of a later release, in an image.
        let image = self.machine.on_disk("/var/lib/image");
        fs::create_dir_all(image.join("usr/bin")).expect("a folder");
        let kubelet = image.join("usr/bin/kubelet");
        fs::write(&kubelet, "#!/bin/sh\necho Kubernetes v1.99.0\n").expect("a file");
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&kubelet, executable).expect("a mode");
        let root = ["--root", "/var/lib/image", "--no-start"];
        refused("kubelet v1.99.0 is newer than the API server", &root).await;
        fs::remove_dir_all(image).expect("a folder");

        let admin = self.cluster.edge.admin();
        let file = self.cluster.edge.directory().join("ready-node.json");
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NAME } });
        fs::write(&file, node.to_string()).expect("a file");
        admin.stdout(&["create", "-f", &file.display().to_string()]).await;
        let ready =
            json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } }).to_string();
        admin.stdout(&["patch", "node", NAME, "--subresource=status", "-p", &ready]).await;
        refused("has a Node \"worker\" that is Ready", &[]).await;
        admin.stdout(&["delete", "node", NAME]).await;

        let shown = self.try_join(&["--dry-run"]).await;
        let (_, secret) = self.join.iter().find_map(|word| word.split_once('.')).expect("a token");
        assert!(shown.is_done && shown.said.contains("kind: KubeletConfiguration"), "{}", shown.said);
        assert!(!shown.said.contains(secret), "the secret is not shown");
    }

    /// Begins the join again and again, and kills it after each further step. Returns the number of kills.
    async fn join_with_kills(&self) -> usize {
        let journal = self.machine.on_disk("/var/lib/tombolo/join.json");
        let steps = || {
            let text = fs::read(&journal).unwrap_or_default();
            serde_json::from_slice::<Value>(&text)
                .map_or(0, |journal| journal["steps"].as_array().map_or(0, Vec::len))
        };
        let words: Vec<&str> = self.join.iter().map(String::as_str).collect();
        let log = self.cluster.edge.directory().join("join.log");
        let mut killed = 0;
        loop {
            let before = steps();
            let mut join =
                Process::start(&self.machine.inside("tombolo", &words), &log).await.expect("it starts");
            while steps() == before {
                if let Some(status) = join.ended() {
                    assert!(status.success(), "{}\n{}", join.tail(), self.machine.log());
                    return killed;
                }
                sleep(SHORT_PAUSE).await;
            }
            join.kill();
            killed += 1;
        }
    }

    /// Makes the machine's pod, and waits until it runs.
    async fn runs_a_pod(&self) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" },
            "spec": {
                "nodeName": NAME, "tolerations": [{ "operator": "Exists" }], "terminationGracePeriodSeconds": 1,
                "containers": [{ "name": "main", "image": IMAGE, "imagePullPolicy": "Never", "args": ["serve", "web"] }],
            },
        });
        let file = self.cluster.edge.directory().join("web.json");
        fs::write(&file, pod.to_string()).expect("a file");
        let admin = self.cluster.edge.admin();
        admin.stdout(&["apply", "-f", &file.display().to_string()]).await;
        admin.stdout(&["wait", "--for=condition=Ready", "pod/web", "--timeout=100s"]).await;
    }

    /// Takes the machine's power away and boots it. Returns when its Node is Ready again and its pod runs again.
    async fn reboot(&mut self) -> Boot {
        self.machine.cut_power().await.expect("it has power");
        let (before, begun) = (self.lives().await, Instant::now());
        self.machine.power_on().await.expect("it boots");
        let answered = self.relays().await;
        let shown = self
            .machine
            .run("systemctl", &["show", "node-lb", "--value", "--property=ExecMainStartTimestampMonotonic"]);
        let started = String::from_utf8(shown.await.expect("it runs").stdout).expect("text");
        let started = Duration::from_micros(started.trim().parse().expect("a time"));

        self.is_at_work_again(before).await;
        Boot { first_answer: answered.saturating_sub(started), at_work: begun.elapsed() }
    }

    /// The time at which kubelet has last said that the Node is Ready, and the container of the pod, if both are well.
    async fn lives(&self) -> Option<[String; 2]> {
        let admin = self.cluster.edge.admin();
        let node = admin.run(&["get", "node", NAME, "-o", "json"]).await.ok()?;
        let pod = admin.run(&["get", "pod", "web", "-o", "json"]).await.ok()?;
        let [node, pod] = [node, pod].map(|output| serde_json::from_slice::<Value>(&output.stdout).ok());
        let (node, pod) = (node?, pod?);
        let conditions = node["status"]["conditions"].as_array()?;
        let ready = conditions
            .iter()
            .find(|condition| condition["type"] == "Ready" && condition["status"] == "True")?;
        let container = &pod["status"]["containerStatuses"][0];
        let is_ready = container["ready"] == true;
        let [time, id] = [&ready["lastHeartbeatTime"], &container["containerID"]]
            .map(|value| value.as_str().map(str::to_owned));
        is_ready.then_some([time?, id?])
    }

    /// Waits for a handshake with an API server by way of node-lb. Returns the time of it, since this machine's own boot.
    async fn relays(&self) -> Duration {
        let ca_pem = self.cluster.edge.ca_pem().to_owned();
        let answered = self.cluster.on_worker.run(async move {
            let address = LB.parse().expect("an address");
            while dial(address, &ca_pem, &["h2"], None).await.is_err() {
                sleep(SHORT_PAUSE).await;
            }
            uptime()
        });
        timeout(READY_MAX, answered)
            .await
            .unwrap_or_else(|_| panic!("node-lb relays nothing: {}", self.machine.log()))
    }

    /// Waits until the Node is Ready and the pod runs, both since the loss of power. `before` is from the time before.
    async fn is_at_work_again(&self, before: Option<[String; 2]>) {
        until("the Node is Ready and the pod runs again", READY_MAX, async || {
            let now = self.lives().await?;
            let [is_later, is_another] =
                [0, 1].map(|part| before.as_ref().is_some_and(|before| before[part] != now[part]));
            (is_later && is_another).then_some(())
        })
        .await;
    }

    /// Puts the static pod as it is shipped in the place of the unit, with an image of this program.
    async fn runs_node_lb_as_a_static_pod(&self) {
        let program = binary("node-lb");
        let libraries = libraries_of(&program).await;
        let mut files: Vec<(&Path, &str)> = vec![(&program, "node-lb")];
        files.extend(
            libraries
                .iter()
                .map(|path| (path.as_path(), path.to_str().expect("text").trim_start_matches('/'))),
        );
        let image =
            Image { name: NODE_LB_IMAGE, programs: &files, entrypoint: &["/node-lb"], ..Image::default() };
        self.machine.load(&image).await.expect("an image");
        let stopped = self.machine.run("systemctl", &["disable", "--now", "node-lb"]).await.expect("it runs");
        assert!(stopped.status.success(), "{}", String::from_utf8_lossy(&stopped.stderr));
        // kubelet's unit would start it.
        fs::remove_file(self.machine.on_disk("/etc/systemd/system/node-lb.service")).expect("the unit");
        let shipped = fs::read_to_string(workspace().join("deploy/node-lb/static-pod.yaml")).expect("a file");
        assert!(shipped.contains(NODE_LB_IMAGE), "{shipped}");
        fs::write(self.machine.on_disk("/etc/kubernetes/manifests/node-lb.yaml"), shipped).expect("a file");
        self.relays().await;
    }

    /// The traces that have come or gone since.
    async fn left_since(&self, before: &BTreeSet<String>) -> Vec<String> {
        self.traces().await.symmetric_difference(before).cloned().collect()
    }

    /// All that a join may leave: files, units, rules of the packet filter, and addresses but those of the network plugin.
    async fn traces(&self) -> BTreeSet<String> {
        let mut traces: BTreeSet<String> =
            self.machine.paths().into_iter().map(|path| path.display().to_string()).collect();
        for words in [
            &["nft", "list", "ruleset"] as &[&str],
            &["ip", "-o", "addr", "show"],
            &["systemctl", "list-units", "--all", "--no-legend", "--plain", "*.service"],
        ] {
            let output = self.machine.run(words[0], &words[1..]).await.expect("it runs");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            traces.extend(text.lines().filter(|line| !line.contains("cni0")).map(str::to_owned));
        }
        traces
    }
}

/// The shared libraries of a program, and their loader.
async fn libraries_of(program: &Path) -> Vec<PathBuf> {
    let listed = Ended::of(&Invocation::of("ldd").arguments([program.display().to_string()])).await.out;
    let paths = listed.split_whitespace().filter(|word| word.starts_with('/'));
    paths.map(PathBuf::from).collect()
}

/// The time since this machine's own boot.
fn uptime() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}
