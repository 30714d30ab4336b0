//! The edge cluster that other tests use works as documented.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::geteuid;
use tests::dial::dial;
use tests::kube::account::USERNAME;
use tests::kube::kubeconfig::Credential;
use tests::kube::{ClusterOptions, EdgeCluster, assets};
use tests::pki::Issued;
use tests::process::{Invocation, Process, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const AUDIT_MAX: Duration = Duration::from_secs(10);
const REFUSED_MAX: Duration = Duration::from_secs(60);
/// The file to which the process that will be killed writes the IDs of its children.
const REPORT: &str = "TOMBOLO_REPORT_PROCESSES";

#[tokio::test]
async fn two_clusters_at_once_are_two_clusters() {
    let (one, two) = tokio::join!(EdgeCluster::start(), EdgeCluster::start());
    let (one, two) = (one.unwrap(), two.unwrap());

    one.admin().stdout(&["create", "namespace", "only-in-one"]).await;

    assert!(one.admin().stdout(&["get", "ns", "-o", "name"]).await.contains("namespace/only-in-one"));
    assert!(!two.admin().stdout(&["get", "ns", "-o", "name"]).await.contains("only-in-one"));
    assert_ne!(one.ca_pem(), two.ca_pem());
}

#[tokio::test]
async fn a_cluster_advertises_the_address_that_every_site_has() {
    let cluster = EdgeCluster::start().await.unwrap();

    let path = "jsonpath={.endpoints[*].addresses[*]}";
    let addresses = cluster.admin().stdout(&["get", "endpointslices", "kubernetes", "-o", path]).await;

    assert_eq!(addresses, "192.168.1.10");
}

#[tokio::test]
async fn the_binaries_report_the_pinned_release() {
    let cluster = EdgeCluster::start().await.unwrap();

    let versions = cluster.admin().stdout(&["version", "-o", "json"]).await;

    // With binaries from elsewhere any version is right; the test run prints which.
    println!("{versions}");
    if std::env::var_os("KUBEBUILDER_ASSETS").is_none() {
        let pinned = format!("\"gitVersion\": \"{}\"", assets::pinned_kubernetes());
        assert_eq!(versions.matches(&pinned).count(), 2, "kubectl and kube-apiserver: {versions}");
    }
}

/// The cluster's audit log has both the user and the impersonated one.
#[tokio::test]
async fn a_user_is_named_by_its_certificate_and_audited_with_its_impersonation() {
    let cluster = EdgeCluster::start().await.unwrap();
    let mallory = Credential::Certificate(cluster.issue_user("mallory", &["guests", "crew"]));
    let mallory = cluster.write_kubeconfig("mallory.conf", mallory).unwrap();

    let whoami = cluster.kubectl_with(&mallory).stdout(&["auth", "whoami", "-o", "json"]).await;
    let denied = cluster.kubectl_with(&mallory).run(&["get", "ns"]).await.unwrap();
    cluster.admin().stdout(&["get", "ns", "default", "--as=alice", "--as-group=system:masters"]).await;

    assert!(whoami.contains("mallory") && whoami.contains("guests") && whoami.contains("crew"), "{whoami}");
    assert!(!denied.status.success());
    let arrived = cluster
        .wait_for_audit(AUDIT_MAX, |event| event.request_uri.starts_with("/api/v1/namespaces/default"))
        .await
        .unwrap();
    assert_eq!(arrived.user.username, "kubernetes-admin");
    assert_eq!(arrived.impersonated_user.unwrap().username, "alice");
    assert_eq!(arrived.response_status.unwrap().code, Some(200));
}

#[tokio::test]
async fn remote_user_headers_count_from_the_front_proxy_and_from_nobody_else() {
    let cluster = EdgeCluster::start().await.unwrap();
    let other = cluster.issue_user("front-proxy-client", &[]);

    assert!(
        whoami_as_remote_user(&cluster, cluster.front_proxy())
            .await
            .contains("\"username\":\"remote-alice\"")
    );
    let same_name = whoami_as_remote_user(&cluster, &other).await;
    assert!(same_name.contains("\"username\":\"front-proxy-client\""), "{same_name}");
}

#[tokio::test]
async fn two_clusters_have_the_same_address_in_separate_network_namespaces() {
    assert!(geteuid().is_root(), "network namespaces need root: run the tests as root");
    let (lan_one, lan_two) = tokio::join!(lan(), lan());
    let place = |lan: &Process| ClusterOptions {
        network_namespace: Some(network_namespace_of(lan)),
        ..ClusterOptions::in_network_namespace("unused", "192.168.1.10:6443".parse().unwrap())
    };

    let (one, two) =
        tokio::join!(EdgeCluster::start_at(place(&lan_one)), EdgeCluster::start_at(place(&lan_two)));
    let (one, two) = (one.unwrap(), two.unwrap());
    one.admin().stdout(&["create", "namespace", "only-in-one"]).await;

    assert_eq!(one.url(), two.url());
    assert!(one.admin().stdout(&["get", "ns", "-o", "name"]).await.contains("only-in-one"));
    assert!(!two.admin().stdout(&["get", "ns", "-o", "name"]).await.contains("only-in-one"));
}

#[tokio::test]
async fn leftovers_of_a_killed_process_are_removed_and_those_of_a_live_one_kept() {
    let living = EdgeCluster::start().await.unwrap();
    let left_behind = std::env::temp_dir().join("tombolo-edge-0-left-behind");
    fs::create_dir_all(left_behind.join("etcd")).unwrap();
    fs::write(left_behind.join("owner.lock"), "").unwrap();

    let _sweeper = EdgeCluster::start().await.unwrap();

    assert!(!left_behind.exists());
    assert!(living.directory().join("owner.lock").exists());
}

#[tokio::test]
async fn a_failed_start_quotes_the_programs_own_message() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let place =
        ClusterOptions { port: Some(taken.local_addr().unwrap().port()), ..ClusterOptions::default() };

    let error = EdgeCluster::start_at(place).await.unwrap_err().to_string();

    assert!(error.contains("kube-apiserver ended") && error.contains("address already in use"), "{error}");
}

