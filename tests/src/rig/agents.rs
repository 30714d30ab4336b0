//! A rig's agents: their certificates, their configuration, their processes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::{AGENT_TOKEN, PKI, ProcessEnvironment, ROOMY_AGENT, Rig, free_port};
use crate::fake_api::FakeApi;
use crate::kube::EdgeCluster;
use crate::kube::account::AgentAccount;
use crate::process::Process;

/// The agents' default list of identities that may be asserted.
const GUARD: &str = "impersonation: { users: [\"*\"], groups: [\"tombolo:*\", \"token:*\"] }\n";

/// A running agent and its process.
#[derive(Debug)]
#[must_use = "the agent is killed when this is dropped"]
pub struct Agent {
    /// The process of the agent.
    pub process: Process,
    /// The address of its probes.
    pub probes: SocketAddr,
}

/// The `apiServer` section of an agent's configuration.
#[derive(Debug, Clone)]
pub enum ApiServer {
    /// The agent uses a kubeconfig.
    Kubeconfig(PathBuf),
    /// The agent uses a pod's files.
    InCluster {
        /// The directory of these files.
        directory: PathBuf,
        /// The address of the API server.
        address: SocketAddr,
        /// All API servers, if they are listed.
        endpoints: Vec<SocketAddr>,
    },
}

impl ApiServer {
    /// A real cluster's, with its agent's ServiceAccount.
    pub fn of(cluster: &EdgeCluster, account: &AgentAccount) -> Self {
        Self::of_several(cluster, account, &[])
    }

    /// The same, with a list of the cluster's API servers.
    pub fn of_several(cluster: &EdgeCluster, account: &AgentAccount, endpoints: &[SocketAddr]) -> Self {
        let (directory, address) = (account.directory().path().to_owned(), cluster.address());
        Self::InCluster { directory, address, endpoints: endpoints.to_vec() }
    }

    /// A fake's, with a kubeconfig that is written into the rig's folder.
    pub fn of_fake(rig: &Rig, api: &FakeApi) -> Self {
        let path = rig.path().join(format!("fake-{}.kubeconfig", api.address().port()));
        api.write_kubeconfig(&path, AGENT_TOKEN).expect("a kubeconfig can be written");
        Self::Kubeconfig(path)
    }

    /// The keys that name a pod's files and its API server.
    ///
    /// # Panics
    /// If it has none.
    pub fn pod_files(&self) -> String {
        let Self::InCluster { directory, address, .. } = self else { panic!("there are no files of a pod") };
        format!("{{ directory: {directory:?}, host: {}, port: {} }}", address.ip(), address.port())
    }

    fn yaml(&self) -> String {
        match self {
            Self::Kubeconfig(path) => format!("{{ kubeconfig: {path:?} }}"),
            Self::InCluster { endpoints, .. } => {
                let listed: Vec<String> =
                    endpoints.iter().map(|endpoint| format!("\"{endpoint}\"")).collect();
                let endpoints = if listed.is_empty() {
                    String::new()
                } else {
                    format!(", endpoints: [{}]", listed.join(", "))
                };
                format!("{{ inCluster: {}{endpoints} }}", self.pod_files())
            }
        }
    }
}

impl Rig {
    /// Issues an agent's certificate, starts the agent, and waits until its cluster is connected.
    pub async fn agent(&self, cluster: &str, api_server: &ApiServer) -> Agent {
        let agent = self.agent_with(cluster, api_server, "").await;
        self.connected(cluster).await;
        agent
    }

    /// Issues an agent's certificate and starts the agent; its configuration ends with `more`.
    pub async fn agent_with(&self, cluster: &str, api_server: &ApiServer, more: &str) -> Agent {
        self.agent_in(None, cluster, api_server, more).await
    }

    /// The same in a network namespace, given by its path.
    pub async fn agent_in(
        &self,
        network_namespace: Option<&Path>,
        cluster: &str,
        api_server: &ApiServer,
        more: &str,
    ) -> Agent {
        self.agent_amid(&ProcessEnvironment::within(network_namespace), cluster, api_server, more).await
    }

    /// The same amid other surroundings.
    pub async fn agent_amid(
        &self,
        around: &ProcessEnvironment,
        cluster: &str,
        api_server: &ApiServer,
        more: &str,
    ) -> Agent {
        let name = format!("{PKI}/{cluster}-agent.crt");
        if !self.path().join(&name).exists() {
            self.tombolo(&["ca", "issue", "agent", "--dir", PKI, "--cluster", cluster]).await;
        }
        self.start_agent(around, cluster, cluster, api_server, more).await
    }

    /// The same for one of several agents of a cluster; its log is `CLUSTER.ID.log`.
    pub async fn agent_of_id(&self, cluster: &str, id: &str, api_server: &ApiServer, more: &str) -> Agent {
        self.agent_of_id_in(None, cluster, id, api_server, more).await
    }

    /// The same in a network namespace, given by its path.
    pub async fn agent_of_id_in(
        &self,
        network_namespace: Option<&Path>,
        cluster: &str,
        id: &str,
        api_server: &ApiServer,
        more: &str,
    ) -> Agent {
        let name = format!("{cluster}.{id}");
        if !self.path().join(format!("{PKI}/{name}-agent.crt")).exists() {
            self.tombolo(&["ca", "issue", "agent", "--dir", PKI, "--cluster", cluster, "--id", id]).await;
        }
        self.start_agent(&ProcessEnvironment::within(network_namespace), &name, cluster, api_server, more)
            .await
    }

    /// Starts an agent whose configuration, ending with `more`, has the source of its certificate. Its state
    /// and its log are named `name`.
    pub async fn agent_without_certificate(
        &self,
        name: &str,
        cluster: &str,
        api_server: &ApiServer,
        more: &str,
    ) -> Agent {
        self.start_agent(&ProcessEnvironment::within(None), name, cluster, api_server, more).await
    }

    async fn start_agent(
        &self,
        around: &ProcessEnvironment,
        name: &str,
        cluster: &str,
        api_server: &ApiServer,
        more: &str,
    ) -> Agent {
        let probes = free_port();
        // The holder of TOKEN has the groups' prefix of tokens, which an agent's default list does not
        // permit.
        let guard = if more.contains("impersonation:") { "" } else { GUARD };
        let limits = if more.contains("limits:") { "" } else { ROOMY_AGENT };
        let servers = format!("servers: [\"{}\"]\n", self.dialed());
        let servers = if more.contains("servers:") { "" } else { &servers };
        let tls = format!(
            "tls: {{ certificateFile: {PKI}/{name}-agent.crt, keyFile: {PKI}/{name}-agent.key, \
             serverCAFile: {PKI}/server-ca.crt }}\n"
        );
        let tls = if more.contains("enrollment:") { "" } else { &tls };
        let config = self.write(
            &format!("{name}.yaml"),
            &format!(
                "apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\ncluster: {cluster}\n{servers}{tls}\
                 apiServer: {}\nstateDir: {}\nprobes: {{ listen: \"{probes}\" }}\n{guard}{limits}{more}\n",
                api_server.yaml(),
                self.path().join(format!("{name}.state")).display(),
            ),
        );
        let process = self.launch(around, "tunnel-agent", &config, &format!("{name}.log")).await;
        Agent { process, probes }
    }
}
