//! Edge clusters for tests: a real etcd and a real kube-apiserver, started in seconds and removed with the
//! test.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::pki::Issued;
use crate::process::{Process, ProcessError};

pub mod account;
pub mod assets;
pub mod audit;
mod control_plane;
pub mod controllers;
mod files;
pub mod kube_proxy;
pub mod kubeconfig;
pub mod kubectl;
mod masters;
pub mod pods;

use account::{AgentAccount, AgentAccountError};
use assets::{Assets, MissingAssets};
use audit::{AuditError, AuditEvent};
use files::Files;
use kubeconfig::{Credential, Kubeconfig};
use kubectl::Kubectl;

/// Objects that a usable cluster returns. An API server reports readiness before it has made the namespace
/// `default`, and in it the Service and the EndpointSlice that name its address.
const ANSWERED_WHEN_READY: [&str; 2] =
    ["/readyz", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"];
/// The limit for etcd and the API server together to return them.
const READY_MAX: Duration = Duration::from_secs(60);
/// Pause between two questions whether the API server is ready.
const READY_POLL_EVERY: Duration = Duration::from_millis(100);
/// The limit for a process to end after SIGTERM.
const STOP_GRACE: Duration = Duration::from_secs(20);
/// Starts with a new port, as another process may take a free port between our looking and the API server's
/// binding.
const STARTS_MAX: usize = 3;

/// The address of a cluster's API server, and what it advertises.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// The network namespace that everything runs in, as a path (`/run/netns/NAME`); `None` is the test's
    /// own.
    pub network_namespace: Option<PathBuf>,
    /// The address that the API server binds.
    pub address: IpAddr,
    /// The port that it binds; `None` takes a free one, which works only in the test's own network namespace.
    pub port: Option<u16>,
    /// The address that it advertises as the endpoint of `default/kubernetes`; loopback is refused by
    /// Kubernetes.
    pub advertise: IpAddr,
    /// The API server's feature gates that differ from its release's defaults, such as
    /// `CBORServingAndStorage=true`.
    pub feature_gates: &'static [&'static str],
    /// Further flags of the API server, such as `--goaway-chance=0.02`.
    pub apiserver_flags: &'static [&'static str],
    /// The file with the configuration of its egress, an EgressSelectorConfiguration.
    pub egress_selector: Option<PathBuf>,
    /// True if controllers will run ([`controllers`]): a pod then has to have a ServiceAccount, as in every
    /// real cluster.
    pub has_controllers: bool,
    /// True if events have an etcd of their own, which can die alone.
    pub has_events_etcd: bool,
    /// Names for which its API server's certificate is, beside those that every one has.
    pub server_names: &'static [&'static str],
}

/// A running edge cluster; dropping it kills the API server, then etcd, and removes their files.
#[derive(Debug)]
#[must_use = "the cluster is removed when this is dropped"]
pub struct EdgeCluster {
    // Fields are dropped in this order: an API server that outlives its etcd takes minutes to die on its own.
    apiserver: Process,
    etcd: Process,
    events_etcd: Option<Process>,
    assets: Assets,
    options: ClusterOptions,
    port: u16,
    files: Files,
}

