//! A server and its agents under test, set up as a person would: certificates by `tombolo`, two configuration
//! files.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::time::sleep;
use trust::user_token::TokenDigest;

use crate::binaries::binary;
use crate::clock::{self, Shift};
use crate::process::{Invocation, Process};
use crate::scratch::Scratch;

mod agents;
mod ask;
mod other_release;
mod peer;
pub mod policy;
mod ports;
mod secrets;
mod tombolo;

pub use agents::{Agent, ApiServer};
pub use ask::{Reply, ask, ask_raw, is_ready, parts_ready, plain};
pub use peer::Peer;
pub use ports::free_port;

/// The group that policy lets reach every cluster.
pub const GROUP: &str = "tombolo:admins";

/// The token that the server's token file knows, for `token:tess` of the group `token:` + [`GROUP`].
pub const TOKEN: &str = "a-token-for-trials-only";

/// The token of every agent at an API server that is none.
pub const AGENT_TOKEN: &str = "the-agents-token";

/// The environment variable that sets the level of all daemons' logs.
const LOG_LEVEL: &str = "TOMBOLO_RIG_LOG";

/// The level of a trial's daemons. At debug, QUIC's library writes a line for each frame of an attack, and a server
/// that writes them has no time for its tunnels.
const DEBUG: &str = "debug,quinn_proto=info";

/// The limit for anything to become ready. Builds of other tests may run beside.
const READY_MAX: Duration = Duration::from_secs(60);
/// The pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The default list of identities that the server may assert at clusters.
const ANYBODY: &str = "clusters: [{ pattern: \"*\", impersonation: { users: [\"*\"], groups: [\"*\"] } }]\n";
/// Limits that no test reaches with its one caller, unless it sets its own. Tests of limits have their own.
const ROOMY: &str = "limits:\n  \
    source: { connections: 10000, newPerSecond: 100000, failedLoginsPerMinute: 100000 }\n  \
    caller: { requests: 10000, requestsPerSecond: 100000, watchesPerCluster: 10000, upgrades: 10000, \
    connections: 10000 }\n  \
    cluster: { requests: 10000, watches: 10000, upgrades: 10000, queue: 10000 }\n";
/// The same limits for agents.
const ROOMY_AGENT: &str = "limits: { requests: 10000 }\n";
/// The folder of the certificates.
const PKI: &str = "pki";

/// A running server, with everything that belongs to it in one folder.
#[derive(Debug)]
#[must_use = "the server is killed when this is dropped"]
pub struct Rig {
    scratch: Scratch,
    server: Option<Process>,
    gateway: SocketAddr,
    probes: SocketAddr,
    log_level: String,
    log_format: &'static str,
    placement: Option<ServerPlacement>,
    /// True if processes are started with a clock that can be moved.
    has_clocks: bool,
    /// Environment variables of the processes that are started.
    variables: Vec<(String, String)>,
    /// Programs in place of those under test, by name.
    programs: BTreeMap<&'static str, PathBuf>,
}

/// The network namespace of a rig's server, if it is not the test's, and the address that agents elsewhere
/// dial.
///
/// The test itself reaches the server on the loopback of that namespace, and so runs there.
#[derive(Debug, Clone)]
pub struct ServerPlacement {
    /// The server's network namespace, by path.
    pub network_namespace: PathBuf,
    /// Its address there, for agents.
    pub address: IpAddr,
    /// True if the server listens on IPv6, too.
    pub is_dual: bool,
    /// Variables in the environment of every daemon.
    pub variables: Vec<(String, String)>,
}

/// The environment of a process.
#[derive(Debug, Clone, Default)]
pub struct ProcessEnvironment {
    /// Its network namespace, by path.
    pub network_namespace: Option<PathBuf>,
    /// A file in place of `/etc/hosts`.
    pub hosts: Option<PathBuf>,
    /// Variables of the process's environment.
    pub variables: Vec<(String, String)>,
}

impl ProcessEnvironment {
    /// A network namespace at this path, without anything else.
    fn within(network_namespace: Option<&Path>) -> Self {
        Self { network_namespace: network_namespace.map(Path::to_owned), ..Self::default() }
    }
}

impl Rig {
    /// A server with the configuration of a trial.
    pub async fn start() -> Self {
        Self::start_with("").await
    }

    /// A server whose configuration ends with `more`: further top-level keys, and before them further methods
    /// of `gateway.authentication`, which are indented by 4, and further keys of `gateway`, which are
    /// indented by 2.
    pub async fn start_with(more: &str) -> Self {
        Self::start_logging(DEBUG, more).await
    }

    /// The same with another level of its logs and its agents': to measure, as people run it.
    pub async fn start_logging(log_level: &'static str, more: &str) -> Self {
        Self::build(None, log_level, more).await
    }

