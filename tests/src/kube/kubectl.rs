//! kubectl with a kubeconfig, a deadline and nothing of the person's own configuration.

use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use crate::process::{Invocation, Process, ProcessError, run};

/// How long one kubectl may take unless told otherwise.
const LIMIT: Duration = Duration::from_secs(30);

/// A way to run kubectl.
#[derive(Debug, Clone)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    network_namespace: Option<PathBuf>,
    limit: Duration,
}

impl Kubectl {
    /// A kubectl with a kubeconfig.
    pub fn new(program: impl Into<PathBuf>, kubeconfig: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), kubeconfig: kubeconfig.into(), network_namespace: None, limit: LIMIT }
    }

    /// The same in a network namespace, given as a path.
    #[must_use]
    pub fn in_network_namespace(mut self, path: Option<PathBuf>) -> Self {
        self.network_namespace = path;
        self
    }

    /// The same with another deadline.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it to its end; at the deadline it is killed, which is an error. A failing kubectl is an answer, not an error.
    pub async fn run(&self, arguments: &[&str]) -> Result<Output, ProcessError> {
        run(&self.invocation(arguments), self.limit).await
    }

    /// Starts it and leaves it running, for watches; what it writes goes to the file `output`.
    pub async fn start(&self, arguments: &[&str], output: &std::path::Path) -> Result<Process, ProcessError> {
        Process::start(&self.invocation(arguments), output).await
    }

    /// What it wrote to stdout.
    ///
    /// # Panics
    /// If it failed; the message has what it wrote to stderr.
    pub async fn stdout(&self, arguments: &[&str]) -> String {
        let output =
            self.run(arguments).await.unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error}"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments:?} ended with {}: {stderr}", output.status);
        String::from_utf8(output.stdout).expect("kubectl writes UTF-8")
    }

    // HOME holds kubectl's discovery cache: beside the kubeconfig it is never shared between clusters on one address.
    fn invocation(&self, arguments: &[&str]) -> Invocation {
        let home = self.kubeconfig.parent().map_or_else(PathBuf::new, |folder| folder.join("home"));
        Invocation::of(&self.program)
            .arguments(arguments.iter().copied())
            .variable("KUBECONFIG", self.kubeconfig.display().to_string())
            .variable("HOME", home.display().to_string())
            .variable("KUBERC", "off")
            .in_network_namespace(self.network_namespace.clone())
    }
}
