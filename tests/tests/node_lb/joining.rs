//! A machine gets its load balancer alone by one command, which an administrator has printed, and takes it back.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tests::binaries::binary;
use tests::dial::{acceptor, dial};
use tests::kube::assets::NodeAssets;
use tests::lb_cluster::command::Ended;
use tests::lb_cluster::kubeadm;
use tests::lb_cluster::{LB, LbCluster, MASTERS, READY_MAX, until};
use tests::node::kubelet_configuration;
use tests::pki::{Authority, Issued};
use tests::process::{Invocation, Process};
use tests::scratch::Scratch;
use tests::skip::skip;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Addresses of the worker at which API servers answer that do not fit.
const OTHERS: [&str; 3] = ["127.0.0.9:6443", "127.0.0.10:6443", "127.0.0.11:6443"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_printed_command_sets_a_machine_up_and_reset_takes_it_back() {
    const NAME: &str = "a_printed_command_sets_a_machine_up_and_reset_takes_it_back";
    let cluster = match LbCluster::start().await {
        Ok(cluster) => cluster,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    let assets = match NodeAssets::find() {
        Ok(assets) => assets,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    let _controllers = cluster.edge.start_controllers(&assets).await.expect("the controllers start");
    let worker = Worker::new(&cluster);
    let kubelet = kubelet_configuration("kubelet");
    kubeadm::init_phase(&cluster, &assets, &["bootstrap-token", "--skip-token-print"], &kubelet).await;

    let line = worker.join_command(&cluster).await;
    let (join, by_kubeadm) = line.split_once(" && ").expect("two commands");
    let join: Vec<&str> = join.split(' ').skip(1).collect();
    let token = after(&join, "--token");
    assert!(by_kubeadm.starts_with(&format!("kubeadm join 127.0.0.1:7443 --token {token} ")), "{line}");

    worker.what_is_wrong_is_refused(&cluster, &join).await;
    worker.joins_and_goes_on(&cluster, &join).await;
    worker.resets().await;
}

/// A machine whose root is a folder, in the worker's network.
struct Worker {
    root: PathBuf,
    _scratch: Scratch,
    network: PathBuf,
}

impl Worker {
    fn new(cluster: &LbCluster) -> Self {
        let scratch = Scratch::new("tombolo-worker-").expect("a folder");
        let root = scratch.path().join("machine");
        fs::create_dir(&root).expect("a folder");
        Self { root, _scratch: scratch, network: cluster.worker.path().to_owned() }
    }

    async fn run(&self, program: &Path, words: &[String]) -> Ended {
        let program = Invocation::of(program)
            .arguments(words.to_vec())
            .in_network_namespace(Some(self.network.clone()));
        Ended::of(&program).await
    }

    async fn tombolo(&self, words: &[&str]) -> Ended {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        self.run(&binary("tombolo"), &words).await
    }

    /// The printed line, once the cluster lists all its API servers.
    async fn join_command(&self, cluster: &LbCluster) -> String {
        let kubeconfig = format!("--kubeconfig={}", cluster.edge.admin_kubeconfig().display());
        until("the command names all API servers", READY_MAX, async || {
            let printed = self.tombolo(&["node", "join-command", "--only-lb", &kubeconfig]).await;
            assert!(printed.is_done, "{}", printed.said);
            let has_all = printed.out.matches("--api-server").count() == MASTERS;
            has_all.then(|| printed.out.trim().to_owned())
        })
        .await
    }

    /// Runs the join with other words in place of the printed ones, for this root, without a start.
    async fn join(&self, join: &[&str], replaced: &[(&str, &str)]) -> Ended {
        let mut words = join.to_vec();
        for (flag, value) in replaced {
            let place = words.iter().position(|word| word == flag).expect("the flag is there");
            words[place + 1] = value;
        }
        let root = format!("--root={}", self.root.display());
        words.extend(["--no-start", &root]);
        self.tombolo(&words).await
    }

    async fn what_is_wrong_is_refused(&self, cluster: &LbCluster, join: &[&str]) {
        let zeros = format!("sha256:{}", "0".repeat(64));
        let (id, _) = after(join, "--token").split_once('.').expect("a token");
        let other_secret = format!("{id}.0000000000000000");
        for (flag, value, reason) in [
            ("--ca-hash", zeros.as_str(), "names another one"),
            ("--token", "aaaaaa.0000000000000000", "does not know the token aaaaaa"),
            ("--token", other_secret.as_str(), "not signed with the token"),
        ] {
            let ended = self.join(join, &[(flag, value)]).await;
            assert!(!ended.is_done && ended.said.contains(reason), "{flag} {value}: {}", ended.said);
        }
        let loopback = ["127.0.0.1".parse().unwrap()];
        let late = SystemTime::now() + Duration::from_secs(600);
        for (address, identity, time, reason) in [
            (
                OTHERS[0],
                Authority::new("kubernetes").issue_server(&[], &loopback),
                SystemTime::now(),
                "is not of this cluster's CA",
            ),
            (OTHERS[1], cluster.edge.issue_server(&["master"], &[]), SystemTime::now(), "apiServer.certSANs"),
            (
                OTHERS[2],
                cluster.edge.issue_server(&[], &loopback),
                late,
                "s behind that of 127.0.0.11:6443; set both by NTP",
            ),
        ] {
            cluster.on_worker.run(serve_as_api_server(address, identity, time)).await;
            let ended = self.join(&[join, &["--api-server", address]].concat(), &[]).await;
            assert!(!ended.is_done && ended.said.contains(reason), "{reason}: {}", ended.said);
        }
        let many = ["--api-server", OTHERS[0]].repeat(30);
        let ended = self.join(&[join, &many].concat(), &[]).await;
        assert!(!ended.is_done && ended.said.contains("33 API servers are named"), "{}", ended.said);
        let kubelet = self.root.join("etc/kubernetes/kubelet.conf");
        fs::create_dir_all(kubelet.parent().expect("a folder")).unwrap();
        fs::write(&kubelet, "").unwrap();
        let ended = self.join(join, &[]).await;
        assert!(!ended.is_done && ended.said.contains("has joined a cluster already"), "{}", ended.said);
        fs::remove_dir_all(self.root.join("etc")).unwrap();
        assert_eq!(fs::read_dir(&self.root).unwrap().count(), 0, "nothing is half done");
    }

    async fn joins_and_goes_on(&self, cluster: &LbCluster, join: &[&str]) {
        let shown = self.join(&[join, &["--dry-run"]].concat(), &[]).await;
        assert!(shown.is_done && shown.said.contains("kind: NodeLBConfig"), "{}", shown.said);
        assert_eq!(fs::read_dir(&self.root).unwrap().count(), 0, "a dry run writes nothing");
        for _ in 0..2 {
            let ended = self.join(join, &[]).await;
            assert!(ended.is_done && ended.said.contains("enable --now node-lb"), "{}", ended.said);
        }
        let path = self.root.join("etc/tombolo/node-lb.yaml");
        let written = fs::read_to_string(&path).unwrap();
        for master in 0..MASTERS {
            assert!(written.contains(&cluster.socket(master).to_string()), "{written}");
        }

        // The unit would start it with the paths of a machine.
        let here = |folder: &str| self.root.join(folder).display().to_string();
        let own = written
            .replace("/etc/kubernetes", &here("etc/kubernetes"))
            .replace("/var/lib/kubelet", &here("var/lib/kubelet"));
        let config = self.root.join("own.yaml");
        fs::write(&config, own).unwrap();
        let words = [
            format!("--config={}", config.display()),
            format!("--state-dir={}", here("var/lib/tombolo/node-lb")),
        ];
        let node_lb = Invocation::of(binary("node-lb"))
            .arguments(words)
            .in_network_namespace(Some(self.network.clone()));
        let log = self.root.join("node-lb.log");
        let process = Process::start(&node_lb, &log).await.expect("node-lb starts");
        until("node-lb relays to the cluster", READY_MAX, async || {
            let ca_pem = cluster.edge.ca_pem().to_owned();
            let dialing =
                async move { dial(LB.parse().expect("an address"), &ca_pem, &["h2"], None).await.is_ok() };
            cluster.on_worker.run(dialing).await.then_some(())
        })
        .await;
        drop(process);
        fs::remove_file(&config).unwrap();
        fs::remove_file(&log).unwrap();
    }

    async fn resets(&self) {
        let root = format!("--root={}", self.root.display());
        let ended = self.tombolo(&["node", "reset", &root]).await;
        assert!(ended.is_done, "{}", ended.said);
        let left: Vec<_> = fs::read_dir(&self.root).unwrap().flatten().map(|entry| entry.path()).collect();
        assert!(left.is_empty(), "{left:?}");
        let again = self.tombolo(&["node", "reset", &root]).await;
        assert!(again.is_done && again.said.contains("nothing to take back"), "{}", again.said);
    }
}

/// Serves on the worker as an API server with this certificate, whose clock shows this time.
async fn serve_as_api_server(address: &'static str, identity: Issued, time: SystemTime) {
    let acceptor = acceptor(&identity, &["http/1.1"]);
    let listener = TcpListener::bind(address).await.unwrap();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ndate: {}\r\ncontent-length: 2\r\n\r\n{{}}",
        httpdate::fmt_http_date(time)
    );
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut request = [0; 1024];
            if stream.read(&mut request).await.is_ok_and(|length| length > 0) {
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }
    });
}

/// The word after a flag.
fn after<'a>(words: &[&'a str], flag: &str) -> &'a str {
    let place = words.iter().position(|word| *word == flag);
    words[place.unwrap_or_else(|| panic!("{flag} in {words:?}")) + 1]
}