#[tokio::test]
async fn a_stopped_cluster_ends_within_its_grace() {
    let cluster = EdgeCluster::start().await.unwrap();
    let processes = cluster.process_ids();

    cluster.stop().await.unwrap();

    assert!(!processes.iter().copied().any(runs), "{processes:?}");
}

#[tokio::test]
async fn the_agents_account_may_only_impersonate_and_read_endpoints() {
    let cluster = EdgeCluster::start().await.unwrap();
    let mut account = cluster.create_agent_account().await.unwrap();
    let kubeconfig = cluster.write_kubeconfig("agent.conf", account.credential()).unwrap();
    let agent = cluster.kubectl_with(&kubeconfig);

    assert!(agent.stdout(&["auth", "whoami"]).await.contains(USERNAME));
    agent
        .stdout(&["get", "endpointslices", "-n", "default", "--field-selector=metadata.name=kubernetes"])
        .await;
    agent.stdout(&["get", "ns", "--as=alice", "--as-group=system:masters"]).await;
    let more = [&["get", "secrets", "-A"][..], &["get", "ns", "--as=alice", "--as-uid=7"]];
    for refused in more {
        assert!(!agent.run(refused).await.unwrap().status.success(), "{refused:?}");
    }

    // Rotation: another token, in one step, and the folder keeps kubelet's shape.
    let token = account.directory().path().join("token");
    let before = fs::read_to_string(&token).unwrap();
    account.rotate().await.unwrap();
    let after = fs::read_to_string(&token).unwrap();
    assert_ne!(before, after);
    assert_eq!(after, account.token());
    assert_eq!(fs::read_link(&token).unwrap(), Path::new("..data/token"));
    assert_eq!(fs::read_dir(account.directory().path()).unwrap().count(), 5, "one version folder is left");
}