/// An error of starting, stopping or restarting a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The binaries of Kubernetes are missing.
    #[error(transparent)]
    Assets(#[from] MissingAssets),
    /// A file of the cluster could not be written.
    #[error("could not write the files of an edge cluster")]
    Files(#[source] std::io::Error),
    /// A port could not be found.
    #[error("there is no free port at {address}")]
    Port {
        /// The address that was asked for.
        address: IpAddr,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// A process did not start, stop or take a signal.
    #[error("a process of the edge cluster failed: {0}")]
    Process(#[from] ProcessError),
    /// etcd or kube-apiserver ended before the cluster was ready.
    #[error("{name} ended with {status} before the edge cluster was ready; its output ended with:\n{tail}")]
    Ended {
        /// The name of the program: etcd or the API server.
        name: &'static str,
        /// The status with which it ended.
        status: std::process::ExitStatus,
        /// The end of what it wrote.
        tail: String,
    },
    /// It did not answer in time as one that may be used.
    #[error(
        "the edge cluster was not ready within {READY_MAX:?}; it answered: {answer}\nkube-apiserver's output ended with:\n{tail}"
    )]
    NotReady {
        /// The last output of kubectl.
        answer: String,
        /// The end of what the API server wrote.
        tail: String,
    },
}

impl ClusterOptions {
    /// A free port of a loopback address in the test's own network namespace.
    pub fn loopback(address: Ipv4Addr) -> Self {
        Self {
            network_namespace: None,
            address: address.into(),
            port: None,
            advertise: ADVERTISED.into(),
            feature_gates: &[],
            apiserver_flags: &[],
            egress_selector: None,
            has_controllers: false,
            has_events_etcd: false,
            server_names: &[],
        }
    }

    /// `ADDRESS:PORT` in a named network namespace, with the same address advertised.
    pub fn in_network_namespace(name: &str, bound: SocketAddr) -> Self {
        Self {
            network_namespace: Some(Path::new("/run/netns").join(name)),
            address: bound.ip(),
            port: Some(bound.port()),
            advertise: bound.ip(),
            ..Self::default()
        }
    }
}

/// The address that clusters advertise by default. It is the one of every site.
const ADVERTISED: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 10);

impl Default for ClusterOptions {
    fn default() -> Self {
        Self::loopback(Ipv4Addr::LOCALHOST)
    }
}

impl EdgeCluster {
    /// Starts a cluster on a free port of 127.0.0.1 and returns when it may be used.
    pub async fn start() -> Result<Self, ClusterError> {
        Self::start_at(ClusterOptions::default()).await
    }

    /// Starts a cluster with these options.
    pub async fn start_at(options: ClusterOptions) -> Result<Self, ClusterError> {
        let assets = Assets::find()?;
        let mut starts = 0;
        loop {
            starts += 1;
            match Self::start_once(&assets, &options).await {
                Err(ClusterError::Ended { tail, .. })
                    if options.port.is_none()
                        && starts < STARTS_MAX
                        && tail.contains("address already in use") => {}
                started_or_not => return started_or_not,
            }
        }
    }

    async fn start_once(assets: &Assets, options: &ClusterOptions) -> Result<Self, ClusterError> {
        let port = match options.port {
            Some(port) => port,
            None => free_port(options.address)?,
        };
        let files = Files::write(options, port).map_err(ClusterError::Files)?;
        let start_etcd = async |name: &str| {
            let invocation = control_plane::etcd(assets, options, &files, name);
            Process::start(&invocation, &files.path(&format!("{name}.log"))).await
        };
        let etcd = start_etcd(control_plane::ETCD).await?;
        let events_etcd = match options.has_events_etcd {
            true => Some(start_etcd(control_plane::EVENTS_ETCD).await?),
            false => None,
        };
        let apiserver = start_apiserver(assets, options, port, &files).await?;
        let mut cluster = Self {
            apiserver,
            etcd,
            events_etcd,
            assets: assets.clone(),
            options: options.clone(),
            port,
            files,
        };
        cluster.ready().await?;
        Ok(cluster)
    }

    /// `https://ADDRESS:PORT` of the API server.
    pub fn url(&self) -> String {
        format!("https://{}", self.address())
    }

