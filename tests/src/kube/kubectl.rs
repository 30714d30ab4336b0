//! kubectl with a kubeconfig, a deadline and nothing of the person's own configuration.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use tokio::process::{ChildStdin, ChildStdout};

use crate::process::{Invocation, Process, ProcessError, run};

/// The default limit for one kubectl.
const LIMIT: Duration = Duration::from_secs(30);

/// A way to run kubectl.
#[derive(Debug, Clone)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    network_namespace: Option<PathBuf>,
    hosts: Option<PathBuf>,
    home: Option<PathBuf>,
    variables: Vec<(String, String)>,
    limit: Duration,
}

impl Kubectl {
    /// A kubectl with a kubeconfig.
    pub fn new(program: impl Into<PathBuf>, kubeconfig: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            kubeconfig: kubeconfig.into(),
            network_namespace: None,
            hosts: None,
            home: None,
            variables: Vec::new(),
            limit: LIMIT,
        }
    }

    /// The same in a network namespace, given as a path.
    #[must_use]
    pub fn in_network_namespace(mut self, path: Option<PathBuf>) -> Self {
        self.network_namespace = path;
        self
    }

    /// The same with a file in the place of `/etc/hosts`.
    #[must_use]
    pub fn with_hosts(mut self, file: Option<PathBuf>) -> Self {
        self.hosts = file;
        self
    }

    /// The same with a folder of its own for kubectl's caches, which is made by kubectl.
    #[must_use]
    pub fn with_home(mut self, home: impl Into<PathBuf>) -> Self {
        self.home = Some(home.into());
        self
    }

    /// The same with an environment variable.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with another kubeconfig.
    #[must_use]
    pub fn with_kubeconfig(mut self, kubeconfig: impl Into<PathBuf>) -> Self {
        self.kubeconfig = kubeconfig.into();
        self
    }

    /// The same kubeconfig and surroundings for another kubectl.
    #[must_use]
    pub fn of(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    /// The same with another deadline.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it to its end; at the deadline it is killed, which is an error. A failing kubectl is an answer,
    /// not an error.
    pub async fn run(&self, arguments: &[&str]) -> Result<Output, ProcessError> {
        run(&self.invocation(arguments), self.limit).await
    }

    /// Starts it and leaves it running, for watches; what it writes goes to the file `output`.
    pub async fn start(&self, arguments: &[&str], output: &Path) -> Result<Process, ProcessError> {
        Process::start(&self.invocation(arguments), output).await
    }

    /// The same for a kubectl with input, such as `exec -i`.
    pub async fn start_listening(
        &self,
        arguments: &[&str],
        output: &Path,
    ) -> Result<(Process, ChildStdin), ProcessError> {
        Process::start_listening(&self.invocation(arguments), output).await
    }

    /// The same for one that answers while it is typed to; what it writes to stderr goes to the file
    /// `output`.
    pub async fn start_talking(
        &self,
        arguments: &[&str],
        output: &Path,
    ) -> Result<(Process, ChildStdin, ChildStdout), ProcessError> {
        Process::start_talking(&self.invocation(arguments), output).await
    }

    /// Runs kubectl and returns its stdout.
    ///
    /// # Panics
    /// If it failed. The message has its stderr.
    pub async fn stdout(&self, arguments: &[&str]) -> String {
        let output =
            self.run(arguments).await.unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error}"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments:?} ended with {}: {stderr}", output.status);
        String::from_utf8(output.stdout).expect("kubectl writes UTF-8")
    }

    /// Runs kubectl and returns its stderr.
    ///
    /// # Panics
    /// If it did not fail.
    pub async fn refusal(&self, arguments: &[&str]) -> String {
        let output =
            self.run(arguments).await.unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error}"));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "kubectl {arguments:?} did not fail: {stderr}");
        stderr
    }

    // HOME holds kubectl's discovery cache: beside the kubeconfig it is never shared between clusters on one
    // address.
    fn invocation(&self, arguments: &[&str]) -> Invocation {
        let beside = || self.kubeconfig.parent().map_or_else(PathBuf::new, |folder| folder.join("home"));
        let home = self.home.clone().unwrap_or_else(beside);
        let invocation = Invocation::of(&self.program).arguments(arguments.iter().copied());
        let variables = self.variables.iter();
        variables
            .fold(invocation, |invocation, (name, value)| invocation.variable(name, value))
            .variable("KUBECONFIG", self.kubeconfig.display().to_string())
            .variable("HOME", home.display().to_string())
            .variable("KUBERC", "off")
            .in_network_namespace(self.network_namespace.clone())
            .with_hosts(self.hosts.clone())
    }
}
