//! The host cluster, by the person's own kubectl and helm, so that every login works.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::program::{self, ProgramFailed};
use crate::args::HostCluster;
use crate::names::WaitTime;

/// The oldest kubectl and helm that have what is used here: server-side apply with a field manager, and rollouts of all kinds.
const KUBECTL_MIN: (u32, u32) = (1, 27);
const HELM_MIN: (u32, u32) = (3, 12);

/// The name of the release in the namespace of each tenant.
const RELEASE: &str = "control-plane";

/// The name of the release of the tenant's agents there.
const AGENTS: &str = "tunnel-agent";

/// The owner of the fields that this program sets.
pub(super) const FIELD_MANAGER: &str = "tombolo-tenant";

/// The host cluster could not be asked or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostError {
    #[error("{0} is not in PATH; install {0} {1} or newer")]
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
    #[error(transparent)]
    Failed(#[from] ProgramFailed),
    #[error("`{0}` did not print JSON")]
    NotJson(String),
}

/// kubectl and helm with the host cluster's kubeconfig and the tenant's namespace.
#[derive(Debug)]
pub(super) struct Host {
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    namespace: String,
}

impl Host {
    /// Finds both programs. `namespace` is that of the tenant.
    ///
    /// # Errors
    /// [`HostError::Missing`], [`HostError::TooOld`]
    pub(super) fn find(args: &HostCluster, namespace: &str) -> Result<Self, HostError> {
        let words = ["version", "--client", "-o", "json"].map(OsString::from);
        let kubectl = run("kubectl", &words, None).map_err(|error| missing(error, "kubectl", KUBECTL_MIN))?;
        let kubectl: Value = serde_json::from_str(&kubectl).unwrap_or_default();
        check("kubectl", kubectl["clientVersion"]["gitVersion"].as_str().unwrap_or_default(), KUBECTL_MIN)?;
        let words = ["version", "--template", "{{.Version}}"].map(OsString::from);
        let helm = run("helm", &words, None).map_err(|error| missing(error, "helm", HELM_MIN))?;
        check("helm", &helm, HELM_MIN)?;
        let HostCluster { kubeconfig, context } = args;
        Ok(Self { kubeconfig: kubeconfig.clone(), context: context.clone(), namespace: namespace.to_owned() })
    }

    /// Runs kubectl in the tenant's namespace, with this text at its standard input.
    ///
    /// # Errors
    /// [`HostError::Failed`]
    pub(super) fn kubectl(&self, words: &[&str], input: Option<&str>) -> Result<String, HostError> {
        run("kubectl", &self.kubectl_words(words), input)
    }

    /// The arguments of a kubectl of this host cluster.
    pub(super) fn kubectl_words(&self, words: &[&str]) -> Vec<OsString> {
        let mut all = vec!["--namespace".into(), OsString::from(&self.namespace)];
        all.extend(self.kubeconfig.iter().flat_map(|path| ["--kubeconfig".into(), path.into()]));
        all.extend(self.context.iter().flat_map(|context| ["--context".into(), context.into()]));
        all.extend(words.iter().map(OsString::from));
        all
    }

