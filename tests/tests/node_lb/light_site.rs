//! A light site as `deploy/examples/light-site` makes it: one machine with 1 GiB for its control plane, kubelet, node-lb and agent, which
//! goes on while the cloud is dark.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::binaries::binary;
use tests::cpu_time::cpu_time;
use tests::enroll::{self, EnrollmentListener};
use tests::kube::assets::{Assets, pinned_kubernetes};
use tests::kube::kubectl::Kubectl;
use tests::lab::{self, Lab, POD, Site, Uplink};
use tests::lb_cluster::command::Ended;
use tests::lb_cluster::until;
use tests::node::{self, BootedMachine, Image, kubelet_configuration, processes_in};
use tests::process::resident_bytes;
use tests::rig::{GROUP, Rig};
use tests::skip::skip;
use tests::sources::workspace;
use tokio::time::sleep_until;

/// The name of the cluster in the example's files.
const CLUSTER: &str = "edge-a";

/// The memory of the machine.
const MEMORY: u64 = 1024 * 1024 * 1024;

/// The time in which the cloud is dark.
const DARK: Duration = Duration::from_secs(30 * 60);

/// New releases of an application meanwhile.
const RELEASES: u32 = 20;

/// The limit for the site to be there after its power.
const UP_MAX: Duration = Duration::from_secs(120);

/// The address of the machine in the example's files.
const EXAMPLE: &str = "192.168.7.11";

/// kubeadm's configuration on the machine.
const KUBEADM: &str = "--config=/etc/tombolo/kubeadm.yaml";

/// The kubeconfig of the machine's administrator.
const ADMIN: &str = "--kubeconfig=/etc/kubernetes/admin.conf";

/// The image of the application.
const IMAGE: &str = "tombolo.test/pod:1";

/// kubelet's unit, as Kubernetes' packages have it with their drop-in for kubeadm.
const KUBELET: &str = "[Unit]\nDescription=kubelet\nAfter=containerd.service\n[Service]\n\
    EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\n\
    ExecStart=/usr/bin/kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
    --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS\n\
    Restart=always\nRestartSec=2\n[Install]\nWantedBy=multi-user.target\n";

/// The log of the agent alone.
const AGENT_LOG: &str =
    "[Service]\nStandardOutput=append:/var/log/agent.log\nStandardError=append:/var/log/agent.log\n";

/// The machine of a light site.
struct LightSite {
    machine: BootedMachine,
    site: Site,
}

#[test]
#[ignore = "soak: a site of one machine is dark for 30 minutes"]
fn a_machine_of_one_gibibyte_goes_on_without_the_cloud() {
    const NAME: &str = "a_machine_of_one_gibibyte_goes_on_without_the_cloud";
    if let Err(missing) = node::assets() {
        return skip(NAME, &missing.to_string());
    }
    lab::trial(NAME, async |lab| {
        let mut rig = lab.rig("").await;
        let listener = enroll::open(&mut rig).await;
        let mut light = LightSite::start(lab).await;
        light.install(&rig, &listener).await;
        rig.connected(CLUSTER).await;
        let alice = rig.kubeconfig("alice", &[GROUP], CLUSTER).await;
        let alice = Kubectl::new(Assets::find().expect("kubectl").kubectl, alice)
            .in_network_namespace(Some(lab.cloud().path().to_owned()));
        alice.stdout(&["get", "nodes"]).await;

        light.site.link().down().await;
        light.releases_and_a_reboot().await;
        rig.disconnected(CLUSTER).await;
        let up = light.site.link().up().await;
        rig.connected(CLUSTER).await;
        println!("reachable {:.1} s after the link", up.elapsed().as_secs_f64());
        alice.stdout(&["get", "nodes"]).await;
        assert_eq!(light.machine.killed_for_memory(), 0, "nothing was killed for its memory");
    });
}

