//! Finds the binaries of Kubernetes that the tests run.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::sources::workspace;

/// The go.mod files that pin the releases; `tests/kube/build` reads the same.
const PINS: [(&str, &str, &str); 2] = [
    ("kubernetes", "k8s.io/kubernetes", include_str!("../../kube/kubernetes/go.mod")),
    ("etcd", "go.etcd.io/etcd/server/v3", include_str!("../../kube/etcd/go.mod")),
];

/// The distance from the API server's minor version at which Kubernetes supports a kubectl.
/// <https://kubernetes.io/releases/version-skew-policy/#kubectl>
const NEIGHBOURING_MINORS: [i32; 2] = [-1, 1];

/// Debian's containerd, unpacked below the folder `node`, and how far up that is.
const CONTAINERD: &str = "node/usr/bin/containerd";
const CONTAINERD_DEPTH: usize = 3;

/// The command that builds the clients that people use beside kubectl.
const CLIENTS: &str = "tests/kube/build --clients";

/// The file name of another minor's kubectl, before its version.
const SKEWED: &str = "kubectl-v";

/// The go.mod file that pins helm.
const HELM: (&str, &str) = ("helm.sh/helm/v3", include_str!("../../kube/helm/go.mod"));

/// The go.mod file that pins krew.
const KREW: (&str, &str) = ("sigs.k8s.io/krew", include_str!("../../kube/krew/go.mod"));

/// The programs of a control plane and kubectl.
#[derive(Debug, Clone)]
pub struct Assets {
    /// The path of the `etcd` program.
    pub etcd: PathBuf,
    /// The path of the `kube-apiserver` program.
    pub apiserver: PathBuf,
    /// The path of the pinned `kubectl`.
    pub kubectl: PathBuf,
}

/// The programs of a node and the controllers of its cluster, beside [`Assets`].
#[derive(Debug, Clone)]
pub struct NodeAssets {
    /// The path of the `kube-controller-manager` program.
    pub controller_manager: PathBuf,
    /// The path of the `kube-scheduler` program.
    pub scheduler: PathBuf,
    /// The path of the `kubelet` program.
    pub kubelet: PathBuf,
    /// The path of the `kube-proxy` program.
    pub kube_proxy: PathBuf,
    /// The path of the `kubeadm` program.
    pub kubeadm: PathBuf,
    /// The path of `metrics-server`, a static program.
    pub metrics_server: PathBuf,
    /// The path of the `etcdctl` program, which takes snapshots.
    pub etcdctl: PathBuf,
    /// The path of the `etcdutl` program, which restores them.
    pub etcdutl: PathBuf,
    /// The program of `tests/kube/pod`, which is all that is in the images of most pods.
    pub pod: PathBuf,
    /// A folder with Debian's containerd, runc, CNI plugins and busybox in their places below `/`.
    pub debian: PathBuf,
}

/// The program that prints the requests which Go's `net/http` parses from a connection.
pub fn second_parser() -> Result<PathBuf, MissingAssets> {
    find("second-parser", "tests/kube/build", &of_ours())
}

/// The program that prints how the pinned kube-apiserver reads the targets of requests.
pub fn request_info() -> Result<PathBuf, MissingAssets> {
    find("requestinfo", "tests/kube/build", &of_ours())
}

/// helm, of the pinned release.
///
/// # Errors
/// It is missing.
pub fn helm() -> Result<PathBuf, MissingAssets> {
    find(&format!("helm-{}", pinned(HELM.0, HELM.1)), CLIENTS, &of_ours())
}

/// krew, of the pinned release.
///
/// # Errors
/// It is missing.
pub fn krew() -> Result<PathBuf, MissingAssets> {
    find(&format!("krew-{}", pinned(KREW.0, KREW.1)), CLIENTS, &of_ours())
}

/// The path of the program of `tests/kube/kube-rs`.
///
/// # Errors
/// If it was not built.
pub fn kube_rs() -> Result<PathBuf, MissingAssets> {
    find("kube-rs", CLIENTS, &of_ours())
}

/// The program of `tests/kube/cluster-profiles`, and the CustomResourceDefinition of the profiles that it reads.
///
/// # Errors
/// If one of them was not built.
pub fn cluster_profiles() -> Result<(PathBuf, PathBuf), MissingAssets> {
    let found = |name| find(name, CLIENTS, &of_ours());
    Ok((found("cluster-profiles")?, found("clusterprofiles.yaml")?))
}

/// The Python that has what the program of `tests/kube/python` needs.
///
/// # Errors
/// It is missing.
pub fn python() -> Result<PathBuf, MissingAssets> {
    // What is there last.
    let complete = find("python/requirements.txt", CLIENTS, &of_ours())?;
    Ok(complete.with_file_name("bin").join("python3"))
}

/// The folders in which `tests/kube/build` puts the programs that are never taken from elsewhere.
fn of_ours() -> Vec<PathBuf> {
    folder("TOMBOLO_KUBE_ASSETS").or_else(built).into_iter().collect()
}

/// One of the programs is nowhere to be found.
#[derive(Debug, thiserror::Error)]
#[error("there is no {program} in {looked}. Run `make test`, or `{script}` to build it once")]
pub struct MissingAssets {
    program: String,
    script: &'static str,
    looked: String,
}

