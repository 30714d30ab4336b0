//! Certificates, the server, the agents and the caller's kubeconfig, set up by the same commands that a
//! person would use.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use super::DemoError;
use super::network::{Cloud, DemoNetwork, EDGES, Edge, SERVER};
use super::progress::Progress;
use crate::binaries::find_binary;
use crate::kube::EdgeCluster;
use crate::kube::account::AgentAccount;
use crate::process::{Invocation, Process, ProcessError, run};

/// The group that the server's policy and the clusters know.
pub(super) const GROUP: &str = "tombolo:admins";
/// The name of the caller, a member of that group.
pub(super) const CALLER: &str = "alice";

// What runs here are the examples themselves, so they work.
pub(super) const SERVER_EXAMPLE: &str = include_str!("../../../deploy/examples/server.yaml");
pub(super) const POLICY_EXAMPLE: &str = include_str!("../../../deploy/examples/policy.yaml");
const AGENT_EXAMPLE: &str = include_str!("../../../deploy/examples/agent.yaml");
/// The line of the agent's example that the demo replaces: its agents find the files of a pod.
const AGENT_CREDENTIAL: &str = "kubeconfig: kubeconfig";

/// The limit for one run of `tombolo`.
const TOMBOLO_MAX: Duration = Duration::from_secs(20);
/// The time that requests may go on when the demo stops. A watch that the person started never ends by
/// itself.
const DRAIN_GRACE_SECONDS: &str = "2";

/// The programs of this workspace.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) server: PathBuf,
    pub(super) agent: PathBuf,
    tombolo: PathBuf,
}

/// Sets up in one folder: keys and certificates in `pki`, configurations and logs beside it.
#[derive(Debug)]
pub(super) struct Installer<'a> {
    pub(super) programs: Programs,
    pub(super) folder: &'a Path,
    pub(super) progress: &'a Progress,
}

impl Programs {
    /// Finds all of them, before anything is started: in this folder, or else where cargo has built them.
    pub(super) fn find(folder: Option<&Path>) -> Result<Self, DemoError> {
        let find = |name: &str| match folder.map(|folder| folder.join(name)) {
            None => find_binary(name).map_err(DemoError::from),
            Some(path) if path.is_file() => Ok(path),
            Some(path) => Err(DemoError::NoProgram(path)),
        };
        Ok(Self { server: find("tunnel-server")?, agent: find("tunnel-agent")?, tombolo: find("tombolo")? })
    }
}