    /// The same in a network namespace, and on all its addresses.
    pub async fn start_at(placement: ServerPlacement, log_level: &'static str, more: &str) -> Self {
        Self::build(Some(placement), log_level, more).await
    }

    async fn build(placement: Option<ServerPlacement>, log_level: &'static str, more: &str) -> Self {
        let scratch = Scratch::new("tombolo-rig-").expect("a folder");
        let (gateway, probes) = (free_port(), free_port());
        let log_level = std::env::var(LOG_LEVEL).unwrap_or_else(|_| log_level.to_owned());
        let mut rig = Self {
            scratch,
            server: None,
            gateway,
            probes,
            log_level,
            log_format: "text",
            placement,
            has_clocks: false,
            variables: Vec::new(),
            programs: BTreeMap::new(),
        };
        rig.tombolo(&["ca", "init", "--dir", PKI]).await;
        let names = ["--name", "127.0.0.1", "--name", "127.0.0.2", "--name", "gateway.test"];
        let names = [names.as_slice(), &["--suffix", "clusters.test"]].concat();
        // Agents elsewhere verify the address that they dial.
        let dialed = rig.dialed().ip().to_string();
        let names = [names.as_slice(), &["--name", &dialed]].concat();
        rig.tombolo(&[["ca", "issue", "server", "--dir", PKI].as_slice(), &names].concat()).await;
        rig.write(policy::FILE, &policy::ours());
        let digest = TokenDigest::of(TOKEN.as_bytes());
        rig.write("tokens.csv", &format!("{digest},tess,1,\"{GROUP}\"\n"));
        let admin = if more.contains("admin:") { "" } else { "admin: { socket: admin/admin.sock }\n" };
        let text = rig.server_yaml("server", rig.listened(), probes, &format!("{more}\n{admin}"));
        rig.write("server.yaml", &text);
        rig.start_server().await;
        rig
    }

    /// The folder of all files.
    pub fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// The address that callers connect to.
    pub fn gateway(&self) -> SocketAddr {
        self.gateway
    }

    /// The address that agents dial.
    pub fn dialed(&self) -> SocketAddr {
        let address = self.placement.as_ref().map_or(self.gateway.ip(), |placement| placement.address);
        SocketAddr::new(address, self.gateway.port())
    }

    /// The address of the server's probes.
    pub fn probes(&self) -> SocketAddr {
        self.probes
    }

    /// The path of the server's admin socket.
    pub fn admin_socket(&self) -> PathBuf {
        self.path().join("admin/admin.sock")
    }

    /// The root that the gateway's certificate chains to, PEM.
    pub fn server_ca(&self) -> String {
        self.read("pki/server-ca.crt")
    }

    /// Starts the server, which is not running, and waits until it is ready.
    pub async fn start_server(&mut self) {
        self.launch_server().await;
        self.ready(self.probes).await;
    }

    /// Starts the server, which is not running.
    pub async fn launch_server(&mut self) {
        let config = self.path().join("server.yaml");
        self.server = Some(self.launch(&self.surroundings(), "tunnel-server", &config, "server.log").await);
    }

    /// The environment of the server processes.
    fn surroundings(&self) -> ProcessEnvironment {
        ProcessEnvironment::within(self.network_namespace())
    }

    /// The network namespace of servers and callers, if it is not the test's.
    pub fn network_namespace(&self) -> Option<&Path> {
        self.placement.as_ref().map(|placement| placement.network_namespace.as_path())
    }

    /// Starts the server, waits for it to end by itself, and returns its exit code.
    pub async fn start_server_and_fail(&mut self) -> Option<i32> {
        let config = self.path().join("server.yaml");
        let mut process = self.launch(&self.surroundings(), "tunnel-server", &config, "server.log").await;
        process.wait(READY_MAX).await.expect("the process ends").code()
    }

    /// Runs a further server of this configuration file, which must end by itself, and returns its log.
    pub async fn server_fails(&self, config: &str) -> String {
        let (config, log) = (self.path().join(config), format!("{config}.log"));
        let mut process = self.launch(&self.surroundings(), "tunnel-server", &config, &log).await;
        process.wait(READY_MAX).await.expect("the process ends");
        self.read(&log)
    }

    /// The process of the server.
    pub fn server(&mut self) -> &mut Process {
        self.server.as_mut().expect("the server was started")
    }

    /// The ID of the server's process.
    pub fn server_id(&self) -> u32 {
        self.server.as_ref().and_then(Process::id).expect("the server runs")
    }

    /// Memory of the server that is in RAM now.
    pub fn resident_bytes(&self) -> u64 {
        self.server.as_ref().expect("the server was started").resident_bytes()
    }