#[tokio::test]
async fn a_revoked_agent_token_is_refused_and_its_successor_is_not() {
    let cluster = EdgeCluster::start().await.unwrap();
    let mut account = cluster.create_agent_account().await.unwrap();
    let kubeconfig = cluster.write_kubeconfig("agent.conf", account.credential()).unwrap();
    let agent = cluster.kubectl_with(&kubeconfig);
    agent.stdout(&["auth", "whoami"]).await;

    account.revoke().await.unwrap();

    // The API server remembers a good token for ten seconds.
    let deadline = Instant::now() + REFUSED_MAX;
    while agent.run(&["auth", "whoami"]).await.unwrap().status.success() {
        assert!(Instant::now() < deadline, "a token of a deleted account still works");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    account.rotate().await.unwrap();
    let kubeconfig = cluster.write_kubeconfig("agent.conf", account.credential()).unwrap();
    cluster.kubectl_with(&kubeconfig).stdout(&["auth", "whoami"]).await;
}

#[tokio::test]
async fn an_api_server_can_be_frozen_killed_and_started_again_with_its_objects() {
    let mut cluster = EdgeCluster::start().await.unwrap();
    cluster.admin().stdout(&["create", "configmap", "kept"]).await;
    let ask = ["get", "configmap", "kept", "--request-timeout=2s"];

    cluster.pause_apiserver().unwrap();
    assert!(!cluster.kubectl(&ask).await.unwrap().status.success(), "a frozen API server does not answer");
    cluster.resume_apiserver().unwrap();
    cluster.admin().stdout(&ask).await;

    cluster.kill_apiserver();
    assert!(!cluster.kubectl(&ask).await.unwrap().status.success(), "a dead API server does not answer");
    cluster.restart_apiserver().await.unwrap();
    cluster.admin().stdout(&ask).await;
}

#[tokio::test]
async fn nothing_is_left_after_drop() {
    let cluster = EdgeCluster::start().await.unwrap();
    let (processes, directory) = (cluster.process_ids(), cluster.directory().to_owned());
    assert!(processes.len() == 2 && processes.iter().copied().all(runs) && directory.exists());

    drop(cluster);

    assert!(!processes.iter().copied().any(runs), "{processes:?}");
    assert!(!directory.exists());
}

#[test]
fn nothing_is_left_after_a_panic_in_a_test_thread() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let failed = std::thread::spawn(move || {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async move {
            let cluster = EdgeCluster::start().await.unwrap();
            sender.send((cluster.process_ids(), cluster.directory().to_owned())).unwrap();
            panic!("on purpose");
        });
    });
    let (processes, directory) = receiver.recv().unwrap();

    failed.join().unwrap_err();

    assert!(processes.len() == 2 && !processes.iter().copied().any(runs), "{processes:?}");
    assert!(!directory.exists());
}

#[tokio::test]
async fn a_cluster_outlives_the_thread_that_started_it() {
    let starter = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(EdgeCluster::start()).unwrap()
    });

    let cluster = starter.join().unwrap();

    cluster.admin().stdout(&["get", "ns"]).await;
}

/// Runs itself as a process of its own, kills that, and looks for what it had started.
#[test]
fn nothing_runs_on_after_the_test_process_is_killed() {
    if let Some(report) = std::env::var_os(REPORT) {
        return start_and_hang(Path::new(&report));
    }
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("processes");
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "nothing_runs_on_after_the_test_process_is_killed"])
        .env(REPORT, &report)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let processes: Vec<u32> = wait_until(|| {
        let text = fs::read_to_string(&report).ok().filter(|text| text.ends_with('\n'))?;
        Some(text.split_whitespace().map(|id| id.parse().unwrap()).collect())
    });
    assert!(processes.len() == 2 && processes.iter().copied().all(runs));

    child.kill().unwrap();
    child.wait().unwrap();

    wait_until(|| (!processes.iter().copied().any(runs)).then_some(()));
}

fn start_and_hang(report: &Path) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let cluster = EdgeCluster::start().await.unwrap();
        let ids: Vec<String> = cluster.process_ids().iter().map(u32::to_string).collect();
        fs::write(report, format!("{}\n", ids.join(" "))).unwrap();
        std::future::pending::<()>().await;
    });
}

/// The user that the API server sees for a certificate and a forged header.
async fn whoami_as_remote_user(cluster: &EdgeCluster, identity: &Issued) -> String {
    let mut stream = dial(cluster.address(), cluster.ca_pem(), &["http/1.1"], Some(identity)).await.unwrap();
    let body = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
    let request = format!(
        "POST /apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n\
         X-Remote-User: remote-alice\r\nX-Remote-Group: system:authenticated\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// A process in a network namespace of its own that has the address 192.168.1.10.
async fn lan() -> Process {
    let log = std::env::temp_dir().join(format!("tombolo-lan-{}.log", std::process::id()));
    let sleeper = Invocation::of("unshare").arguments(["--net", "sleep", "infinity"]);
    let lan = Process::start(&sleeper, &log).await.unwrap();
    let _ = fs::remove_file(&log);
    let namespace = network_namespace_of(&lan);
    let ours = fs::read_link("/proc/self/ns/net").unwrap();
    wait_until(|| fs::read_link(&namespace).ok().filter(|theirs| *theirs != ours));
    for arguments in [&["addr", "add", "192.168.1.10/24", "dev", "lo"][..], &["link", "set", "lo", "up"]] {
        let ip = Invocation::of("ip").arguments(arguments.iter().copied());
        let output = run(&ip.in_network_namespace(Some(namespace.clone())), AUDIT_MAX).await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    lan
}

fn network_namespace_of(process: &Process) -> PathBuf {
    format!("/proc/{}/ns/net", process.id().unwrap()).into()
}

/// Returns true if a process exists and is not a zombie waiting to be reaped by somebody else.
fn runs(id: u32) -> bool {
    fs::read_to_string(format!("/proc/{id}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')))
}

fn wait_until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "what was waited for did not happen within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}