impl Installer<'_> {
    /// Creates the certificate authority and issues the certificates of one server, the agents and the caller.
    pub(super) async fn issue(&self) -> Result<(), DemoError> {
        let names = format!("--name 127.0.0.1 --name localhost --name {SERVER}");
        self.issue_for([("server", names)]).await
    }

    /// The same with these certificates of servers, each as its kind and the further arguments of `tombolo ca issue`.
    pub(super) async fn issue_for(
        &self,
        servers: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Result<(), DemoError> {
        let pki = self.folder.join("pki").display().to_string();
        self.tombolo(&format!("ca init --dir {pki}")).await?;
        for (kind, further) in servers {
            self.tombolo(&format!("ca issue {kind} --dir {pki} {further}")).await?;
        }
        for edge in EDGES {
            self.tombolo(&format!("ca issue agent --dir {pki} --cluster {edge}")).await?;
        }
        self.tombolo(&format!("ca issue caller --dir {pki} --user {CALLER} --group {GROUP}")).await
    }

    /// Writes the caller's kubeconfig with a context for each cluster.
    pub(super) async fn kubeconfig(&self, gateway: SocketAddr) -> Result<PathBuf, DemoError> {
        let (pki, path) = (self.folder.join("pki"), self.folder.join("kubeconfig"));
        let (pki, clusters) = (pki.display(), EDGES.map(|edge| format!("--cluster {edge}")).join(" "));
        self.tombolo(&format!(
            "kubeconfig --gateway https://{gateway} --ca {pki}/server-ca.crt --cert {pki}/{CALLER}-caller.crt \
             --key {pki}/{CALLER}-caller.key {clusters} --output {}",
            path.display()
        ))
        .await?;
        Ok(path)
    }

    /// Writes the configuration and the policy of the tunnel-server, and shows both.
    pub(super) fn configure_server(&self) -> Result<(), DemoError> {
        for (name, text) in [("server.yaml", SERVER_EXAMPLE), ("policy.yaml", POLICY_EXAMPLE)] {
            let path = self.folder.join(name);
            fs::write(&path, text).and_then(|()| self.progress.file(&path)).map_err(DemoError::Files)?;
        }
        Ok(())
    }

    /// Adds a section to the server's configuration, and shows it.
    pub(super) fn extend_server(&self, section: &str) -> Result<(), DemoError> {
        let path = self.folder.join("server.yaml");
        self.progress.appended(&path, section);
        let text = fs::read_to_string(&path).map_err(DemoError::Files)?;
        fs::write(&path, format!("{text}\n{section}")).map_err(DemoError::Files)
    }

    /// Starts the tunnel-server with its configuration.
    pub(super) async fn server(&self, cloud: &Cloud) -> Result<Process, DemoError> {
        let server = self.server_invocation(cloud);
        self.progress.command(&format!("{} &", server.command_line()));
        Ok(Process::start(&server, &self.folder.join("server.log")).await?)
    }

    /// Shows what the tunnel-server would change on its host.
    pub(super) async fn dry_run(&self, cloud: &Cloud) -> Result<(), DemoError> {
        let server = self.server_invocation(cloud).arguments(["--dry-run"]);
        self.progress.command(&server.command_line());
        let output = run(&server, TOMBOLO_MAX).await?;
        self.progress.output(&String::from_utf8_lossy(&output.stdout));
        succeeded(&server.command_line(), output)
    }

    /// The path of the server's admin socket.
    pub(super) fn admin_socket(&self) -> String {
        self.folder.join("run/admin.sock").display().to_string()
    }

    fn server_invocation(&self, cloud: &Cloud) -> Invocation {
        daemon(&self.programs.server, &self.folder.join("server.yaml"), cloud.probes)
            .arguments(["--gateway-listen".to_owned(), cloud.gateway.to_string()])
            .arguments(["--tunnel-listen".to_owned(), cloud.tunnel.to_string()])
            .arguments(["--admin-socket".to_owned(), self.admin_socket()])
            .in_network_namespace(cloud.namespace_path())
    }

    /// Starts a cluster's agent with the token that the cluster has minted for it.
    pub(super) async fn agent(
        &self,
        network: &DemoNetwork,
        edge: &Edge,
        cluster: &EdgeCluster,
        account: &AgentAccount,
    ) -> Result<Process, DemoError> {
        self.agent_of(&network.cloud.dialed.to_string(), edge, cluster, account).await
    }

    /// The same with all servers that the agent is told, joined by commas.
    pub(super) async fn agent_of(
        &self,
        servers: &str,
        edge: &Edge,
        cluster: &EdgeCluster,
        account: &AgentAccount,
    ) -> Result<Process, DemoError> {
        let config = self.folder.join(format!("{}.yaml", edge.name));
        let (directory, address) = (account.directory().path(), cluster.address());
        let (host, port) = (address.ip(), address.port());
        let credential = format!("inCluster: {{ directory: {directory:?}, host: {host}, port: {port} }}");
        let text = AGENT_EXAMPLE.replace(EDGES[0], edge.name).replace(AGENT_CREDENTIAL, &credential);
        fs::write(&config, text).map_err(DemoError::Files)?;
        if edge.name == EDGES[0] {
            self.progress.file(&config).map_err(DemoError::Files)?;
        } else {
            self.progress
                .say(&format!("that of {} is the same with its own name and credential:", edge.name));
        }
        let agent = daemon(&self.programs.agent, &config, edge.probes)
            .arguments(["--servers".to_owned(), servers.to_owned()])
            .in_network_namespace(edge.namespace_path());
        self.progress.command(&format!("{} &", agent.command_line()));
        Ok(Process::start(&agent, &self.folder.join(format!("{}-agent.log", edge.name))).await?)
    }

    /// Runs a `tombolo` that must succeed, and shows it.
    pub(super) async fn tombolo(&self, words: &str) -> Result<(), DemoError> {
        succeeded(&format!("tombolo {words}"), self.ask(words).await?)
    }

    /// Runs a `tombolo` that may fail, and shows its command line.
    pub(super) async fn ask(&self, words: &str) -> Result<Output, ProcessError> {
        self.progress.command(&format!("tombolo {words}"));
        // The person's own settings stay out of it.
        let home = self.folder.join("home").display().to_string();
        let tombolo = Invocation::of(&self.programs.tombolo)
            .arguments(words.split(' '))
            .variable("HOME", home.clone())
            .variable("XDG_CONFIG_HOME", home);
        run(&tombolo, TOMBOLO_MAX).await
    }
}

fn succeeded(command: &str, output: Output) -> Result<(), DemoError> {
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(DemoError::Refused { command: command.to_owned(), stderr })
}

pub(super) fn daemon(program: &Path, config: &Path, probes: SocketAddr) -> Invocation {
    Invocation::of(program)
        .arguments(["--config".to_owned(), config.display().to_string()])
        .arguments(["--state-dir".to_owned(), config.with_extension("state").display().to_string()])
        .arguments(["--probes-listen".to_owned(), probes.to_string()])
        .arguments(["--drain-grace", DRAIN_GRACE_SECONDS, "--log-format", "text"])
}