    /// The JSON that `kubectl get` prints. [`Value::Null`] if there is no such object.
    ///
    /// # Errors
    /// [`HostError`]
    pub(super) fn get(&self, words: &[&str]) -> Result<Value, HostError> {
        let all: Vec<&str> =
            ["get", "--ignore-not-found", "-o", "json"].iter().chain(words).copied().collect();
        let text = self.kubectl(&all, None)?;
        if text.trim().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text)
            .map_err(|_| HostError::NotJson(format!("kubectl get {}", words.join(" "))))
    }

    /// The objects that `kubectl get` lists.
    ///
    /// # Errors
    /// [`HostError`]
    pub(super) fn list(&self, words: &[&str]) -> Result<Vec<Value>, HostError> {
        Ok(self.get(words)?["items"].as_array().cloned().unwrap_or_default())
    }

    /// Applies objects. Fields that others have set on them stay.
    ///
    /// # Errors
    /// [`HostError::Failed`]
    pub(super) fn apply(&self, objects: &[Value]) -> Result<(), HostError> {
        let manager = format!("--field-manager={FIELD_MANAGER}");
        let words = ["apply", "--server-side", &manager, "--force-conflicts", "-f", "-"];
        self.kubectl(&words, Some(&list_of(objects))).map(drop)
    }

    /// Creates an object, and fails if it is there.
    ///
    /// # Errors
    /// [`HostError::Failed`]
    pub(super) fn create(&self, object: &Value) -> Result<(), HostError> {
        self.kubectl(&["create", "-f", "-"], Some(&object.to_string())).map(drop)
    }

    /// Replaces an object, and fails if somebody else has changed it since it was read.
    ///
    /// # Errors
    /// [`HostError::Failed`]
    pub(super) fn replace(&self, object: &Value) -> Result<(), HostError> {
        self.kubectl(&["replace", "-f", "-"], Some(&object.to_string())).map(drop)
    }

    /// Lets the API server check a new object, which it does not keep.
    ///
    /// # Errors
    /// [`HostError::Failed`] with the words of the one who refuses it.
    pub(super) fn create_dry(&self, object: &Value) -> Result<(), HostError> {
        self.kubectl(&["create", "--dry-run=server", "-f", "-"], Some(&object.to_string())).map(drop)
    }

    /// Installs the chart, or upgrades it. It does not wait for pods.
    ///
    /// # Errors
    /// [`HostError::Failed`]
    pub(super) fn install(&self, chart: &Path, values: &[PathBuf]) -> Result<(), HostError> {
        let mut words: Vec<OsString> = ["upgrade", "--install", RELEASE].map(OsString::from).to_vec();
        words.push(chart.into());
        words.extend(values.iter().flat_map(|path| ["--values".into(), path.into()]));
        self.helm(words).map(drop)
    }

    /// Installs the agents, or upgrades them, and waits until they are connected.
    ///
    /// # Errors
    /// [`HostError::Failed`], also if they are not connected within `limit`.
    pub(super) fn install_agents(
        &self,
        chart: &Path,
        values: &Path,
        limit: WaitTime,
    ) -> Result<(), HostError> {
        let mut words: Vec<OsString> = ["upgrade", "--install", AGENTS].map(OsString::from).to_vec();
        words.extend([chart.into(), "--values".into(), values.into(), "--wait".into(), "--timeout".into()]);
        words.push(format!("{}s", limit.duration().as_secs()).into());
        self.helm(words).map(drop)
    }

    /// The values that were given to the release; [`Value::Null`] if helm has not installed the control plane.
    ///
    /// # Errors
    /// [`HostError`]
    pub(super) fn values(&self) -> Result<Value, HostError> {
        if !self.is_installed(RELEASE)? {
            return Ok(Value::Null);
        }
        let text = self.helm(["get", "values", RELEASE, "-o", "json"].map(OsString::from).to_vec())?;
        serde_json::from_str(&text).map_err(|_| HostError::NotJson(format!("helm get values {RELEASE}")))
    }

    /// Removes all objects of the control plane, and the agents.
    ///
    /// # Errors
    /// [`HostError::Failed`]
    pub(super) fn uninstall(&self) -> Result<(), HostError> {
        for release in [AGENTS, RELEASE] {
            if self.is_installed(release)? {
                self.helm(["uninstall", release].map(OsString::from).to_vec())?;
            }
        }
        Ok(())
    }

    fn is_installed(&self, release: &str) -> Result<bool, HostError> {
        let words = ["list", "--all", "--short", "--filter", release].map(OsString::from).to_vec();
        Ok(self.helm(words)?.lines().any(|name| name == release))
    }

    fn helm(&self, mut words: Vec<OsString>) -> Result<String, HostError> {
        words.extend(["--namespace".into(), OsString::from(&self.namespace)]);
        words.extend(self.kubeconfig.iter().flat_map(|path| ["--kubeconfig".into(), path.into()]));
        words.extend(self.context.iter().flat_map(|context| ["--kube-context".into(), context.into()]));
        run("helm", &words, None)
    }
}

/// A list for `kubectl apply`.
pub(super) fn list_of(objects: &[Value]) -> String {
    json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string()
}

fn run(program: &'static str, words: &[OsString], input: Option<&str>) -> Result<String, HostError> {
    program::run(program, words, input).map_err(HostError::Failed)
}

fn missing(error: HostError, program: &'static str, least: (u32, u32)) -> HostError {
    if matches!(error, HostError::Failed(ProgramFailed::Missing(_))) {
        return HostError::Missing(program, version_text(least));
    }
    error
}

fn check(program: &'static str, found: &str, least: (u32, u32)) -> Result<(), HostError> {
    let mut parts =
        found.trim().trim_start_matches('v').split('.').map_while(|part| part.parse::<u32>().ok());
    let version = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if version >= least {
        return Ok(());
    }
    Err(HostError::TooOld { program, found: found.trim().to_owned(), least: version_text(least) })
}

fn version_text((major, minor): (u32, u32)) -> String {
    format!("{major}.{minor}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_programs_are_refused_with_the_version_that_works() {
        for good in ["v3.12.0", "v3.22.0", "v4.0.1", "v3.12.0+g1234"] {
            assert!(check("helm", good, HELM_MIN).is_ok(), "{good}");
        }
        for (old, message) in [
            ("v3.11.3", "helm v3.11.3 is too old; install 3.12 or newer"),
            ("v2.17.0\n", "helm v2.17.0 is too old; install 3.12 or newer"),
            ("", "helm  is too old; install 3.12 or newer"),
        ] {
            assert_eq!(check("helm", old, HELM_MIN).unwrap_err().to_string(), message);
        }
    }
}