impl LightSite {
    /// A machine with everything that the example wants to be there: kubelet, kubeadm, containerd with images, and our programs.
    async fn start(lab: &Lab) -> Self {
        let assets = node::assets().expect("it was asked before");
        let control_plane = Assets::find().expect("a control plane");
        let site = lab.site(CLUSTER, Uplink::simulated("delay=20ms")).await;
        let programs = [
            (binary("node-lb"), "node-lb"),
            (binary("tunnel-agent"), "tunnel-agent"),
            (binary("tombolo"), "tombolo"),
            (assets.kubelet.clone(), "kubelet"),
            (assets.kubeadm.clone(), "kubeadm"),
            (control_plane.kubectl, "kubectl"),
        ];
        let pod = [(assets.pod.as_path(), "bin/pod")];
        let image = Image { name: IMAGE, programs: &pod, entrypoint: &["/bin/pod"], ..Image::default() };
        let machine = BootedMachine::boot(site.pod(), "site", &programs, &image, Some(MEMORY)).await;
        let machine = machine.expect("it boots");
        let light = Self { machine, site };
        // kubeadm's own release of etcd has another name than ours.
        let version = format!("--kubernetes-version={}", pinned_kubernetes());
        let names = light.runs("kubeadm", &["config", "images", "list", &version]).await;
        for (name, program) in [
            ("kube-apiserver", &control_plane.apiserver),
            ("kube-controller-manager", &assets.controller_manager),
            ("kube-scheduler", &assets.scheduler),
            ("etcd", &control_plane.etcd),
        ] {
            let image = names.lines().find(|line| line.contains(&format!("/{name}:"))).expect("an image");
            let path = format!("bin/{name}");
            let programs = [(program.as_path(), path.as_str())];
            let image = Image { name: image, programs: &programs, ..Image::default() };
            light.machine.load(&image).await.expect("it is imported");
        }
        light
    }

    /// Does what the example's README says.
    async fn install(&self, rig: &Rig, listener: &EnrollmentListener) {
        let example = workspace().join("deploy/examples/light-site");
        let units = workspace().join("deploy/systemd");
        for unit in ["node-lb.service", "tunnel-agent.service"] {
            let text = fs::read_to_string(units.join(unit)).expect("a unit");
            self.write(&format!("/etc/systemd/system/{unit}"), &text);
        }
        self.write("/etc/systemd/system/kubelet.service", KUBELET);
        self.write("/etc/systemd/system/tunnel-agent.service.d/log.conf", AGENT_LOG);
        for kind in ["sysusers", "tmpfiles"] {
            let text = fs::read_to_string(units.join(format!("tombolo.{kind}.conf"))).expect("a file");
            self.write(&format!("/etc/{kind}.d/tombolo.conf"), &text);
        }
        self.runs("systemd-sysusers", &[]).await;
        self.runs("systemd-tmpfiles", &["--create", "/etc/tmpfiles.d/tombolo.conf"]).await;

        let file = |name: &str| fs::read_to_string(example.join(name)).expect("a file of the example");
        let kubelet = kubelet_configuration(self.machine.cgroups());
        self.write("/etc/tombolo/kubeadm.yaml", &kubeadm_of_trial(&file("kubeadm.yaml"), kubelet));
        self.write("/etc/tombolo/node-lb.yaml", &of_trial(&file("node-lb.yaml")));
        self.runs("kubeadm", &["init", "phase", "certs", "all", KUBEADM]).await;
        self.runs("systemctl", &["daemon-reload"]).await;
        self.runs("systemctl", &["enable", "--now", "node-lb"]).await;
        self.runs("systemctl", &["enable", "kubelet"]).await;
        // No registry and no swap's absence here, and no image of kube-proxy and CoreDNS.
        self.runs("kubeadm", &["init", KUBEADM, "--skip-phases=preflight,addon"]).await;

        let token = enroll::at(rig, &["token", "create", "--cluster", CLUSTER, "-o", "token"]).await;
        self.write("/etc/tombolo/token", &token);
        let agent = file("agent.yaml")
            .replace(
                "\"one.gateway.example:8443\", \"two.gateway.example:8443\"",
                &format!("{:?}", rig.dialed().to_string()),
            )
            .replace("one.gateway.example:8444", &listener.address.to_string())
            .replace("sha256:...", &listener.pin);
        assert!(!agent.contains("gateway.example:"), "{agent}");
        self.write("/etc/tombolo/agent.yaml", &agent);
        let script = example.join("kubeconfig.sh").display().to_string();
        self.runs("sh", &[&script]).await;
        self.runs("systemctl", &["enable", "--now", "tunnel-agent"]).await;
        let role = ["create", "clusterrolebinding", "alice", "--clusterrole=cluster-admin", "--user=alice"];
        self.runs("kubectl", &[&[ADMIN], role.as_slice()].concat()).await;
    }