    /// The address that the API server is bound to, in its network namespace.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.options.address, self.port)
    }

    /// The options with which the cluster was started.
    pub fn options(&self) -> &ClusterOptions {
        &self.options
    }

    /// The file with the certificate of the cluster's authority, which signs the server's and the users'
    /// certificates.
    pub fn ca_path(&self) -> PathBuf {
        self.files.path(files::CA)
    }

    /// The same certificate as PEM.
    pub fn ca_pem(&self) -> &str {
        self.files.authority.certificate_pem()
    }

    /// The kubeconfig of a cluster-admin: a client certificate of `kubernetes-admin` in the group
    /// `system:masters`.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.files.path(files::ADMIN_KUBECONFIG)
    }

    /// A folder that is removed with the cluster, for files of the test.
    pub fn directory(&self) -> &Path {
        self.files.directory()
    }

    /// The process ids of the API server and of etcd, as far as they run.
    pub fn process_ids(&self) -> Vec<u32> {
        [&self.apiserver, &self.etcd].into_iter().filter_map(Process::id).collect()
    }

    /// A kubectl of the pinned release with any kubeconfig, run in this process's network namespace.
    pub fn kubectl_with(&self, kubeconfig: impl Into<PathBuf>) -> Kubectl {
        Kubectl::new(self.assets.kubectl.clone(), kubeconfig)
    }

    /// The kubectl of another minor such as `1.35`: its version and its program, for [`Kubectl::of`].
    ///
    /// # Panics
    /// If it was not built.
    pub fn kubectl_of(&self, minor: &str) -> (String, PathBuf) {
        let kubectls = self.assets.other_kubectls();
        let begin = format!("{minor}.");
        let found = kubectls.iter().find(|(version, _)| version.starts_with(&begin)).cloned();
        found.unwrap_or_else(|| {
            panic!("there is no kubectl {minor} in {kubectls:?}. Run `make test`, or `tests/kube/build --skew=all`")
        })
    }

    /// A kubectl with the admin's kubeconfig, run where the API server is.
    pub fn admin(&self) -> Kubectl {
        self.kubectl_with(self.admin_kubeconfig())
            .in_network_namespace(self.options.network_namespace.clone())
    }

    /// Runs `kubectl ARGUMENTS` as the admin. The output has its exit status.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<Output, ProcessError> {
        self.admin().run(arguments).await
    }

    /// Writes a kubeconfig for this cluster and any credential into [`Self::directory`].
    pub fn write_kubeconfig(&self, name: &str, credential: Credential) -> std::io::Result<PathBuf> {
        let path = self.files.path(name);
        let server = self.url();
        Kubeconfig { server: &server, ca_pem: self.ca_pem(), credential: &credential }.write(&path)?;
        Ok(path)
    }

    /// A certificate for any user and up to two groups, signed by the cluster's authority.
    pub fn issue_user(&self, user: &str, groups: &[&str]) -> Issued {
        self.files.authority.issue_user(user, groups)
    }

    /// A certificate for an API server of these names, signed by the cluster's authority.
    pub fn issue_server(&self, names: &[&str], addresses: &[IpAddr]) -> Issued {
        self.files.authority.issue_server(names, addresses)
    }

    /// The certificate that lets its bearer assert a user by `X-Remote-*`, as an aggregation proxy may.
    pub fn front_proxy(&self) -> &Issued {
        &self.files.front_proxy
    }

    /// Lets the members of a group do everything.
    ///
    /// # Panics
    /// If the API server refuses.
    pub async fn make_admins(&self, group: &str) {
        let group = format!("--group={group}");
        let words = ["create", "clusterrolebinding", "callers", "--clusterrole=cluster-admin", &group];
        self.admin().stdout(&words).await;
    }

    /// Makes the tunnel-agent's ServiceAccount with the rights of [`account::AGENT_MANIFEST`] and mints its
    /// token.
    pub async fn create_agent_account(&self) -> Result<AgentAccount, AgentAccountError> {
        self.create_agent_account_with(account::AGENT_MANIFEST).await
    }

    /// The same with other rights: a manifest with the same namespace and ServiceAccount.
    pub async fn create_agent_account_with(&self, manifest: &str) -> Result<AgentAccount, AgentAccountError> {
        AgentAccount::create(self, manifest).await
    }

    /// The API server's audit events so far: requests, their users, and their responses.
    pub fn audit(&self) -> Result<Vec<AuditEvent>, AuditError> {
        audit::read(&self.files.path(files::AUDIT_LOG))
    }

    /// Waits for an audit event that `wanted` accepts.
    pub async fn wait_for_audit(
        &self,
        limit: Duration,
        wanted: impl Fn(&AuditEvent) -> bool,
    ) -> Result<AuditEvent, AuditError> {
        audit::wait(&self.files.path(files::AUDIT_LOG), limit, wanted).await
    }

    /// Freezes the API server: connections are still accepted by the kernel and nothing is answered.
    pub fn pause_apiserver(&self) -> Result<(), ClusterError> {
        Ok(self.apiserver.signal(Signal::STOP)?)
    }

    /// Lets a frozen API server go on.
    pub fn resume_apiserver(&self) -> Result<(), ClusterError> {
        Ok(self.apiserver.signal(Signal::CONT)?)
    }

    /// Kills the API server at once, as a power cut would.
    pub fn kill_apiserver(&mut self) {
        self.apiserver.kill();
    }

    /// A free address for a further API server of this cluster.
    ///
    /// # Errors
    /// There is no free port.
    pub fn address_of_further_apiserver(&self) -> Result<SocketAddr, ClusterError> {
        Ok(SocketAddr::new(self.options.address, free_port(self.options.address)?))
    }

    /// Starts a further API server of this cluster, on the same etcd; returns at once.
    ///
    /// # Errors
    /// The process does not start.
    pub async fn start_further_apiserver(&self, address: SocketAddr) -> Result<Process, ClusterError> {
        let invocation = control_plane::apiserver(&self.assets, &self.options, address.port(), &self.files);
        // The last one of a flag counts.
        let audit = format!("--audit-log-path={}", self.audit_path_of_further().display());
        let log = self.files.path("further-kube-apiserver.log");
        Ok(Process::start(&invocation.arguments([audit]), &log).await?)
    }

    /// The path of the API server's audit log.
    pub fn audit_path(&self) -> PathBuf {
        self.files.path(files::AUDIT_LOG)
    }

    /// The path of a further API server's audit log.
    pub fn audit_path_of_further(&self) -> PathBuf {
        self.files.path("further-audit.log")
    }

    /// Kills the API server if it runs, starts it again at the same address, and returns when it is ready.
    pub async fn restart_apiserver(&mut self) -> Result<(), ClusterError> {
        self.apiserver.kill();
        self.apiserver = start_apiserver(&self.assets, &self.options, self.port, &self.files).await?;
        self.ready().await
    }

    /// Stops the API server, then etcd, by SIGTERM, and removes their files.
    pub async fn stop(self) -> Result<(), ClusterError> {
        self.apiserver.stop(STOP_GRACE).await?;
        self.etcd.stop(STOP_GRACE).await?;
        Ok(())
    }

    async fn ready(&mut self) -> Result<(), ClusterError> {
        let deadline = Instant::now() + READY_MAX;
        for path in ANSWERED_WHEN_READY {
            self.answers(path, deadline).await?;
        }
        Ok(())
    }

    async fn answers(&mut self, path: &str, deadline: Instant) -> Result<(), ClusterError> {
        let kubectl = self.admin().limit(Duration::from_secs(5));
        loop {
            for (name, process) in [("etcd", &mut self.etcd), ("kube-apiserver", &mut self.apiserver)] {
                if let Some(status) = process.ended() {
                    return Err(ClusterError::Ended { name, status, tail: process.tail() });
                }
            }
            let answer = match kubectl.run(&["get", "--raw", path, "--request-timeout=3s"]).await {
                Ok(output) if output.status.success() => return Ok(()),
                Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
                Err(error) => error.to_string(),
            };
            if Instant::now() >= deadline {
                return Err(ClusterError::NotReady { answer, tail: self.apiserver.tail() });
            }
            tokio::time::sleep(READY_POLL_EVERY).await;
        }
    }
}

async fn start_apiserver(
    assets: &Assets,
    options: &ClusterOptions,
    port: u16,
    files: &Files,
) -> Result<Process, ProcessError> {
    Process::start(&control_plane::apiserver(assets, options, port, files), &files.path("kube-apiserver.log"))
        .await
}

fn free_port(address: IpAddr) -> Result<u16, ClusterError> {
    TcpListener::bind((address, 0))
        .and_then(|listener| listener.local_addr())
        .map(|bound| bound.port())
        .map_err(|source| ClusterError::Port { address, source })
}
