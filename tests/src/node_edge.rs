//! Two edge clusters with a node each behind one server, all at the same addresses, shared by the trials of
//! pods.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use crate::kube::EdgeCluster;
use crate::kube::controllers::Controllers;
use crate::kube::kubectl::Kubectl;
use crate::lab::{Lab, Site, SiteError, Uplink};
use crate::node::{self, Image, Node, NodeUnavailable};
use crate::node_cluster::{KUBECTL_MAX, NodeCluster};
use crate::rig::{Agent, ApiServer, GROUP, Rig, policy};
use crate::skip::skip;

/// The names of the clusters.
pub const NAMES: [&str; 2] = ["edge-a", "edge-b"];
/// The image of the trials' pods: the program of `tests/kube/pod`, and busybox.
pub const IMAGE: &str = "tombolo.test/pod:1";
/// A pod that each cluster has. It serves its cluster's name at port 8080 and echoes at 7777.
pub const POD: &str = "web";
/// A group that the server permits at every cluster. Its rights in a cluster are the trial's choice.
pub const OPERATORS: &str = "tombolo:operators";

/// The applets of busybox that the image has.
const APPLETS: [&str; 24] = [
    "cat",
    "chmod",
    "cp",
    "date",
    "dd",
    "echo",
    "false",
    "find",
    "head",
    "id",
    "kill",
    "ls",
    "mkdir",
    "mv",
    "printf",
    "rm",
    "seq",
    "sh",
    "sha256sum",
    "sleep",
    "stty",
    "tar",
    "tee",
    "true",
];

/// Two clusters behind one server, in a lab.
#[derive(Debug)]
#[must_use = "all of it ends when this is dropped"]
pub struct NodeEdges {
    /// The clusters, in the order of [`NAMES`].
    pub edges: [NodeEdge; 2],
    /// The server and its files.
    pub rig: Rig,
    /// The lab with the cloud.
    pub lab: Lab,
}

/// A cluster with a node.
#[derive(Debug)]
pub struct NodeEdge {
    /// The name of the cluster.
    pub name: &'static str,
    /// A kubectl of an administrator, by the gateway.
    pub tunneled: Kubectl,
    /// A kubectl of an administrator, at the site and at the API server itself.
    pub direct: Kubectl,
    /// The agent, in the machine's network namespace.
    pub agent: Agent,
    // The node goes before what it talks to.
    /// The node of the cluster.
    pub node: Node,
    _controllers: Controllers,
    /// The control plane of the cluster.
    pub cluster: EdgeCluster,
    /// The machine is the site's pod.
    pub site: Site,
}

