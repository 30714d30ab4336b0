//! A machine of the site with real systemd, kubelet and containerd, which becomes a worker of a tenant by the command that the tenant prints.

use std::time::{Duration, Instant};

use serde_json::json;

use super::tenant::Tenant;
use super::{HostCluster, KUBECTL_MAX, SiteMachine};
use crate::binaries::binary;
use crate::kube::kubectl::Kubectl;
use crate::lb_cluster::booted_worker::{is_another_life, lives};
use crate::lb_cluster::command::Ended;
use crate::lb_cluster::until;
use crate::node::{BootedMachine, Image, assets, kubelet_configuration};

/// The image of the machine's pod.
const IMAGE: &str = "tombolo.test/pod:1";

/// The folder of this machine's own part of kubelet's configuration.
const OWN_CONFIGURATION: &str = "/etc/kubernetes/kubelet.conf.d";

/// The exit code of a command in a pod, which is none of kubectl's own.
const CODE: i32 = 42;

/// The length of the output of a command in a pod.
const OUTPUT_BYTES: usize = 300_000;

/// A machine that is no worker yet, or one of a tenant. It loses its power when this is dropped.
#[derive(Debug)]
#[must_use = "the machine is removed when this is dropped"]
pub struct TenantWorker {
    // The machine goes before its network.
    /// The machine with its disk.
    pub machine: BootedMachine,
    /// The machine's network and address.
    pub site: SiteMachine,
    /// The host name of the machine, and the name of its Node.
    pub name: String,
}

impl HostCluster {
    /// Boots a machine of this name at the site, which is no worker yet.
    ///
    /// # Panics
    /// If it does not boot.
    pub async fn boot_worker(&mut self, name: &str) -> TenantWorker {
        let site = self.add_machine().await.expect("a machine");
        let assets = assets().expect("the host cluster has some");
        let programs = [
            (binary("node-lb"), "node-lb"),
            (binary("tombolo"), "tombolo"),
            (assets.kubelet.clone(), "kubelet"),
        ];
        let pod = [(assets.pod.as_path(), "bin/pod")];
        let image = Image { name: IMAGE, programs: &pod, entrypoint: &["/bin/pod"], ..Image::default() };
        let machine = BootedMachine::boot(&site.network, name, &programs, &image, None).await;
        let worker = TenantWorker { machine: machine.expect("it boots"), site, name: name.to_owned() };
        worker.describe_itself().await;
        worker
    }
}

impl TenantWorker {
    /// Gives the machine what its administrator gives each machine: its name in `/etc/hosts`, and kubelet's settings of this machine
    /// alone. It is one in namespaces, and shares its memory and its disk with all others.
    async fn describe_itself(&self) {
        self.append("/etc/hosts", &format!("{} {}\n", self.site.address, self.name)).await;
        let own = kubelet_configuration(self.machine.cgroups());
        self.append(&format!("{OWN_CONFIGURATION}/machine.conf"), &own.to_string()).await;
        let flags = format!("KUBELET_EXTRA_ARGS=--config-dir={OWN_CONFIGURATION}\n");
        self.append("/etc/default/kubelet", &flags).await;
    }

    async fn append(&self, path: &str, text: &str) {
        let script = "mkdir -p \"${1%/*}\" && printf %s \"$2\" >>\"$1\"";
        let output = self.machine.run("sh", &["-c", script, "sh", path, text]).await.expect("it runs");
        assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Joins it by exactly the command that the tenant prints. Returns the time until the command says that the Node is Ready.
    ///
    /// # Panics
    /// With the log of the machine, if it does not join.
    pub async fn join(&self, host: &HostCluster, tenant: &Tenant) -> Duration {
        let line = tenant.join_line(host).await;
        let begun = Instant::now();
        let ended = self.try_join(&line).await;
        let is_ready = ended.said.contains(&format!("the Node {} is Ready", self.name));
        assert!(ended.is_done && is_ready, "{}\n{}", ended.said, self.machine.log());
        begun.elapsed()
    }

    /// Runs a printed line on the machine.
    ///
    /// # Panics
    /// If it is none of `tombolo`, or does not run.
    pub async fn try_join(&self, line: &str) -> Ended {
        let words = line.strip_prefix("tombolo ").unwrap_or_else(|| panic!("no command of ours: {line}"));
        Ended::of(&self.machine.inside("tombolo", &words.split(' ').collect::<Vec<_>>())).await
    }

    /// The name of the machine's pod.
    pub fn pod(&self) -> String {
        format!("on-{}", self.name)
    }

    /// Makes a pod that only this machine can carry, and waits until it runs.
    ///
    /// # Panics
    /// If it does not.
    pub async fn runs_a_pod(&self, tenant: &Tenant) {
        let name = self.pod();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
            "spec": {
                "nodeSelector": { "kubernetes.io/hostname": self.name }, "terminationGracePeriodSeconds": 1,
                "containers": [{ "name": "main", "image": IMAGE, "imagePullPolicy": "Never", "args": ["serve", name] }],
            },
        });
        tenant.apply(&name, &pod).await;
        let words = ["wait", "--for=condition=Ready", &format!("pod/{name}"), "--timeout=100s"];
        let waited = tenant.admin.run(&words).await.expect("kubectl");
        assert!(
            waited.status.success(),
            "{}\n{}\n{}",
            String::from_utf8_lossy(&waited.stderr),
            tenant.admin.stdout(&["describe", "pod", &name]).await,
            self.machine.log()
        );
    }

    /// Takes the machine's power away and boots it. Returns the time from its power until its Node is Ready and its pod runs again.
    ///
    /// # Panics
    /// With the log of the machine, if that does not come to pass.
    pub async fn reboot(&mut self, tenant: &Tenant) -> Duration {
        let (name, pod) = (self.name.clone(), self.pod());
        let now = async || lives(&tenant.admin, &name, &pod).await;
        self.machine.cut_power().await.expect("it has power");
        let (before, begun) = (now().await, Instant::now());
        assert!(before.is_some(), "the tenant does not know yet that it has no power");
        self.machine.power_on().await.expect("it boots");
        until("the Node is Ready and its pod runs again", KUBECTL_MAX, async || {
            is_another_life(before.as_ref(), &now().await?).then_some(())
        })
        .await;
        begun.elapsed()
    }

    /// Reads the log of the machine's pod and runs commands in it, with these words before each command.
    ///
    /// # Panics
    /// If one of them does not do what it does at the machine itself.
    pub async fn pod_is_reached(&self, kubectl: &Kubectl, words: &[&str]) {
        let pod = self.pod();
        let logs = kubectl.stdout(&[words, &["logs", &pod]].concat()).await;
        assert_eq!(logs, format!("serving {pod}\n"), "{words:?}");
        let exec = [words, &["exec", &pod, "--", "/bin/pod"]].concat();
        let code = CODE.to_string();
        let ended = kubectl.run(&[exec.as_slice(), &["exit", &code]].concat()).await.expect("kubectl");
        assert_eq!(ended.status.code(), Some(CODE), "{words:?}: {}", String::from_utf8_lossy(&ended.stderr));
        let bytes = OUTPUT_BYTES.to_string();
        let output = kubectl.run(&[exec.as_slice(), &["flood", &bytes]].concat()).await.expect("kubectl");
        assert_eq!(
            output.stdout.len(),
            OUTPUT_BYTES,
            "{words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
