//! The agents of a tenant in the host cluster, as `tombolo tenant register` installs them.

use serde_json::json;

use super::{HostCluster, KUBECTL_MAX, SiteNetwork};
use crate::binaries::binary;
use crate::enroll;
use crate::kube::assets::Assets;
use crate::kube::kubectl::Kubectl;
use crate::lb_cluster::command::Ended;
use crate::node::{Image, libraries_of, with_libraries};
use crate::rig::{GROUP, Rig, ServerPlacement};

/// The image of the agents, as the chart names it.
const IMAGE: (&str, &str) = ("tombolo.test/tunnel-agent", "1");

/// The agents in the namespace of their tenant.
pub const AGENTS: &str = "deployment/tunnel-agent";

impl HostCluster {
    /// Gives each node the image of the agents, of this program with its libraries.
    ///
    /// # Panics
    /// If it cannot be imported.
    pub async fn load_agent(&self) {
        let program = binary("tunnel-agent");
        let libraries = libraries_of(&program).await.expect("ldd");
        let files = with_libraries((&program, "tunnel-agent"), &libraries);
        let name = format!("{}:{}", IMAGE.0, IMAGE.1);
        let image =
            Image { name: &name, programs: &files, entrypoint: &["/tunnel-agent"], ..Image::default() };
        for node in &self.nodes {
            node.node.load(&image).await.expect("an image");
        }
    }

    /// Starts a server beside the host cluster's API server, with its enrollment open. The caller is [`within`](crate::lab::within) that
    /// network.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start_server(&self) -> Rig {
        let placement = ServerPlacement {
            network_namespace: self.network.core().path().to_owned(),
            address: SiteNetwork::CORE.into(),
            is_dual: false,
            variables: Vec::new(),
        };
        let mut rig = Rig::start_at(placement, "info", "").await;
        enroll::open(&mut rig).await;
        rig
    }

    /// Alice's kubectl at a tenant by the gateway of that server.
    ///
    /// # Panics
    /// If there is no kubectl.
    pub async fn by_gateway(&self, tenant: &str, rig: &Rig) -> Kubectl {
        let kubeconfig = rig.kubeconfig("alice", &[GROUP], tenant).await;
        let alice = Kubectl::new(Assets::find().expect("kubectl").kubectl, kubeconfig).limit(KUBECTL_MAX);
        alice.in_network_namespace(Some(self.network.core().path().to_owned()))
    }

    /// Registers a tenant at a server, whose enrollment is open, as a person does it. Alice of [`GROUP`] is its administrator then.
    ///
    /// # Panics
    /// With the logs of both sides, if the command fails.
    pub async fn register(&self, tenant: &str, rig: &Rig) {
        let ended = self.try_to_register(tenant, rig).await;
        if !ended.is_done {
            let logs = ["logs", AGENTS, "--namespace", tenant, "--tail=20"];
            let logs =
                self.admin.run(&logs).await.map(|logs| String::from_utf8_lossy(&logs.stdout).into_owned());
            panic!("{}\n{logs:?}\n{}", ended.said, rig.server_log());
        }
    }

    async fn try_to_register(&self, tenant: &str, rig: &Rig) -> Ended {
        let (repository, tag) = IMAGE;
        let values = json!({ "image": { "repository": repository, "tag": tag, "pullPolicy": "Never" } });
        let values = rig.write("image.json", &values.to_string()).display().to_string();
        let (socket, server) = (rig.admin_socket().display().to_string(), rig.dialed().to_string());
        let callers = ["--user", "alice", "--group", GROUP, "--cluster-role", "cluster-admin"];
        let more = ["--servers", &server, "--socket", &socket, "--values", &values];
        self.tombolo_tenant(&[["register", tenant].as_slice(), &callers, &more].concat()).await
    }
}
