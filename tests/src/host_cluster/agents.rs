//! The agents of a tenant in the host cluster, as `tombolo tenant register` installs them.

use serde_json::json;

use super::HostCluster;
use crate::binaries::binary;
use crate::lb_cluster::command::Ended;
use crate::node::{Image, libraries_of, with_libraries};
use crate::rig::{GROUP, Rig};

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
