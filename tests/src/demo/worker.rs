//! `make demo WORKER=1`: a machine joins by one command, and finds its control plane after a loss of power while all but its masters is
//! dark.

use std::fs;
use std::io;
use std::time::Instant;

use super::DemoError;
use super::progress::Progress;
use crate::kube::kubectl::Kubectl;
use crate::lb_cluster::MASTERS;
use crate::lb_cluster::booted_worker::BootedWorker;

/// The kubeconfig on the worker, for those who try it.
const KUBECONFIG: &str = "/etc/kubernetes/admin.conf";

/// Shows it, and returns what has to go on.
pub(super) async fn perform(progress: &Progress) -> Result<BootedWorker, DemoError> {
    let began = Instant::now();
    progress.say(
        "starting three masters, each an API server in a network namespace, and a machine with systemd, containerd and kubelet. Nothing else \
         is there: no cloud and no resolver",
    );
    let mut worker = BootedWorker::start().await?;
    progress.done("everything is set up", began);

    progress.say("an administrator gets the command by which a machine joins:");
    progress.command("tombolo node join-command --kubeconfig admin.conf");
    progress.say("it runs on the machine:");
    progress.command(&format!("tombolo {}", worker.join.join(" ")));
    let since = Instant::now();
    let joined = worker.try_join(&[]).await;
    progress.output(&joined.said);
    if !joined.is_done {
        return Err(DemoError::Refused { command: "tombolo node join".to_owned(), stderr: joined.said });
    }
    progress.done("the machine is a worker", since);
    worker.runs_a_pod().await;
    let kubectl = worker.cluster.kubectl();
    show(progress, &kubectl).await?;

    let dead = MASTERS - 1;
    progress.say(&format!(
        "an API server dies ({}), and then the worker loses its power and boots:",
        worker.cluster.socket(dead)
    ));
    worker.cluster.kill(dead);
    let boot = worker.reboot().await;
    progress.say(&format!(
        "the first API server answered by way of node-lb {:.2} s after its start, and kubelet was Ready and its pod ran {:.1} s after the power",
        boot.first_answer.as_secs_f64(),
        boot.at_work.as_secs_f64()
    ));
    show(progress, &kubectl).await?;
    progress.done("everything was shown", began);
    Ok(worker)
}

/// kubectl on the worker, at 127.0.0.1:7443.
async fn show(progress: &Progress, kubectl: &Kubectl) -> Result<(), DemoError> {
    for words in ["get nodes", "get pods -o wide"] {
        let command = format!("kubectl --server https://127.0.0.1:7443 {words}");
        progress.command(&command);
        let output = kubectl.run(&words.split(' ').collect::<Vec<_>>()).await?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(DemoError::Refused { command, stderr });
        }
        progress.output(&String::from_utf8_lossy(&output.stdout));
    }
    Ok(())
}

/// Commands to try in another terminal.
pub(super) fn print_next_steps(worker: &BootedWorker, progress: &Progress) -> io::Result<()> {
    let shell = worker.machine.inside("bash", &[]).command_line();
    let kubeconfig = worker.cluster.edge.directory().join("worker.conf");
    fs::copy(kubeconfig, worker.machine.on_disk(KUBECONFIG))?;
    progress.plain(&format!(
        "\nTry it in another terminal. A shell on the worker:\n\n  {shell}\n\nand there:\n\n  kubectl --kubeconfig {KUBECONFIG} get pods -A -w\n  \
         tombolo doctor node\n  less /var/log/units.log\n  tombolo node reset\n\nCtrl-C stops everything."
    ));
    Ok(())
}