impl Assets {
    /// Looks in `TOMBOLO_KUBE_ASSETS`, then in `KUBEBUILDER_ASSETS`, then (also for a kubectl that is missing
    /// there) in the newest folder that `tests/kube/build` made for the pinned versions.
    pub fn find() -> Result<Self, MissingAssets> {
        if let Some(given) = folder("TOMBOLO_KUBE_ASSETS") {
            return Self::among(&[given]);
        }
        Self::among(&folder("KUBEBUILDER_ASSETS").into_iter().chain(built()).collect::<Vec<_>>())
    }

    /// The kubectls of other minors that are there, as their versions without the `v` and their programs,
    /// oldest first.
    ///
    /// `tests/kube/build --skew=neighbours` or `--skew=all` builds them beside the pinned one.
    pub fn other_kubectls(&self) -> Vec<(String, PathBuf)> {
        let folder = self.kubectl.parent().map(fs::read_dir);
        let entries = folder.into_iter().flatten().flatten().flatten();
        let mut kubectls: Vec<_> = entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                Some((name.strip_prefix(SKEWED)?.to_owned(), entry.path()))
            })
            .collect();
        kubectls.sort_by_key(|(version, _)| minor(version));
        kubectls
    }

    fn among(folders: &[PathBuf]) -> Result<Self, MissingAssets> {
        let find = |program| find(program, "tests/kube/build", folders);
        Ok(Self { etcd: find("etcd")?, apiserver: find("kube-apiserver")?, kubectl: find("kubectl")? })
    }
}

impl NodeAssets {
    /// Looks in `TOMBOLO_KUBE_ASSETS`, then in the newest folder that `tests/kube/build` made for the pinned
    /// versions.
    ///
    /// # Errors
    /// If a program is missing.
    pub fn find() -> Result<Self, MissingAssets> {
        let folders = of_ours();
        let find = |program| find(program, "tests/kube/build --node", &folders);
        let containerd = find(CONTAINERD)?;
        let debian = containerd.ancestors().nth(CONTAINERD_DEPTH).expect("it was joined to a folder");
        Ok(Self {
            controller_manager: find("kube-controller-manager")?,
            scheduler: find("kube-scheduler")?,
            kubelet: find("kubelet")?,
            kube_proxy: find("kube-proxy")?,
            kubeadm: find("kubeadm")?,
            metrics_server: find("metrics-server")?,
            etcdctl: find("etcdctl")?,
            etcdutl: find("etcdutl")?,
            pod: find("pod")?,
            debian: debian.to_owned(),
        })
    }
}

fn find(program: &str, script: &'static str, folders: &[PathBuf]) -> Result<PathBuf, MissingAssets> {
    folders.iter().map(|folder| folder.join(program)).find(|path| path.is_file()).ok_or_else(|| {
        let looked = match folders {
            [] => kube_assets().display().to_string(),
            some => some.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(" or "),
        };
        MissingAssets { program: program.to_owned(), script, looked }
    })
}

/// The pinned Kubernetes release, such as `v1.36.3`; binaries of `KUBEBUILDER_ASSETS` may be of another.
pub fn pinned_kubernetes() -> &'static str {
    pinned(PINS[0].1, PINS[0].2)
}

/// The pinned etcd release, such as `v3.7.3`.
pub fn pinned_etcd() -> &'static str {
    pinned(PINS[1].1, PINS[1].2)
}

/// The minors directly before and after the pinned release, such as `1.35`, whose kubectls Kubernetes
/// supports with its API server.
pub fn neighbouring_minors() -> [String; 2] {
    let pinned = minor(pinned_kubernetes().trim_start_matches('v'));
    NEIGHBOURING_MINORS.map(|far| format!("1.{}", pinned + far))
}

/// The minors whose kubectl `tests/kube/build --skew=all` builds.
pub fn all_minors() -> Vec<String> {
    let files = fs::read_dir(workspace().join("tests/kube/kubectl"));
    let names =
        files.into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut minors: Vec<_> = names
        .filter_map(|name| Some(name.strip_suffix(".mod").filter(|minor| *minor != "go")?.to_owned()))
        .collect();
    minors.sort_by_key(|version| minor(version));
    minors
}

fn minor(version: &str) -> i32 {
    version.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(0)
}

fn folder(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn built() -> Option<PathBuf> {
    let prefix: String =
        PINS.iter().map(|(name, module, text)| format!("{name}-{}_", pinned(module, text))).collect();
    let age =
        |path: &Path| fs::metadata(path).and_then(|found| found.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    fs::read_dir(kube_assets())
        .ok()?
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .map(|entry| entry.path())
        .max_by_key(|path| age(path))
}

fn kube_assets() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    target.join("kube-assets")
}

fn pinned(module: &str, text: &'static str) -> &'static str {
    text.lines()
        .find_map(|line| line.trim().trim_start_matches("require ").strip_prefix(module)?.strip_prefix(' '))
        .map(|version| version.split_whitespace().next().unwrap_or(version))
        .expect("go.mod requires the module that it is for")
}
