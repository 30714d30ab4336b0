//! A machine with real systemd, kubelet and containerd in the network of the masters, which becomes a worker by one command.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::command::Ended;
use super::{LB, LbCluster, MASTERS, READY_MAX, kubeadm, until};
use crate::binaries::binary;
use crate::dial::dial;
use crate::kube::assets::Assets;
use crate::kube::controllers::Controllers;
use crate::kube::kubectl::Kubectl;
use crate::network::NetworkError;
use crate::node::{BootedMachine, Image, NodeUnavailable, assets, kubelet_configuration};
use crate::process::Invocation;

/// The name of the machine and of its Node.
pub const NAME: &str = "worker";

/// The address of the machine at the first master.
const ADDRESS: &str = "10.7.1.1";

/// The image of the machine's pod.
const IMAGE: &str = "tombolo.test/pod:1";

/// Pause between two handshakes by way of node-lb.
const SHORT_PAUSE: Duration = Duration::from_millis(1);

/// This machine can have no worker.
#[derive(Debug, thiserror::Error)]
pub enum WorkerUnavailable {
    /// There are no network namespaces here.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A program of a node is missing, or the right to run it.
    #[error(transparent)]
    Node(#[from] NodeUnavailable),
}

/// A machine in the network of the masters, and the command that joins it.
#[derive(Debug)]
#[must_use = "all of it ends when this is dropped"]
pub struct BootedWorker {
    // The machine goes before what it talks to.
    /// The machine with its disk.
    pub machine: BootedMachine,
    /// The command that joins it, without its first word.
    pub join: Vec<String>,
    _controllers: Controllers,
    /// The masters, with their API servers.
    pub cluster: LbCluster,
}

/// The times of one boot.
#[derive(Debug, Clone, Copy)]
pub struct Boot {
    /// From the start of node-lb to the first handshake with an API server through it.
    pub first_answer: Duration,
    /// From the power to a Node that is Ready and a pod that runs.
    pub at_work: Duration,
}

impl BootedWorker {
    /// Starts a cluster with all that machines which join read, and a machine that has joined nothing.
    ///
    /// # Errors
    /// [`WorkerUnavailable`], where that is not possible.
    ///
    /// # Panics
    /// If something does not start.
    pub async fn start() -> Result<Self, WorkerUnavailable> {
        let assets = assets()?;
        let kubectl = Assets::find().map_err(NodeUnavailable::from)?.kubectl;
        let cluster = LbCluster::start().await?;
        let programs = [
            (binary("node-lb"), "node-lb"),
            (binary("tombolo"), "tombolo"),
            (assets.kubelet.clone(), "kubelet"),
            (kubectl, "kubectl"),
        ];
        let pod = [(assets.pod.as_path(), "bin/pod")];
        let image = Image { name: IMAGE, programs: &pod, entrypoint: &["/bin/pod"], ..Image::default() };
        let machine =
            BootedMachine::boot(&cluster.worker, NAME, &programs, &image, None).await.expect("it boots");
        let controllers = cluster.edge.start_controllers(&assets).await.expect("the controllers start");
        let mut kubelet = kubelet_configuration(machine.cgroups());
        kubelet["staticPodPath"] = "/etc/kubernetes/manifests".into();
        for phase in [["bootstrap-token", "--skip-token-print"].as_slice(), &["upload-config", "kubelet"]] {
            kubeadm::init_phase(&cluster, &assets, phase, &kubelet).await;
        }
        let mut worker = Self { machine, join: Vec::new(), _controllers: controllers, cluster };
        worker.join = worker.join_words().await;
        Ok(worker)
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
    ///
    /// # Panics
    /// If it does not run.
    pub async fn tombolo(&self, words: &[&str]) -> Ended {
        Ended::of(&self.machine.inside("tombolo", words)).await
    }

    /// Runs the printed command with further words.
    ///
    /// # Panics
    /// If it does not run.
    pub async fn try_join(&self, more: &[&str]) -> Ended {
        let words: Vec<&str> = self.join.iter().map(String::as_str).chain(more.iter().copied()).collect();
        self.tombolo(&words).await
    }

    /// Joins the machine, whose Node then is Ready.
    ///
    /// # Panics
    /// If it does not join.
    pub async fn join(&self) {
        let ended = self.try_join(&[]).await;
        let is_ready = ended.said.contains("the Node worker is Ready");
        assert!(ended.is_done && is_ready, "{}\n{}", ended.said, self.machine.log());
    }

    /// Makes the machine's pod, and waits until it runs.
    ///
    /// # Panics
    /// If it does not.
    pub async fn runs_a_pod(&self) {
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
    ///
    /// # Panics
    /// If that does not come to pass.
    pub async fn reboot(&mut self) -> Boot {
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

    /// The lives of its Node and of its pod, as [`lives`] has them.
    pub async fn lives(&self) -> Option<[String; 2]> {
        lives(&self.cluster.edge.admin(), NAME, "web").await
    }

    /// Waits for a handshake with an API server by way of node-lb. Returns the time of it, since this machine's own boot.
    ///
    /// # Panics
    /// If there is none.
    pub async fn relays(&self) -> Duration {
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
    ///
    /// # Panics
    /// If that does not come to pass.
    pub async fn is_at_work_again(&self, before: Option<[String; 2]>) {
        until("the Node is Ready and the pod runs again", READY_MAX, async || {
            is_another_life(before.as_ref(), &self.lives().await?).then_some(())
        })
        .await;
    }
}

/// The time at which kubelet has last said that a Node is Ready, and the container of a pod, if both are well.
pub async fn lives(admin: &Kubectl, node: &str, pod: &str) -> Option<[String; 2]> {
    let node = admin.run(&["get", "node", node, "-o", "json"]).await.ok()?;
    let pod = admin.run(&["get", "pod", pod, "-o", "json"]).await.ok()?;
    let [node, pod] = [node, pod].map(|output| serde_json::from_slice::<Value>(&output.stdout).ok());
    let (node, pod) = (node?, pod?);
    let conditions = node["status"]["conditions"].as_array()?;
    let ready =
        conditions.iter().find(|condition| condition["type"] == "Ready" && condition["status"] == "True")?;
    let container = &pod["status"]["containerStatuses"][0];
    let is_ready = container["ready"] == true;
    let [time, id] = [&ready["lastHeartbeatTime"], &container["containerID"]]
        .map(|value| value.as_str().map(str::to_owned));
    is_ready.then_some([time?, id?])
}

/// Returns true if kubelet has said it again since, and the pod has another container.
pub fn is_another_life(before: Option<&[String; 2]>, now: &[String; 2]) -> bool {
    before.is_some_and(|before| (0..2).all(|part| before[part] != now[part]))
}

/// The time since this machine's own boot.
fn uptime() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}
