//! A node for tests: a real kubelet and a real containerd with real pods, in namespaces that end with all of
//! it.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::geteuid;

use crate::kube::EdgeCluster;
use crate::kube::assets::{MissingAssets, NodeAssets};
use crate::kube::kubeconfig::Credential;
use crate::network::NetworkNamespace;
use crate::process::{Invocation, Process, ProcessError, run};
use crate::scratch::Scratch;

mod booted;
mod cgroups;
mod image;
mod machine;
mod namespaces;
mod options;
mod settings;
mod store;
mod tar;

pub use booted::BootedMachine;
pub use cgroups::{left as cgroups_left, processes_in};
pub use image::{Image, libraries_of, sha256, with_libraries};
pub use options::NodeOptions;
pub use settings::{PODS, kubelet as kubelet_configuration};
pub use store::ImageStore;

use cgroups::Cgroups;
use namespaces::{NodeNamespaces, SET_UP};

/// The limit for containerd, and then kubelet, to become ready. Builds of other tests may run beside.
const READY_MAX: Duration = Duration::from_secs(60);
/// Pause between two questions whether they are.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The limit for one run of `ctr`. Images of a control plane are large, and builds of other tests may run beside.
const CTR_MAX: Duration = Duration::from_secs(120);

/// A node of a cluster; dropping it kills its daemons and pods, and removes their files and control groups.
#[derive(Debug)]
#[must_use = "the node is removed when this is dropped"]
pub struct Node {
    // Fields are dropped in this order: folders can be removed once nothing runs in them.
    kubelet: Process,
    containerd: Process,
    enclosure: NodeNamespaces,
    _cgroups: Cgroups,
    scratch: Scratch,
    assets: NodeAssets,
    name: String,
}