/// The reason why there are no node edges here.
#[derive(Debug, thiserror::Error)]
enum NodeEdgesUnavailable {
    #[error(transparent)]
    Node(#[from] NodeUnavailable),
    #[error(transparent)]
    Lab(#[from] SiteError),
}

/// Runs a trial with the two running edges, or with new ones. Trials that run at the same time share them,
/// and the last trial ends them. Where nodes are not possible, `test` is skipped with the reason.
///
/// # Panics
/// Where the trial does.
pub fn trial<T>(test: &str, trial: T)
where
    T: AsyncFnOnce(&NodeEdges) + Send,
{
    match NodeEdges::shared() {
        Ok(edges) => edges.lab.host(async || trial(&edges).await),
        Err(missing) => skip(test, &missing.to_string()),
    }
}

impl NodeEdges {
    fn shared() -> Result<Arc<Self>, NodeEdgesUnavailable> {
        static SHARED: Mutex<Weak<NodeEdges>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().expect("another trial has said why they do not start");
        if let Some(edges) = shared.upgrade() {
            return Ok(edges);
        }
        node::assets()?;
        let lab = Lab::open()?;
        let (edges, rig) = lab.host(async || {
            let rig = lab.rig("").await;
            let operators = policy::allow_all("operators", ("client-certificate", OPERATORS), &["*"]);
            let [admins, token_admins] = policy::usual();
            rig.put_policy(&[admins, token_admins, operators]).await;
            let [a, b] = NAMES;
            let (a, b) = tokio::join!(
                NodeEdge::start(&lab, &rig, a, Uplink::Cable),
                NodeEdge::start(&lab, &rig, b, Uplink::Cable)
            );
            ([a, b], rig)
        });
        let edges = Arc::new(Self { edges, rig, lab });
        *shared = Arc::downgrade(&edges);
        Ok(edges)
    }
}

impl NodeEdge {
    /// Starts one in a lab, behind this uplink, with the pod [`POD`] running and the agent connected.
    ///
    /// # Panics
    /// If something does not start.
    pub async fn start(lab: &Lab, rig: &Rig, name: &'static str, uplink: Uplink) -> Self {
        let NodeCluster { node, direct, controllers, cluster, site } =
            NodeCluster::start(lab, name, uplink, None).await;
        let account = cluster.create_agent_account().await.expect("an account for the agent");
        cluster.make_admins(GROUP).await;
        let agent = site.agent_of(rig, name, &ApiServer::of(&cluster, &account), "").await;
        load(&node).await;
        let kubeconfig = rig.kubeconfig(&caller(name), &[GROUP], name).await;
        let cloud = Some(lab.cloud().path().to_owned());
        let tunneled = cluster.kubectl_with(kubeconfig).in_network_namespace(cloud).limit(KUBECTL_MAX);
        rig.connected(name).await;
        let edge = Self { name, tunneled, direct, agent, node, _controllers: controllers, cluster, site };
        // What the controller-manager makes of a namespace.
        edge.direct.stdout(&["wait", "--for=create", "serviceaccount/default", "--timeout=60s"]).await;
        edge.run_pod(POD, &format!("command: [pod, serve, {name}]")).await;
        edge
    }

    /// Makes a pod of [`IMAGE`] and waits until it is ready. `container` has further keys of its container,
    /// as YAML.
    ///
    /// # Panics
    /// If it does not become ready.
    pub async fn run_pod(&self, name: &str, container: &str) {
        self.create_pod(name, container).await;
        let pod = format!("pod/{name}");
        self.direct.stdout(&["wait", "--for=condition=Ready", &pod, "--timeout=100s"]).await;
    }

    /// The same for one that may end.
    ///
    /// # Panics
    /// If the API server refuses it.
    pub async fn create_pod(&self, name: &str, container: &str) {
        let container = container.replace('\n', "\n    ");
        let manifest = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{ name: {name}, labels: {{ app: {name} }} }}\nspec:\n  \
             restartPolicy: Never\n  terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    \
             image: {IMAGE}\n    imagePullPolicy: Never\n    {container}\n"
        );
        self.apply(name, &manifest).await;
    }

    /// Applies a manifest at the API server.
    ///
    /// # Panics
    /// If the API server refuses it.
    pub async fn apply(&self, name: &str, manifest: &str) {
        let path = self.file(&format!("{name}.yaml"));
        std::fs::write(&path, manifest).expect("a file can be written");
        self.direct.stdout(&["apply", "-f", path.to_str().expect("a path")]).await;
    }

    /// A file of the trial, removed with the cluster.
    pub fn file(&self, name: &str) -> PathBuf {
        self.cluster.directory().join(name)
    }
}

/// The user that [`NodeEdge::tunneled`] is authenticated as.
pub fn caller(cluster: &str) -> String {
    format!("user-of-{cluster}")
}

async fn load(node: &Node) {
    let (pod, busybox) = (node.assets().pod.clone(), node.assets().debian.join("bin/busybox"));
    let paths = APPLETS.map(|applet| format!("bin/{applet}"));
    let links: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "busybox")).collect();
    let image = Image {
        name: IMAGE,
        programs: &[(&pod, "bin/pod"), (&busybox, "bin/busybox")],
        links: &links,
        entrypoint: &["/bin/pod"],
        user: "",
    };
    node.load(&image).await.unwrap_or_else(|error| panic!("{error}"));
}
