//! The commands that the demo runs against the clusters, all of them through the gateway with an ordinary
//! kubectl.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::DemoError;
use super::network::{DemoNetwork, EDGES};
use super::probes;
use super::progress::Progress;
use crate::kube::kubectl::Kubectl;
use crate::network::{NetworkError, NetworkNamespace};

/// The limit for both agents to be connected.
const CONNECTED_MAX: Duration = Duration::from_secs(30);
/// The limit for a watch to show a change.
const SEEN_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The limit for kubectl to end after a signal.
pub(super) const STOP_GRACE: Duration = Duration::from_secs(5);
/// The number of metric lines that are shown.
const METRICS_SHOWN_MAX: usize = 12;
/// The prefixes of metrics that count what the demo has just done.
const METRICS: [&str; 2] = ["tombolo_server_requests_total{", "tombolo_server_cluster_"];

/// kubectl and what it needs to be shown.
#[derive(Debug)]
pub(super) struct Tour<'a> {
    pub(super) progress: &'a Progress,
    pub(super) kubectl: &'a Kubectl,
    pub(super) folder: &'a Path,
}

impl Tour<'_> {
    /// Waits until the gateway reaches each cluster.
    pub(super) async fn connected(&self) -> Result<(), DemoError> {
        let began = Instant::now();
        for edge in EDGES {
            loop {
                let ask = ["--context", edge, "get", "--raw", "/readyz", "--request-timeout=5s"];
                let output = self.kubectl.run(&ask).await?;
                if output.status.success() {
                    break;
                }
                if began.elapsed() >= CONNECTED_MAX {
                    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
                    return Err(DemoError::Refused { command: format!("kubectl {}", ask.join(" ")), stderr });
                }
                sleep(LOOK_EVERY).await;
            }
            self.progress.done(&format!("{edge} is connected and its API server answers"), began);
        }
        Ok(())
    }

    /// Shows that two clusters are reached at the same address.
    pub(super) async fn two_clusters(&self, network: &DemoNetwork) -> Result<(), DemoError> {
        self.say("both clusters say that they are 192.168.1.10, and each is reached by its name:");
        for edge in EDGES {
            self.run(&format!("--context {edge} get ns")).await?;
            self.run(&format!("--context {edge} get endpointslices kubernetes")).await?;
        }
        if let Some(cloud) = &network.cloud.namespace {
            self.only_by_the_tunnel(cloud).await?;
        }
        self.say("an object of the same name with other contents in each:");
        for edge in EDGES {
            self.apply(edge, "greeting: hello").await?;
        }
        for edge in EDGES {
            self.run(&format!("--context {edge} get configmap site -o jsonpath={{.data}}")).await?;
        }
        Ok(())
    }

    /// A watch of each cluster, and a change that it shows.
    pub(super) async fn watch(&self) -> Result<(), DemoError> {
        for edge in EDGES {
            self.say(&format!("{edge}: a watch runs while an apply changes what it watches:"));
            let words = format!("--context {edge} get configmaps -w");
            self.progress.command(&format!("kubectl {words} &"));
            let output = self.folder.join(format!("{edge}-watch.out"));
            let watch = self.kubectl.start(&words.split(' ').collect::<Vec<_>>(), &output).await?;
            self.seen(&output, &words, 1).await?;
            let applying = Instant::now();
            self.apply(edge, "greeting: hello\n  changed: \"yes\"").await?;
            self.seen(&output, &words, 2).await?;
            self.progress.done("and the watch has shown it", applying);
            watch.stop(STOP_GRACE).await?;
            self.progress.output(&fs::read_to_string(&output).map_err(DemoError::Files)?);
        }
        Ok(())
    }

    /// Shows the identity that the clusters see, the clusters that the caller may reach, and the server's
    /// counters.
    pub(super) async fn server(&self, network: &DemoNetwork) -> Result<(), DemoError> {
        self.say("the cluster sees the caller, and not the agent:");
        for edge in EDGES {
            self.run(&format!("--context {edge} auth whoami")).await?;
        }
        self.say("the clusters that this caller may reach:");
        self.run(&format!("--server https://{} get --raw /clusters", network.gateway)).await?;
        self.say(&format!("some of the server's metrics, at http://{}/metrics:", network.probes));
        let metrics = probes::get(network.probes, "/metrics").await?;
        let is_shown =
            |line: &&str| METRICS.iter().any(|name| line.starts_with(name)) && !line.ends_with(" 0");
        let lines: Vec<&str> = metrics.lines().filter(is_shown).collect();
        if lines.is_empty() {
            return Err(DemoError::Refused { command: "GET /metrics".to_owned(), stderr: metrics });
        }
        let shown = &lines[..lines.len().min(METRICS_SHOWN_MAX)];
        self.progress.output(&shown.join("\n"));
        Ok(())
    }

    async fn only_by_the_tunnel(&self, cloud: &NetworkNamespace) -> Result<(), DemoError> {
        self.say("the cloud itself has no way to 192.168.1.10:");
        let words = "route get 192.168.1.10";
        let command = format!("nsenter --net={} ip {words}", cloud.path().display());
        self.progress.command(&command);
        match cloud.ip(words).await {
            Err(NetworkError::Refused { stderr, .. }) => self.progress.output(&stderr),
            Err(error) => return Err(error.into()),
            Ok(route) => {
                return Err(DemoError::Refused { command, stderr: format!("there is a way: {route}") });
            }
        }
        Ok(())
    }

    pub(super) async fn apply(&self, edge: &str, data: &str) -> Result<(), DemoError> {
        let file = self.folder.join(format!("{edge}-site.yaml"));
        let text = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: site\ndata:\n  name: {edge}\n  {data}\n"
        );
        fs::write(&file, text).map_err(DemoError::Files)?;
        self.run(&format!("--context {edge} apply -f {}", file.display())).await
    }

    // Waits until the table that a watch writes has a number of rows for the object.
    async fn seen(&self, output: &Path, words: &str, rows: usize) -> Result<(), DemoError> {
        let deadline = Instant::now() + SEEN_MAX;
        loop {
            let text = fs::read_to_string(output).unwrap_or_default();
            if text.lines().filter(|line| line.starts_with("site ")).count() >= rows {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let stderr =
                    format!("it should have shown {rows} rows within {SEEN_MAX:?}, and wrote:\n{text}");
                return Err(DemoError::Refused { command: format!("kubectl {words}"), stderr });
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Runs a kubectl that must succeed, and shows it with its output.
    pub(super) async fn run(&self, words: &str) -> Result<(), DemoError> {
        self.progress.command(&format!("kubectl {words}"));
        let output = self.kubectl.run(&words.split(' ').collect::<Vec<_>>()).await?;
        self.progress.output(&String::from_utf8_lossy(&output.stdout));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            // Such as "No resources found".
            self.progress.output(&stderr);
            return Ok(());
        }
        Err(DemoError::Refused { command: format!("kubectl {words}"), stderr })
    }

    /// Says in a sentence what comes next.
    pub(super) fn say(&self, text: &str) {
        self.progress.say(text);
    }
}
