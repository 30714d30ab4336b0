//! `make demo TENANT=1`: two control planes on one host cluster, a machine that joins, a dark line to the cloud, and a worker that
//! loses its power meanwhile.

use std::time::Instant;

use super::DemoError;
use super::progress::Progress;
use crate::enroll;
use crate::host_cluster::cloud_line::CloudLine;
use crate::host_cluster::tenant::Tenant;
use crate::host_cluster::worker::TenantWorker;
use crate::host_cluster::{HostCluster, KUBECTL_MAX};
use crate::kube::assets::Assets;
use crate::kube::kubectl::Kubectl;
use crate::lab::Lab;
use crate::rig::{GROUP, Rig};

/// The names of the tenants. The first one gets a worker, and is a cluster of the server.
const TENANTS: [&str; 2] = ["blue", "green"];

/// The name of the worker.
const WORKER: &str = "worker-0";

/// All that has to go on until Ctrl-C.
pub(super) struct TenantStage {
    // The machine goes before what it talks to.
    worker: TenantWorker,
    tenants: Vec<Tenant>,
    host: HostCluster,
    _line: CloudLine,
    rig: Rig,
}

/// Shows it, and returns what has to go on.
pub(super) async fn perform(progress: &Progress, lab: &Lab) -> Result<TenantStage, DemoError> {
    let began = Instant::now();
    progress.say(
        "starting a host cluster of three nodes at a site, with real kubelet, containerd and kube-proxy, and a tunnel-server in the cloud. One \
         line joins both",
    );
    let mut host = HostCluster::start().await?;
    let line = host.network.join_cloud(lab.cloud()).await?;
    host.load_agent().await;
    let mut rig = lab.rig_logging("info", "").await;
    enroll::open(&mut rig).await;
    progress.done("everything is set up", began);

    let tenants = create(progress, &host).await?;
    let blue = &tenants[0];
    let mut worker = join(progress, &mut host, blue).await?;

    progress
        .say("the tenant becomes a cluster of the tunnel-server, with agents as pods of the host cluster:");
    progress.command("tombolo tenant register blue --user alice --cluster-role cluster-admin …");
    host.register(&blue.name, &rig).await;
    rig.connected(&blue.name).await;
    let kubeconfig = rig.kubeconfig("alice", &[GROUP], &blue.name).await;
    let alice = Kubectl::new(Assets::find()?.kubectl, kubeconfig).limit(KUBECTL_MAX);
    let alice = alice.in_network_namespace(Some(lab.cloud().path().to_owned()));
    progress.say("alice is in the cloud, and comes by the gateway:");
    shows(progress, &alice, &format!("logs {}", worker.pod())).await?;

    progress.say("the line to the cloud is cut, and the worker loses its power and boots:");
    line.cut().await?;
    let dark = alice.run(&["get", "nodes", "--request-timeout=5s"]).await?;
    progress.command("kubectl get nodes --request-timeout=5s");
    progress.output(&String::from_utf8_lossy(&dark.stderr));
    if dark.status.success() {
        let found = String::from_utf8_lossy(&dark.stdout).into_owned();
        return Err(DemoError::NotShown { claim: "alice should be cut off".to_owned(), found });
    }
    let time = worker.reboot(blue).await;
    progress.say(&format!(
        "it was Ready and its pod ran {:.1} s after its power. At the site:",
        time.as_secs_f64()
    ));
    shows(progress, &blue.admin, "get pods -o wide").await?;
    shows(progress, &blue.admin, &format!("logs {}", worker.pod())).await?;

    line.mend().await?;
    rig.connected(&blue.name).await;
    progress.say("the line is there again, and alice has not changed anything:");
    shows(progress, &alice, "get nodes").await?;
    progress.done("everything was shown", began);
    Ok(TenantStage { worker, tenants, host, _line: line, rig })
}

async fn create(progress: &Progress, host: &HostCluster) -> Result<Vec<Tenant>, DemoError> {
    progress.say("two clusters get control planes as pods on the same three nodes:");
    progress.command("kubectl label nodes --all tombolo.dev/control-planes=true");
    host.label_nodes().await;
    let mut tenants = Vec::new();
    for name in TENANTS {
        let since = Instant::now();
        progress.command(&format!("tombolo tenant create {name} --members 1"));
        tenants.push(Tenant::create(host, name, &["--members", "1"]).await);
        progress.done(&format!("{name} is ready"), since);
    }
    for words in ["list", "status blue"] {
        let command = format!("tombolo tenant {words}");
        progress.command(&command);
        let ended = host.tombolo_tenant(&words.split(' ').collect::<Vec<_>>()).await;
        if !ended.is_done {
            return Err(DemoError::Refused { command, stderr: ended.said });
        }
        progress.output(&ended.out);
    }
    Ok(tenants)
}

async fn join(
    progress: &Progress,
    host: &mut HostCluster,
    tenant: &Tenant,
) -> Result<TenantWorker, DemoError> {
    progress.say("a machine beside them boots. An administrator gets the command by which it joins:");
    let worker = host.boot_worker(WORKER).await;
    let line = tenant.join_line(host).await;
    progress.command(&format!("tombolo tenant join-command {}", tenant.name));
    progress.output(&line);
    let since = Instant::now();
    progress.say("it runs on the machine:");
    let joined = worker.try_join(&line).await;
    progress.output(&joined.said);
    if !joined.is_done {
        return Err(DemoError::Refused { command: "tombolo node join".to_owned(), stderr: joined.said });
    }
    progress.done("the machine is a worker of the tenant", since);
    worker.runs_a_pod(tenant).await;
    shows(progress, &tenant.admin, "get nodes,pods -o wide").await?;
    Ok(worker)
}

async fn shows(progress: &Progress, kubectl: &Kubectl, words: &str) -> Result<(), DemoError> {
    let command = format!("kubectl {words}");
    progress.command(&command);
    let output = kubectl.run(&words.split(' ').collect::<Vec<_>>()).await?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(DemoError::Refused { command, stderr });
    }
    progress.output(&String::from_utf8_lossy(&output.stdout));
    Ok(())
}

/// Commands to try in another terminal.
pub(super) fn print_next_steps(stage: &TenantStage, lab: &Lab, progress: &Progress) {
    let (site, cloud) = (stage.host.network.core().path().display(), lab.cloud().path().display());
    let line = |place: &dyn std::fmt::Display, kubeconfig: &dyn std::fmt::Display| {
        format!("  nsenter --net={place} kubectl --kubeconfig {kubeconfig} get nodes,pods -A\n")
    };
    let host = line(&site, &stage.host.edge.admin_kubeconfig().display());
    let tenants = stage.tenants.iter().map(|tenant| line(&site, &tenant.kubeconfig.display()));
    let alice = line(&cloud, &stage.rig.path().join("alice-blue.kubeconfig").display());
    progress.plain(&format!(
        "\nTry it in another terminal. The host cluster, its tenants, and blue from the cloud:\n\n{host}{}{alice}\nA shell on the worker:\n\n  \
         {}\n\nCtrl-C stops everything.",
        tenants.collect::<String>(),
        stage.worker.machine.inside("bash", &[]).command_line()
    ));
}
