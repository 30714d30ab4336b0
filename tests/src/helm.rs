//! helm with the charts of `deploy/charts`, which renders manifests without a cluster.

pub mod combinations;
pub mod remains;
pub mod samples;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::kube::assets::{self, MissingAssets};
use crate::process::{Invocation, run};
use crate::scratch::Scratch;
use crate::sources::workspace;

/// The limit for one run of helm. Each takes less than a second.
const RUN_MAX: Duration = Duration::from_secs(60);

/// The release of Kubernetes for which charts are rendered: a helm that was built from its module knows none.
const KUBERNETES: &str = "1.36";

/// The charts, with the namespaces of their releases.
pub const CHARTS: [(&str, &str); 3] = [
    ("tombolo-server", "tombolo-system"),
    ("tombolo-agent", "tombolo"),
    ("tenant-control-plane", "tombolo-tenant"),
];

/// The pinned helm, with a folder for its files.
#[derive(Debug)]
pub struct Helm {
    program: PathBuf,
    scratch: Scratch,
}

impl Helm {
    /// The helm that `tests/kube/build --clients` has built.
    ///
    /// # Errors
    /// If it is missing.
    ///
    /// # Panics
    /// If no folder can be made.
    pub fn find() -> Result<Self, MissingAssets> {
        let program = assets::helm()?;
        Ok(Self { program, scratch: Scratch::new("tombolo-helm-").expect("a folder") })
    }

    /// The path of the program.
    pub fn program(&self) -> &PathBuf {
        &self.program
    }

    /// Runs helm with these arguments and with these values, if there are any, in a file. Returns stdout and
    /// stderr; as an error if helm failed.
    ///
    /// # Panics
    /// If helm cannot be run.
    pub async fn run(&self, words: &[&str], values: &str) -> Result<String, String> {
        let file = self.scratch.path().join("values.yaml");
        fs::write(&file, values).expect("it is ours");
        let home = self.scratch.path().display().to_string();
        let invocation = Invocation::of(&self.program)
            .arguments(words.iter().copied())
            .arguments(["--values", file.to_str().expect("a path"), "--kube-version", KUBERNETES])
            .variable("HOME", &home);
        let output = run(&invocation, RUN_MAX).await.expect("helm runs");
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(stdout) } else { Err(format!("{stdout}{stderr}")) }
    }

    /// The manifests of a chart with these values, as text.
    ///
    /// # Errors
    /// The message of helm that refuses the values.
    ///
    /// # Panics
    /// If there is no such chart.
    pub async fn template(&self, chart: &str, values: &str) -> Result<String, String> {
        let (_, namespace) = CHARTS.iter().find(|(name, _)| *name == chart).expect("a chart");
        let folder = folder(chart);
        let folder = folder.to_str().expect("a path");
        self.run(&["template", "trial", folder, "--namespace", namespace], values).await
    }
}

/// The folder of a chart.
pub fn folder(chart: &str) -> PathBuf {
    workspace().join("deploy/charts").join(chart)
}

/// The objects in a text of manifests.
///
/// # Panics
/// If it is not YAML.
pub fn objects(manifests: &str) -> Vec<Value> {
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(manifests).unwrap_or_else(|error| panic!("{error}: {manifests}"));
    objects.into_iter().filter(|object| !object.is_null()).collect()
}

/// The object of this kind and name.
///
/// # Panics
/// If there is none.
pub fn object<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found = objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("there is no {kind} {name}"))
}