    /// Ends the server as SIGKILL does.
    pub fn kill_server(&mut self) {
        self.server().kill();
        self.server = None;
    }

    /// The server's log so far.
    pub fn server_log(&self) -> String {
        self.read("server.log")
    }

    /// An agent's log so far. Its name is its cluster's, or `CLUSTER.ID`.
    pub fn agent_log(&self, name: &str) -> String {
        self.read(&format!("{name}.log"))
    }

    /// Waits until a daemon's log, such as `server.log` or `edge-a.log`, contains this text after its first
    /// `from` bytes.
    pub async fn logged(&self, log: &str, from: usize, text: &str) {
        let deadline = Instant::now() + READY_MAX;
        while !self.read(log).get(from..).is_some_and(|new| new.contains(text)) {
            assert!(Instant::now() < deadline, "{log} never said {text:?}: {}", self.logs());
            sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until the gateway lists a cluster as connected.
    pub async fn connected(&self, cluster: &str) {
        let name = format!("\"name\":\"{cluster}\"");
        self.listed(cluster, |item| item.contains(&name) && item.contains("\"connected\":true")).await;
    }

    /// Waits until the gateway lists a cluster as not connected.
    pub async fn disconnected(&self, cluster: &str) {
        let name = format!("\"name\":\"{cluster}\"");
        self.listed(cluster, |item| item.contains(&name) && item.contains("\"connected\":false")).await;
    }

    /// Waits until the gateway lists a cluster in a way that is wanted.
    pub async fn listed(&self, cluster: &str, wanted: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + READY_MAX;
        loop {
            let reply = self.ask_with_token("GET", "/clusters", &[]).await;
            if reply.body.split("\"apiVersion\"").any(&wanted) {
                return;
            }
            assert!(Instant::now() < deadline, "{cluster}: {}\n{}", reply.body, self.logs());
            sleep(LOOK_EVERY).await;
        }
    }

    /// One request over a connection of its own, as the holder of [`TOKEN`].
    pub async fn ask_with_token(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Reply {
        let authorization = format!("Bearer {TOKEN}");
        let headers = [&[("Authorization", authorization.as_str())], headers].concat();
        ask(self.gateway, &self.server_ca(), None, method, path, &headers).await.expect("the gateway answers")
    }

    /// Gives what is started from now on clocks that can be moved.
    pub fn take_clocks(&mut self) {
        self.has_clocks = true;
    }

    /// Gives what is started from now on these variables, and no longer those that were given before.
    pub fn take_variables(&mut self, variables: &[(String, String)]) {
        self.variables = variables.to_vec();
    }

    /// Lets what is started from now on write its log in this form.
    pub fn take_log_format(&mut self, format: &'static str) {
        self.log_format = format;
    }

    /// The other way round: what is started from now on has the right time.
    pub fn leave_clocks(&mut self) {
        self.has_clocks = false;
    }

    /// Moves the clocks of all that was started since [`Rig::take_clocks`].
    pub fn set_clocks(&self, shift: Shift) {
        shift.apply(self.path()).expect("a file can be written");
    }

    /// Changes the server's configuration, for its next start.
    pub fn write_config(&self, change: impl FnOnce(&str) -> String) {
        self.write("server.yaml", &change(&self.read("server.yaml")));
    }

    /// Writes a file of the rig, and returns where it is.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, text).expect("a file can be written");
        path
    }

    /// Sends a signal to a process and returns its exit code.
    pub async fn ends_with(process: &mut Process, signal: Signal) -> Option<i32> {
        process.signal(signal).expect("the process runs");
        process.wait(READY_MAX).await.expect("the process ends").code()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path().join(name)).unwrap_or_default()
    }

    async fn launch(&self, around: &ProcessEnvironment, program: &str, config: &Path, log: &str) -> Process {
        let ProcessEnvironment { network_namespace, hosts, mut variables } = around.clone();
        if self.has_clocks {
            variables.extend(clock::variables(self.path()).expect("a C compiler"));
        }
        let path = self.programs.get(program).cloned().unwrap_or_else(|| binary(program));
        let invocation = Invocation::of(path)
            .in_network_namespace(network_namespace)
            .with_hosts(hosts)
            .arguments(["--config".to_owned(), config.display().to_string()])
            .arguments(["--log-format", self.log_format, "--log-level", &self.log_level]);
        variables.extend(self.variables.iter().cloned());
        let of_all = self.placement.iter().flat_map(|placement| placement.variables.clone());
        let invocation = variables
            .into_iter()
            .chain(of_all)
            .fold(invocation, |invocation, (name, value)| invocation.variable(&name, value));
        Process::start(&invocation, &self.path().join(log)).await.expect("the program starts")
    }

    /// Waits until probes report that their process is ready.
    pub async fn ready(&self, probes: SocketAddr) {
        self.readyz(probes, " 200 ").await;
    }

    /// Waits until the server's probes report this part as not ready, for example `[-]audit`.
    pub async fn not_ready(&self, part: &str) {
        self.readyz(self.probes, part).await;
    }

    /// Waits until probes report that their process drains.
    pub async fn draining(&self, probes: SocketAddr) {
        self.readyz(probes, "[-]draining").await;
    }

    async fn readyz(&self, probes: SocketAddr, wanted: &str) {
        let deadline = Instant::now() + READY_MAX;
        while !matches!(plain(probes, "/readyz").await, Ok(answer) if answer.contains(wanted)) {
            assert!(Instant::now() < deadline, "/readyz never said {wanted:?}: {}", self.logs());
            sleep(LOOK_EVERY).await;
        }
    }

    /// The text that a daemon's `/metrics` has.
    pub async fn metrics(&self, probes: SocketAddr) -> String {
        plain(probes, "/metrics").await.expect("the probes answer")
    }

    /// The value of one series in a daemon's `/metrics`. The series is written as in that text; an absent
    /// one is zero.
    pub async fn metric(&self, probes: SocketAddr, series: &str) -> f64 {
        let metrics = self.metrics(probes).await;
        let value = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.map_or(0.0, |value| value.parse().expect("a number"))
    }

    /// Waits until a series of the server is as wanted.
    pub async fn measured(&self, series: &str, wanted: impl Fn(f64) -> bool) {
        let deadline = Instant::now() + READY_MAX;
        loop {
            let value = self.metric(self.probes, series).await;
            if wanted(value) {
                return;
            }
            assert!(Instant::now() < deadline, "{series} stayed at {value}");
            sleep(LOOK_EVERY).await;
        }
    }

    fn logs(&self) -> String {
        let logs = fs::read_dir(self.path()).expect("the folder").flatten().map(|entry| entry.path());
        logs.filter(|path| path.extension().is_some_and(|end| end == "log"))
            .map(|path| format!("--- {}\n{}", path.display(), fs::read_to_string(&path).unwrap_or_default()))
            .collect()
    }

    // In a namespace of its own agents come from elsewhere, and to an address that is not the callers'.
    fn listened(&self) -> SocketAddr {
        let Some(placement) = &self.placement else { return self.gateway };
        // That of IPv6 is all addresses of IPv4 too.
        let any: IpAddr = if placement.is_dual || placement.address.is_ipv6() {
            Ipv6Addr::UNSPECIFIED.into()
        } else {
            Ipv4Addr::UNSPECIFIED.into()
        };
        SocketAddr::new(any, self.gateway.port())
    }

    /// A server's configuration, which ends with `more`.
    fn server_yaml(&self, name: &str, listen: SocketAddr, probes: SocketAddr, more: &str) -> String {
        let is_set = |key: &str| more.lines().any(|line| line.starts_with(key));
        let clusters = if is_set("clusters:") { "" } else { ANYBODY };
        let limits = if is_set("limits:") { "" } else { ROOMY };
        let tls = format!("tls: {{ certificateFile: {PKI}/server.crt, keyFile: {PKI}/server.key }}\n");
        let tls = if is_set("tls:") { "" } else { &tls };
        let tunnel = format!("tunnel: {{ listen: \"{listen}\", agentCAFile: {PKI}/agent-ca.crt }}\n");
        let tunnel = if is_set("tunnel:") { "" } else { &tunnel };
        format!(
            "apiVersion: tombolo.dev/v1alpha1\nkind: ServerConfig\n{tls}{tunnel}\
             policy: {{ file: {} }}\n\
             {clusters}{limits}stateDir: {}\nprobes: {{ listen: \"{probes}\" }}\n\
             gateway:\n  listen: \"{listen}\"\n  hostSuffix: clusters.test\n  authentication:\n    \
             clientCertificate: {{ caFile: {PKI}/caller-ca.crt, usernamePrefix: \"\", groupsPrefix: \"\" }}\n    \
             tokenFile: {{ path: tokens.csv, usernamePrefix: \"token:\", groupsPrefix: \"token:\" }}\n\
             {more}\n",
            policy::FILE,
            self.path().join(format!("{name}.state")).display(),
        )
    }
}

/// The address `127.0.0.1` with a port.
fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// # Panics
/// If a log contains a secret of the trial. This is checked at the end of every trial.
impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let leaked = secrets::leaked(self.path());
            assert!(leaked.is_empty(), "secrets must not be written: {leaked:#?}");
        }
    }
}
