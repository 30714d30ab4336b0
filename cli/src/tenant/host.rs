//! The host cluster, by the person's own kubectl and helm, so that every login works.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// The oldest kubectl and helm that are known to work: server-side apply with field managers, and OCI charts.
const KUBECTL_MIN: (u32, u32) = (1, 27);
const HELM_MIN: (u32, u32) = (3, 12);

/// A program of the person failed, or is not there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostError {
    #[error("there is no {0} in PATH; install it, {1} or newer")]
    Missing(&'static str, String),
    #[error("{program} {found} is too old; install {least} or newer")]
    TooOld {
        /// The name of the program.
        program: &'static str,
        /// The version that it says.
        found: String,
        /// The oldest version that works.
        least: String,
    },
    #[error("`{command}` failed: {output}")]
    Failed {
        /// The command without its input, which may have keys.
        command: String,
        /// Its errors.
        output: String,
    },
    #[error("`{0}` did not print JSON")]
    NotJson(String),
}

/// kubectl and helm with the host cluster's kubeconfig and the tenant's namespace.
#[derive(Debug)]
pub(super) struct Host {
    flags: Vec<OsString>,
    context: Option<String>,
    namespace: String,
}

impl Host {
    /// Finds both programs.
    ///
    /// # Errors
    /// [`HostError::Missing`], [`HostError::TooOld`]
    pub(super) fn find(kubeconfig: Option<&Path>, context: Option<&str>, namespace: &str) -> Result<Self, HostError> {
        let kubectl: Value = json("kubectl", &["version", "--client", "-o", "json"], KUBECTL_MIN)?;
        check("kubectl", kubectl["clientVersion"]["gitVersion"].as_str().unwrap_or_default(), KUBECTL_MIN)?;
        let helm = output("helm", &["version".into(), "--template".into(), "{{.Version}}".into()], None);
        let helm = helm.map_err(|error| missing(error, "helm", HELM_MIN))?;
        check("helm", &helm, HELM_MIN)?;
        let flags = kubeconfig.map(|path| vec!["--kubeconfig".into(), path.into()]).unwrap_or_default();
        Ok(Self { flags, context: context.map(str::to_owned), namespace: namespace.to_owned() })
    }

    /// Runs kubectl in the tenant's namespace.
    ///
    /// # Errors
    /// [`HostError::Failed`]
    pub(super) fn kubectl(&self, words: &[&str], input: Option<&str>) -> Result<String, HostError> {
        let mut all = self.flags.clone();
        all.extend(self.context.iter().flat_map(|context| ["--context".into(), context.into()]));
        all.extend(["--namespace".into(), OsString::from(&self.namespace)]);
        all.extend(words.iter().map(OsString::from));
        output("kubectl", &all, input)
    }

    /// An object as JSON; `None` if there is none.
    ///
    /// # Errors
    /// [`HostError`]
    pub(super) fn get(&self, kind: &str, name: &str) -> Result<Option<Value>, HostError> {
        let text = self.kubectl(&["get", kind, name, "--ignore-not-found", "-o", "json"], None)?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        serde_json::from_str(&text).map(Some).map_err(|_| HostError::NotJson(format!("kubectl get {kind} {name}")))
    }

    /// All objects of a kind with a label, in all namespaces.
    ///
    /// # Errors
    /// [`HostError`]
    pub(super) fn list(&self, kind: &str, selector: &str) -> Result<Vec<Value>, HostError> {
        let text = self.kubectl(&["get", kind, "--all-namespaces", "--selector", selector, "-o", "json"], None)?;
        let list: Value = serde_json::from_str(&text).map_err(|_| HostError::NotJson(format!("kubectl get {kind}")))?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Applies objects. The field manager is ours, so what others have added to them stays.
    ///
    /// # Errors
    /// [`HostError::Failed`]
    pub(super) fn apply(&self, objects: &[Value]) -> Result<(), HostError> {
        let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string();
        let words = ["apply", "--server-side", "--field-manager=tombolo-tenant", "--force-conflicts", "-f", "-"];
        self.kubectl(&words, Some(&list)).map(drop)
    }

    /// Installs a chart, or upgrades it, and waits until its pods are ready.
    ///
    /// # Errors
    /// [`HostError::Failed`]
    pub(super) fn install(&self, release: &str, chart: &Path, values: &[PathBuf], limit: &str) -> Result<(), HostError> {
        let mut words: Vec<OsString> = ["upgrade", "--install", release].map(OsString::from).to_vec();
        words.push(chart.into());
        words.extend(self.flags.clone());
        words.extend(self.context.iter().flat_map(|context| ["--kube-context".into(), context.into()]));
        words.extend(["--namespace".into(), OsString::from(&self.namespace)]);
        words.extend(values.iter().flat_map(|path| ["--values".into(), path.into()]));
        words.extend(["--wait", "--timeout", limit].map(OsString::from));
        output("helm", &words, None).map(drop)
    }
}

/// Runs a program, with this text at its standard input.
fn output(program: &'static str, words: &[OsString], input: Option<&str>) -> Result<String, HostError> {
    let shown: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let failed = |output: String| HostError::Failed { command: format!("{program} {}", shown.join(" ")), output };
    let run = || {
        let mut command = Command::new(program);
        let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut child = command.args(words).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
            stdin.write_all(input.as_bytes())?;
        }
        child.wait_with_output()
    };
    match run() {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(HostError::Missing(program, String::new())),
        Err(error) => Err(failed(error.to_string())),
    }
}

fn json(program: &'static str, words: &[&str], least: (u32, u32)) -> Result<Value, HostError> {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let text = output(program, &words, None).map_err(|error| missing(error, program, least))?;
    serde_json::from_str(&text).map_err(|_| HostError::NotJson(program.to_owned()))
}

fn missing(error: HostError, program: &'static str, least: (u32, u32)) -> HostError {
    match error {
        HostError::Missing(..) => HostError::Missing(program, version_text(least)),
        other => other,
    }
}

fn check(program: &'static str, found: &str, least: (u32, u32)) -> Result<(), HostError> {
    let mut parts = found.trim().trim_start_matches('v').split('.').map_while(|part| part.parse::<u32>().ok());
    let version = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if version >= least {
        return Ok(());
    }
    Err(HostError::TooOld { program, found: found.trim().to_owned(), least: version_text(least) })
}

fn version_text((major, minor): (u32, u32)) -> String {
    format!("{major}.{minor}")
}
