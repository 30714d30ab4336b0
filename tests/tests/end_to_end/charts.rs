//! The charts of deploy/charts at a real API server, installed and removed by helm.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;
use tests::binaries::binary;
use tests::enroll;
use tests::helm::combinations::COMBINATIONS;
use tests::helm::remains::{objects_of_ours, unnamed};
use tests::helm::{CHARTS, Helm, folder, objects};
use tests::kube::EdgeCluster;
use tests::process::{Invocation, Process, run};
use tests::rig::{ApiServer, Rig};
use tests::skip::skip;
use tests::sources::workspace;

/// The limit for any step of a test.
const DONE_MAX: Duration = Duration::from_secs(60);

/// Kinds of the Prometheus operator, which no API server knows by itself.
const OPERATORS: [&str; 2] = ["PodMonitor", "PrometheusRule"];

/// Namespaces in which combinations give rights.
const OTHERS: [&str; 3] = ["ci", "shop", "tenant-a"];

/// The pods of `helm test` are among the objects, which the API server admits or refuses by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_combination_is_valid_and_runs_as_restricted_pods() {
    let helm = match Helm::find() {
        Ok(helm) => helm,
        Err(missing) => {
            return skip("every_combination_is_valid_and_runs_as_restricted_pods", &missing.to_string());
        }
    };
    let cluster = EdgeCluster::start().await.unwrap();
    restricted_namespaces(&cluster).await;
    for namespace in OTHERS {
        cluster.admin().stdout(&["create", "namespace", namespace]).await;
    }

    for combination in COMBINATIONS {
        let made = helm.template(combination.chart, combination.values).await.unwrap();
        let known: Vec<Value> = objects(&made)
            .into_iter()
            .filter(|object| !OPERATORS.iter().any(|kind| object["kind"] == *kind))
            .collect();
        let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": known });
        let file = cluster.directory().join("combination.json");
        fs::write(&file, list.to_string()).unwrap();
        let words =
            ["apply", "--server-side", "--validate=strict", "--dry-run=server", "-f", file.to_str().unwrap()];
        let output = cluster.admin().run(&words).await.unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        // A warning is on stderr, too.
        assert!(output.status.success() && message.is_empty(), "{}: {message}", combination.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rendered_files_for_kubectl_apply_are_valid() {
    let cluster = EdgeCluster::start().await.unwrap();
    for file in ["server.yaml", "agent.yaml"] {
        let file = workspace().join("deploy/install").join(file);
        let words = ["apply", "--server-side", "--validate=strict", "-f", file.to_str().unwrap()];
        let output = cluster.admin().run(&words).await.unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && message.is_empty(), "{}: {message}", file.display());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uninstall_leaves_nothing_but_what_the_notes_name() {
    let helm = match Helm::find() {
        Ok(helm) => helm,
        Err(missing) => {
            return skip("uninstall_leaves_nothing_but_what_the_notes_name", &missing.to_string());
        }
    };
    let cluster = EdgeCluster::start().await.unwrap();
    let program = cluster.admin().of(helm.program());
    for ((chart, namespace), values) in CHARTS.into_iter().zip([
        "host=gateway.example",
        "config.cluster=edge-a,config.servers={gateway.example:8443},callerRoles[0].group=g,callerRoles[0].clusterRole=view",
        "tenant=tombolo-tenant,services.apiserver=10.96.0.7,services.etcdData={10.96.0.8},services.etcdEvent={10.96.0.9}",
    ]) {
        let folder = folder(chart);
        let install =
            ["install", "trial", folder.to_str().unwrap(), "--namespace", namespace, "--create-namespace", "--set", values];
        let before = objects_of_ours(&cluster).await;

        let notes = program.stdout(&install).await;
        let installed = objects_of_ours(&cluster).await;
        program.stdout(&["uninstall", "trial", "--namespace", namespace]).await;

        assert!(installed.len() > before.len() + 5, "{installed:?}");
        let left = objects_of_ours(&cluster).await.difference(&before).cloned().collect();
        assert_eq!(unnamed(&left, &notes), Vec::<String>::new(), "{notes}");
    }
}

/// As a person does it: the command's output is the input of a shell that has helm and a kubeconfig of the
/// site.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_printed_command_joins_a_site_and_says_when_it_is_live() {
    let helm = match Helm::find() {
        Ok(helm) => helm,
        Err(missing) => {
            return skip("the_printed_command_joins_a_site_and_says_when_it_is_live", &missing.to_string());
        }
    };
    let (rig, listener) = enroll::start("").await;
    let cluster = EdgeCluster::start().await.unwrap();
    let servers = rig.dialed().to_string();
    let create =
        ["cluster", "create", "site-7", "--print", "helm", "--user", "alice", "--group", "tombolo:admins"];
    let more = ["--cluster-role", "view", "--socket", "admin/admin.sock"];
    let script = rig.tombolo(&[create.as_slice(), &more].concat()).await;
    let waits = ["cluster", "create", "site-8", "--print", "helm", "--wait", "--socket", "admin/admin.sock"];
    let invocation = Invocation::of(binary("tombolo")).arguments(waits).in_directory(rig.path());
    let output = rig.path().join("waits.log");
    let mut waiting = Process::start(&invocation, &output).await.unwrap();

    // No node runs the agents here, so there is nothing to wait for.
    assert!(script.contains(" --wait "), "{script}");
    by_shell(&rig, &cluster, &helm, &script.replace(" --wait ", " ")).await;

    let config =
        ["get", "configmap", "tunnel-agent", "--namespace", "tombolo", "-o", "jsonpath={.data.agent\\.yaml}"];
    let config = objects(&cluster.admin().stdout(&config).await).remove(0);
    assert_eq!(config["cluster"], "site-7");
    assert_eq!(config["servers"], serde_json::json!([servers]));
    assert_eq!(config["enrollment"]["server"], listener.address.to_string());
    assert_eq!(config["enrollment"]["pin"], listener.pin);
    assert_eq!(
        config["impersonation"],
        serde_json::json!({ "users": ["alice"], "groups": ["tombolo:admins"] })
    );
    let token = ["get", "secret", "tunnel-agent", "--namespace", "tombolo", "-o", "jsonpath={.data.token}"];
    let token = String::from_utf8(BASE64.decode(cluster.admin().stdout(&token).await).unwrap()).unwrap();
    enroll::private(&rig, "token", &token);
    let api_server = ApiServer::Kubeconfig(cluster.admin_kubeconfig());
    let _agent = enroll::agent(&rig, &listener, "site-7", "site-7", &api_server).await;
    rig.connected("site-7").await;
    assert!(waiting.ended().is_none(), "{}", waiting.tail());

    let token = enroll::at(&rig, &["token", "create", "--cluster", "site-8", "-o", "token"]).await;
    enroll::private(&rig, "token", &token);
    let _agent = enroll::agent(&rig, &listener, "site-8", "site-8", &api_server).await;
    let ended = waiting.wait(DONE_MAX).await.unwrap();
    let log = fs::read_to_string(&output).unwrap();
    assert!(ended.success() && log.contains("cluster site-8 is live after "), "{log}");
    assert!(log.contains("no caller can act in this cluster yet"), "{log}");
}

/// Runs a script by a shell that finds helm and the cluster.
async fn by_shell(rig: &Rig, cluster: &EdgeCluster, helm: &Helm, script: &str) {
    let programs = rig.path().join("programs");
    fs::create_dir(&programs).unwrap();
    symlink(helm.program(), programs.join("helm")).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let invocation = Invocation::of("sh")
        .arguments(["-c", script])
        .variable("PATH", path)
        .variable("HOME", rig.path().display().to_string())
        .variable("KUBECONFIG", cluster.admin_kubeconfig().display().to_string())
        .in_directory(workspace());
    let output = run(&invocation, DONE_MAX).await.unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {message}");
}

/// The namespaces of the charts. The pods of a control plane use the host's network, which only the level `privileged` admits.
async fn restricted_namespaces(cluster: &EdgeCluster) {
    for (chart, namespace) in CHARTS {
        cluster.admin().stdout(&["create", "namespace", namespace]).await;
        let level = if chart == "tenant-control-plane" { "privileged" } else { "restricted" };
        let label = |mode: &str| format!("pod-security.kubernetes.io/{mode}={level}");
        let words = ["label", "namespace", namespace, &label("enforce"), &label("warn")];
        cluster.admin().stdout(&words).await;
    }
    // No pod is admitted without its account, which a dry run does not make.
    for (account, namespace) in
        [("tunnel-server", "tombolo-system"), ("my-server", "tombolo-system"), ("tunnel-agent", "tombolo")]
    {
        cluster.admin().stdout(&["create", "serviceaccount", account, "--namespace", namespace]).await;
    }
}
