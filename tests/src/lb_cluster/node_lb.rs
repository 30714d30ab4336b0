//! node-lb on the worker, with a state directory that outlives it.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{LbCluster, until};
use crate::binaries::binary;
use crate::network::NetworkNamespace;
use crate::pki::Issued;
use crate::process::{Invocation, Process, run};
use crate::scratch::Scratch;

/// The address of node-lb on the worker.
pub const LB: &str = "127.0.0.1:7443";

/// The address of its probes.
const PROBES: &str = "127.0.0.1:9092";

/// Longest run of `tombolo doctor node`.
const DOCTOR_MAX: Duration = Duration::from_secs(60);

/// The file of systemd's socket.
const NOTIFY_SOCKET: &str = "notify.sock";

/// Longest time for a start with a handover.
const HANDOVER_MAX: Duration = Duration::from_secs(30);

/// node-lb with its files. The process ends when this is dropped.
#[derive(Debug)]
#[must_use = "node-lb ends when this is dropped"]
pub struct NodeLb {
    process: Option<Process>,
    home: Scratch,
    network: PathBuf,
    starts: usize,
    /// The socket at which systemd would be told who is the main process.
    systemd: UnixDatagram,
}

impl NodeLb {
    /// Writes the files of a node-lb on the worker that begins with these API servers, and starts it.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start(cluster: &LbCluster, seeds: &[SocketAddr]) -> Self {
        Self::start_with(cluster, seeds, "").await
    }

    /// The same, and it serves pods of a network, by the address of the Service, too.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start_for_pods(
        cluster: &LbCluster,
        seeds: &[SocketAddr],
        network: &str,
        service: &str,
    ) -> Self {
        let pods = format!("pods: {{ networks: [\"{network}\"], kubernetesService: \"{service}\" }}\n");
        Self::start_with(cluster, seeds, &pods).await
    }

    /// The same, and `more` is added to the configuration of the first start.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start_with(cluster: &LbCluster, seeds: &[SocketAddr], more: &str) -> Self {
        Self::start_on(&cluster.worker, cluster.edge.ca_pem(), &cluster.kubelet(), seeds, more).await
    }

    /// The same on a machine of another cluster, with the CA of that and the certificate of its kubelet.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start_on(
        worker: &NetworkNamespace,
        ca_pem: &str,
        kubelet: &Issued,
        seeds: &[SocketAddr],
        more: &str,
    ) -> Self {
        let home = Scratch::new("tombolo-node-lb-").expect("a folder");
        fs::write(home.path().join("ca.crt"), ca_pem).expect("a file");
        // As kubelet keeps both in one file.
        let both = format!("{}{}", kubelet.certificate_pem, kubelet.key_pem);
        fs::write(home.path().join("kubelet-client-current.pem"), both).expect("a file");
        let network = worker.path().to_owned();
        let systemd = UnixDatagram::bind(home.path().join(NOTIFY_SOCKET)).expect("a socket");
        systemd.set_nonblocking(true).expect("a socket");
        let mut lb = Self { process: None, home, network, starts: 0, systemd };
        lb.write_configuration(seeds, "ca.crt", more);
        lb.start_again().await;
        lb
    }

    /// Writes the configuration anew, for the next start. `ca` is a file in the folder of the files.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn configure(&self, seeds: &[SocketAddr], ca: &str) {
        self.write_configuration(seeds, ca, "");
    }

    /// The same with more keys.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn configure_more(&self, seeds: &[SocketAddr], more: &str) {
        self.write_configuration(seeds, "ca.crt", more);
    }

    fn write_configuration(&self, seeds: &[SocketAddr], ca: &str, more: &str) {
        let seeds: Vec<String> = seeds.iter().map(|seed| format!("\"{seed}\"")).collect();
        let text = format!(
            "apiVersion: tombolo.dev/v1alpha1\nkind: NodeLBConfig\napiServers: [{}]\ncaFile: {ca}\n\
             clientCertificateFile: kubelet-client-current.pem\nstateDir: state\n{more}",
            seeds.join(", ")
        );
        fs::write(self.home.path().join("node-lb.yaml"), text).expect("a file");
    }

    /// Starts the process with the files as they are, and returns at once.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start_again(&mut self) {
        let config = self.home.path().join("node-lb.yaml");
        let program = Invocation::of(binary("node-lb"))
            .arguments(["--log-format=json".to_owned(), format!("--config={}", config.display())])
            .variable("NOTIFY_SOCKET", self.home.path().join(NOTIFY_SOCKET).display().to_string())
            .in_network_namespace(Some(self.network.clone()));
        self.starts += 1;
        self.process = Some(Process::start(&program, &self.log_path()).await.expect("node-lb starts"));
    }

    /// Starts a successor beside the process that runs, which hands over and ends. systemd knows of the successor by
    /// then. Returns the time for which nothing moved, as the log has it.
    ///
    /// # Panics
    /// If the process does not end in order.
    pub async fn hand_over(&mut self) -> String {
        let mut predecessor = self.process.take().expect("it runs");
        let before = predecessor.output().to_owned();
        while self.systemd.recv(&mut [0; 256]).is_ok() {}
        self.start_again().await;
        let ended = predecessor.wait(HANDOVER_MAX).await;
        let log = fs::read_to_string(before).unwrap_or_default();
        let code = ended.unwrap_or_else(|error| panic!("{error}\n{log}\n{}", self.log())).code();
        assert_eq!(code, Some(0), "{log}\n{}", self.log());
        let mut message = [0; 256];
        let read = self.systemd.recv(&mut message).expect("systemd was told before the end");
        let id = self.process.as_ref().and_then(Process::id).expect("the successor runs");
        assert_eq!(String::from_utf8_lossy(&message[..read]), format!("MAINPID={id}\nREADY=1\n"));
        let frozen = log.split_once("\"frozen\":\"").and_then(|(_, rest)| rest.split_once('"'));
        frozen.expect("the log has it").0.to_owned()
    }

    /// Starts a successor that cannot start. Returns its exit code and its log.
    ///
    /// # Panics
    /// If it does not end.
    pub async fn fail_to_hand_over(&mut self) -> (Option<i32>, String) {
        let predecessor = self.process.take();
        self.start_again().await;
        let mut successor = std::mem::replace(&mut self.process, predecessor).expect("it was just started");
        let ended = successor.wait(HANDOVER_MAX).await.expect("it ends");
        (ended.code(), self.log())
    }

    /// Kills the process, as a reboot does.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Ends the process by SIGTERM, and returns its exit code.
    ///
    /// # Panics
    /// If it does not end.
    pub async fn stop(&mut self, limit: Duration) -> Option<i32> {
        let process = self.process.take().expect("it runs");
        process.stop(limit).await.expect("it ends").code()
    }

    /// The output of `tombolo doctor node` on the worker, and true if no check failed.
    ///
    /// # Panics
    /// If it cannot be run.
    pub async fn doctor(&self) -> (String, bool) {
        let config = self.home.path().join("node-lb.yaml");
        let program = Invocation::of(binary("tombolo"))
            .arguments(["doctor".to_owned(), "node".to_owned(), format!("--config={}", config.display())])
            .in_network_namespace(Some(self.network.clone()));
        let output = run(&program, DOCTOR_MAX).await.expect("the doctor runs");
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success())
    }

    /// Memory of the process that is in RAM now.
    ///
    /// # Panics
    /// If it does not run.
    pub fn resident_bytes(&self) -> u64 {
        self.process.as_ref().expect("it runs").resident_bytes()
    }

    /// The log since the last start.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// The folder of the state file.
    pub fn state(&self) -> PathBuf {
        self.home.path().join("state")
    }

    /// The folder of the files.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// All metrics, or nothing if there is no answer.
    pub async fn metrics(&self, cluster: &LbCluster) -> String {
        cluster.scrape(PROBES.parse().expect("an address")).await
    }

    /// Waits until node-lb shows an API server in this state.
    ///
    /// # Panics
    /// If that does not come to pass.
    pub async fn until_state(
        &self,
        cluster: &LbCluster,
        api_server: SocketAddr,
        state: &str,
        limit: Duration,
    ) {
        let line =
            format!("tombolo_lb_api_server_state{{api_server=\"{api_server}\",state=\"{state}\"}} 1\n");
        let what = format!("{api_server} is {state}\n{}", self.log());
        until(&what, limit, async || self.metrics(cluster).await.contains(&line).then_some(())).await;
    }

    fn log_path(&self) -> PathBuf {
        self.home.path().join(format!("node-lb-{}.log", self.starts))
    }
}