    /// Replaces an application again and again, and takes the power away half way.
    async fn releases_and_a_reboot(&mut self) {
        let begun = tokio::time::Instant::now();
        self.applies(&application(0)).await;
        let mut quiet = self.agent();
        for release in 1..=RELEASES {
            sleep_until(begun + DARK * release / RELEASES).await;
            if release == RELEASES / 2 {
                println!("in {:?} of darkness the agent {}", begun.elapsed(), self.agent().since(&quiet));
                self.machine.cut_power().await.expect("it has power");
                let begun = Instant::now();
                self.machine.power_on().await.expect("it boots");
                self.is_up().await;
                println!("the API server answers {:.1} s after the power", begun.elapsed().as_secs_f64());
                quiet = self.agent();
            }
            let begun = Instant::now();
            self.applies(&application(release)).await;
            println!("release {release}: {:.1} s", begun.elapsed().as_secs_f64());
        }
        println!("after the reboot the agent {}", self.agent().since(&quiet));
    }

    /// Waits until the API server answers by way of node-lb.
    async fn is_up(&self) {
        let ready = [ADMIN, "get", "--raw", "/readyz"];
        until("the site is up", UP_MAX, async || {
            let answer = self.machine.run("kubectl", &ready).await.ok()?;
            answer.status.success().then_some(())
        })
        .await;
    }

    /// Applies the application, and waits until this release of it runs and no other.
    async fn applies(&self, application: &Value) {
        self.write("/etc/tombolo/application.json", &application.to_string());
        self.runs("kubectl", &[ADMIN, "apply", "-f", "/etc/tombolo/application.json"]).await;
        self.runs("kubectl", &[ADMIN, "rollout", "status", "deployment/shop", "--timeout=150s"]).await;
    }

    /// The use that the agent has made of the machine until now.
    fn agent(&self) -> AgentUse {
        let found = processes_in(self.machine.cgroups(), "tunnel-agent");
        let [id] = found.as_slice() else { panic!("one agent runs: {found:?}") };
        AgentUse {
            at: Instant::now(),
            resident_bytes: resident_bytes(*id),
            cpu_time: cpu_time(*id).expect("it runs"),
            lines: fs::read_to_string(self.machine.on_disk("/var/log/agent.log"))
                .expect("a log")
                .lines()
                .count(),
        }
    }

    async fn runs(&self, program: &str, words: &[&str]) -> String {
        let ended = Ended::of(&self.machine.inside(program, words)).await;
        assert!(ended.is_done, "{program} {words:?}: {}\n{}", ended.said, self.machine.log());
        ended.out
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.machine.on_disk(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
        fs::write(path, text).expect("it can be written");
    }
}

/// The use that the agent has made of its machine until some moment.
#[derive(Debug)]
struct AgentUse {
    at: Instant,
    resident_bytes: u64,
    cpu_time: Duration,
    lines: usize,
}

impl AgentUse {
    fn since(&self, before: &Self) -> String {
        let seconds = (self.at - before.at).as_secs_f64();
        let cpu = (self.cpu_time - before.cpu_time).as_secs_f64() / seconds * 100.0;
        let lines = (self.lines - before.lines) as f64 / seconds * 60.0;
        let mib = self.resident_bytes as f64 / (1024.0 * 1024.0);
        format!("has {mib:.1} MiB, and used {cpu:.2} % of a core and {lines:.2} lines of its log a minute")
    }
}

/// One release of the application: two pods that are replaced one after the other.
fn application(release: u32) -> Value {
    let labels = json!({ "app": "shop" });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "shop" },
        "spec": {
            "replicas": 2, "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels, "annotations": { "release": release.to_string() } },
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{ "name": "main", "image": IMAGE, "imagePullPolicy": "Never", "args": ["serve", "shop"] }],
                },
            },
        },
    })
}

/// A file of the example with the address of the trial's machine.
fn of_trial(text: &str) -> String {
    assert!(text.contains(EXAMPLE), "{text}");
    text.replace(EXAMPLE, &POD.to_string())
}

/// kubeadm's configuration with what the trial's kubelet needs on a machine in namespaces.
fn kubeadm_of_trial(text: &str, kubelet: Value) -> String {
    let text = of_trial(text).replace("v1.36.3", pinned_kubernetes());
    let (others, own) = text.rsplit_once("---\n").expect("several documents");
    let mut own: Value = serde_saphyr::from_str(own).expect("YAML");
    assert_eq!(own["kind"], "KubeletConfiguration");
    for (key, value) in kubelet.as_object().expect("an object") {
        own[key] = value.clone();
    }
    format!("{others}---\n{own}\n")
}