/// This machine can have no node.
#[derive(Debug, thiserror::Error)]
pub enum NodeUnavailable {
    /// Containers need root of the machine itself.
    #[error("a node needs root")]
    NotRoot,
    /// A hierarchy of control groups is missing.
    #[error("there is no /sys/fs/cgroup/{0} of version 1, and the trials' node knows no other")]
    NoCgroups(String),
    /// The machine's manager is missing.
    #[error("there is no systemd; install the package systemd")]
    NoSystemd,
    /// A program of the node is missing.
    #[error(transparent)]
    Assets(#[from] MissingAssets),
}

/// An error of starting a node or importing an image.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The machine can have none.
    #[error(transparent)]
    NodeUnavailable(#[from] NodeUnavailable),
    /// A file or a folder.
    #[error("could not write the files of a node")]
    Files(#[from] io::Error),
    /// A program could not be run.
    #[error("a program of the node failed: {0}")]
    Process(#[from] ProcessError),
    /// A program returned an error.
    #[error("{program} failed: {message}")]
    Refused {
        /// The name of the program.
        program: &'static str,
        /// The output of the program to stderr.
        message: String,
    },
    /// Something ended, or was not ready in time.
    #[error("the node's {what} was not ready; its output ended with:\n{tail}")]
    NotReady {
        /// The event that was awaited.
        what: &'static str,
        /// The end of what it wrote.
        tail: String,
    },
}

/// The programs for nodes on this machine.
///
/// # Errors
/// [`NodeUnavailable`], for [`crate::skip::skip`].
pub fn assets() -> Result<NodeAssets, NodeUnavailable> {
    if !geteuid().is_root() {
        return Err(NodeUnavailable::NotRoot);
    }
    if let Some(missing) = cgroups::missing() {
        return Err(NodeUnavailable::NoCgroups(missing));
    }
    Ok(NodeAssets::find()?)
}

impl Node {
    /// Starts a node on a machine, from which the cluster's API server can be reached; returns once the API server
    /// has it as ready.
    ///
    /// # Errors
    /// [`NodeError`].
    pub async fn start(
        machine: &NetworkNamespace,
        cluster: &EdgeCluster,
        options: &NodeOptions<'_>,
    ) -> Result<Self, NodeError> {
        let assets = assets()?;
        let scratch = Scratch::new("tombolo-node-")?;
        let cgroups = Cgroups::new(None)?;
        let imitated = (!options.has_kube_proxy).then(|| cluster.address());
        machine::prepare(machine, options.pods, imitated).await?;
        let folder = scratch.path();
        if let Some(images) = options.images {
            images.link_into(folder).await?;
        }
        let enclosure = NodeNamespaces::new(machine, folder, SET_UP, vec![options.name.to_owned()]).await?;
        let containerd = start_containerd(&enclosure, &assets, folder, options.pods).await?;
        if options.images.is_none() {
            import_pause(&enclosure, &assets, folder).await?;
        }
        let kubelet = start_kubelet(&enclosure, &assets, cluster, (folder, cgroups.name()), options).await?;
        let name = options.name.to_owned();
        let mut node = Self { kubelet, containerd, enclosure, _cgroups: cgroups, scratch, assets, name };
        node.ready(cluster).await?;
        Ok(node)
    }

    /// Gives the node an image.
    ///
    /// # Errors
    /// [`NodeError`].
    pub async fn load(&self, image: &Image<'_>) -> Result<(), NodeError> {
        import(&self.enclosure, &self.assets, self.scratch.path(), image).await
    }

    /// Imports an image from an existing archive into the node.
    ///
    /// # Errors
    /// [`NodeError`].
    pub async fn load_archive(&self, archive: &Path) -> Result<(), NodeError> {
        import_archive(&self.enclosure, &self.assets, archive).await
    }

    /// Gives an image of the node one more name, as a pull under that name would.
    ///
    /// # Errors
    /// [`NodeError`], also if the node has no such image.
    pub async fn tag(&self, image: &str, name: &str) -> Result<(), NodeError> {
        let words = ["--namespace", "k8s.io", "images", "tag", image, name];
        let output = run(&ctr(&self.enclosure, &self.assets, &words), CTR_MAX).await?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(NodeError::Refused { program: "ctr images tag", message });
        }
        Ok(())
    }

    /// The programs that the node runs.
    pub fn assets(&self) -> &NodeAssets {
        &self.assets
    }

    /// The namespace of all its processes, as a path; in it they are counted from 1.
    pub fn processes(&self) -> PathBuf {
        self.enclosure.namespace("pid_for_children")
    }

    /// The name of its control groups.
    pub fn cgroups(&self) -> &str {
        self._cgroups.name()
    }

    /// A folder for volumes of its pods. It is at the same path for programs of the node.
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// The ids of its daemons.
    pub fn process_ids(&self) -> Vec<u32> {
        [&self.kubelet, &self.containerd].into_iter().filter_map(Process::id).collect()
    }

    async fn ready(&mut self, cluster: &EdgeCluster) -> Result<(), NodeError> {
        let kubectl = cluster.admin();
        let path = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
        let deadline = Instant::now() + READY_MAX;
        loop {
            let output = kubectl.run(&["get", "node", &self.name, "-o", path]).await?;
            if output.stdout == b"True" {
                return Ok(());
            }
            for (what, process) in [("containerd", &mut self.containerd), ("kubelet", &mut self.kubelet)] {
                if process.ended().is_some() || Instant::now() >= deadline {
                    return Err(NodeError::NotReady { what, tail: process.tail() });
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

async fn start_containerd(
    enclosure: &NodeNamespaces,
    assets: &NodeAssets,
    folder: &Path,
    pods: &str,
) -> Result<Process, NodeError> {
    let network = folder.join("network");
    fs::create_dir(&network)?;
    fs::write(network.join("10-pods.conflist"), settings::network(pods).to_string())?;
    let config = folder.join("containerd.toml");
    fs::write(&config, settings::containerd(&assets.debian, &network))?;
    // It finds runc and its shim there.
    let paths = ["usr/bin", "usr/sbin"].map(|path| assets.debian.join(path).display().to_string());
    let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", paths.join(":"));
    let words = ["--config".to_owned(), config.display().to_string()];
    let program = assets.debian.join("usr/bin/containerd");
    let invocation = enclosure.inside(&program, &words).variable("PATH", path);
    let mut process = Process::start(&invocation, &folder.join("containerd.log")).await?;
    let deadline = Instant::now() + READY_MAX;
    while !run(&ctr(enclosure, assets, &["version"]), CTR_MAX).await?.status.success() {
        if process.ended().is_some() || Instant::now() >= deadline {
            return Err(NodeError::NotReady { what: "containerd", tail: process.tail() });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(process)
}

async fn start_kubelet(
    enclosure: &NodeNamespaces,
    assets: &NodeAssets,
    cluster: &EdgeCluster,
    (folder, cgroups): (&Path, &str),
    options: &NodeOptions<'_>,
) -> Result<Process, NodeError> {
    let name = options.name;
    let identity = cluster.issue_user(&format!("system:node:{name}"), &["system:nodes"]);
    let kubeconfig = cluster.write_kubeconfig(&format!("{name}.conf"), Credential::Certificate(identity))?;
    let resolv_conf = match options.resolver {
        None => String::new(),
        Some(resolver) => {
            let path = folder.join("resolv.conf");
            fs::write(&path, format!("nameserver {resolver}\n"))?;
            path.display().to_string()
        }
    };
    let config = folder.join("kubelet.json");
    let mut configuration = settings::kubelet(cgroups);
    configuration["containerRuntimeEndpoint"] = format!("unix://{}", settings::CONTAINERD_SOCKET).into();
    configuration["authentication"]["x509"]["clientCAFile"] = cluster.ca_path().display().to_string().into();
    // Empty: pods resolve no name.
    configuration["resolvConf"] = resolv_conf.into();
    fs::write(&config, configuration.to_string())?;
    let address: IpAddr = options.address.unwrap_or_else(|| cluster.address().ip());
    let words = [
        format!("--config={}", config.display()),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--hostname-override={name}"),
        format!("--node-ip={address}"),
        "--root-dir=/var/lib/kubelet".to_owned(),
    ];
    let invocation = enclosure.inside(&assets.kubelet, &words);
    Ok(Process::start(&invocation, &folder.join("kubelet.log")).await?)
}

/// Imports the image of every pod's sandbox.
async fn import_pause(
    enclosure: &NodeNamespaces,
    assets: &NodeAssets,
    folder: &Path,
) -> Result<(), NodeError> {
    let pause = Image {
        name: settings::PAUSE_IMAGE,
        programs: &[(&assets.pod, "bin/pod")],
        entrypoint: &["/bin/pod", "pause"],
        ..Image::default()
    };
    import(enclosure, assets, folder, &pause).await
}

async fn import(
    enclosure: &NodeNamespaces,
    assets: &NodeAssets,
    folder: &Path,
    image: &Image<'_>,
) -> Result<(), NodeError> {
    let archive = tempfile::Builder::new().suffix(".tar").tempfile_in(folder)?.into_temp_path();
    image.write(&archive)?;
    import_archive(enclosure, assets, &archive).await
}

async fn import_archive(
    enclosure: &NodeNamespaces,
    assets: &NodeAssets,
    archive: &Path,
) -> Result<(), NodeError> {
    let words = ["--namespace", "k8s.io", "images", "import", &archive.display().to_string()];
    let output = run(&ctr(enclosure, assets, &words), CTR_MAX).await?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(NodeError::Refused { program: "ctr images import", message });
    }
    Ok(())
}

fn ctr(enclosure: &NodeNamespaces, assets: &NodeAssets, words: &[&str]) -> Invocation {
    let socket = ["--address", settings::CONTAINERD_SOCKET];
    let words: Vec<String> = socket.iter().chain(words).map(|word| (*word).to_owned()).collect();
    enclosure.inside(&assets.debian.join("usr/bin/ctr"), &words)
}
