//! A gateway and an agent in front of a real API server, and three routes to it.

use std::sync::{Arc, Weak};

use tokio::sync::Mutex;

use crate::caller::SOON;
use crate::kube::account::AgentAccount;
use crate::kube::kubeconfig::Credential;
use crate::kube::kubectl::Kubectl;
use crate::kube::{ClusterOptions, EdgeCluster};
use crate::rig::{Agent, ApiServer, GROUP, Rig};
use crate::routes::{Route, RouteClient, TestRequest, TestResponse};

/// The name of the cluster.
pub const CLUSTER: &str = "edge-a";

/// The suffix of clusters' host names.
const SUFFIX: &str = "clusters.test";

/// The binding that lets the callers' group do everything in the cluster.
const ADMINS: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: tombolo-admins }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin }
subjects: [{ apiGroup: rbac.authorization.k8s.io, kind: Group, name: \"tombolo:admins\" }]
";

/// A type of our own: `islands.tombolo.test`.
const CRD: &str = include_str!("../fixtures/islands.yaml");

/// CBOR is alpha in this release. All other gates have their defaults.
const FEATURE_GATES: &[&str] = &["CBORServingAndStorage=true"];

/// The origin of pages whose requests the gateway serves.
pub const ORIGIN: &str = "https://example.test";

/// A server, one agent, and its API server.
#[derive(Debug)]
#[must_use = "all of it ends when this is dropped"]
pub struct RealEdge {
    /// The cluster with its API server.
    pub cluster: EdgeCluster,
    /// The server and its files.
    pub rig: Rig,
    /// The routes of alice, who may do everything: direct, by path, by host name.
    pub routes: [Route; 3],
    agent: Agent,
}

/// A connection along each way.
#[derive(Debug, Clone)]
pub struct RouteClients([RouteClient; 3]);

impl RealEdge {
    /// Starts a cluster, a server and an agent.
    pub async fn start() -> Self {
        Self::start_at(ClusterOptions { feature_gates: FEATURE_GATES, ..ClusterOptions::default() }).await
    }

    /// The same with a cluster of these options.
    pub async fn start_at(place: ClusterOptions) -> Self {
        Self::start_behind(place, async |cluster, account, _rig| ApiServer::of(cluster, account)).await
    }

    /// The same, where the agent reaches the API server as `reach` says, which may start something in between.
    pub async fn start_behind(
        place: ClusterOptions,
        reach: impl AsyncFnOnce(&EdgeCluster, &AgentAccount, &Rig) -> ApiServer,
    ) -> Self {
        let cluster = EdgeCluster::start_at(place).await.expect("a cluster starts");
        let account = cluster.create_agent_account().await.expect("an account for the agent");
        let rig = Rig::start_with(&format!("  browserOrigins: [\"{ORIGIN}\"]\n")).await;
        let objects = rig.write("objects.yaml", &format!("{ADMINS}---\n{CRD}"));
        cluster.admin().stdout(&["apply", "-f", objects.to_str().expect("a path")]).await;
        let established =
            ["wait", "--for=condition=Established", "crd/islands.tombolo.test", "--timeout=60s"];
        cluster.admin().limit(SOON).stdout(&established).await;
        let api = reach(&cluster, &account, &rig).await;
        let agent = rig.agent(CLUSTER, &api).await;
        rig.write("hosts", &format!("127.0.0.1 localhost {CLUSTER}.{SUFFIX}\n"));
        let routes = routes(&cluster, &rig, "alice").await;
        Self { cluster, rig, routes, agent }
    }

    /// The one that runs, or a new one: tests that run beside each other share it, and the last of them ends
    /// it.
    pub async fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<RealEdge>> = Mutex::const_new(Weak::new());
        let mut shared = SHARED.lock().await;
        if let Some(edge) = shared.upgrade() {
            return edge;
        }
        let edge = Arc::new(Self::start().await);
        *shared = Arc::downgrade(&edge);
        edge
    }

    /// The routes of another caller, who may do everything too.
    pub async fn routes_of(&self, user: &str) -> [Route; 3] {
        routes(&self.cluster, &self.rig, user).await
    }

    /// Connects a client along each route.
    pub async fn lines(&self) -> RouteClients {
        let [direct, path, host] = &self.routes;
        let (direct, path, host) = tokio::join!(direct.connect(), path.connect(), host.connect());
        RouteClients([direct, path, host])
    }

    /// The same as [`RouteClients::agree`] over HTTP/1.1, with a connection for each answer.
    pub async fn agree_over_http1(&self, ask: &TestRequest) -> TestResponse {
        let [direct, path, host] = &self.routes;
        agreed(ask, tokio::join!(direct.ask_http1(ask), path.ask_http1(ask), host.ask_http1(ask)).into())
    }

    /// The value of a series of the agent's metrics.
    pub async fn agent_metric(&self, series: &str) -> f64 {
        self.rig.metric(self.agent.probes, series).await
    }

    /// Makes a namespace; each test has its own.
    pub async fn namespace(&self, name: &str) {
        self.cluster.admin().stdout(&["create", "namespace", name]).await;
    }
}

impl RouteClients {
    /// The client that reaches the API server directly.
    pub fn direct(&self) -> &RouteClient {
        &self.0[0]
    }

    /// All of them, the direct one first.
    pub fn all(&self) -> &[RouteClient; 3] {
        &self.0
    }

    /// Asks along each way at once.
    pub async fn ask(&self, ask: &TestRequest) -> [TestResponse; 3] {
        let [direct, path, host] = &self.0;
        tokio::join!(direct.ask(ask), path.ask(ask), host.ask(ask)).into()
    }

    /// Asks along each way at once, and returns the answer in which all have [`agreed`].
    ///
    /// # Panics
    /// As [`agreed`].
    pub async fn agree(&self, ask: &TestRequest) -> TestResponse {
        agreed(ask, self.ask(ask).await)
    }
}

/// Compares three answers to one request: status, lasting headers and body, byte for byte. The direct one
/// comes first.
///
/// # Panics
/// If one differs. The message says where.
pub fn agreed(ask: &TestRequest, [direct, path, host]: [TestResponse; 3]) -> TestResponse {
    for (name, answer) in [("path", path), ("host name", host)] {
        let case = format!("by {name} {ask:?}");
        assert_eq!(answer.status, direct.status, "{case}: {}", String::from_utf8_lossy(&answer.body));
        assert_eq!(answer.lasting_headers(), direct.lasting_headers(), "{case}");
        assert!(answer.body == direct.body, "{case}: {}", difference(&direct.body, &answer.body));
    }
    direct
}

/// The place where two texts differ, with the text that follows in each.
pub fn difference(one: &[u8], other: &[u8]) -> String {
    let at = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let rest = |bytes: &[u8]| {
        String::from_utf8_lossy(&bytes[at.min(bytes.len())..bytes.len().min(at + 200)]).into_owned()
    };
    format!("at byte {at} of {} and {}: {:?} and {:?}", one.len(), other.len(), rest(one), rest(other))
}

async fn routes(cluster: &EdgeCluster, rig: &Rig, user: &str) -> [Route; 3] {
    let identity = cluster.issue_user(user, &[GROUP]);
    let credential = Credential::Certificate(identity.clone());
    let known_to_the_cluster = cluster.write_kubeconfig(&format!("{user}.conf"), credential);
    let known_to_the_cluster = known_to_the_cluster.expect("a kubeconfig can be written");
    let direct = Route {
        name: "direct",
        address: cluster.address(),
        host: "127.0.0.1".to_owned(),
        prefix: String::new(),
        ca_pem: cluster.ca_pem().to_owned(),
        identity,
        kubectl: cluster.kubectl_with(known_to_the_cluster).limit(SOON),
    };
    let path = Route {
        name: "path",
        address: rig.gateway(),
        prefix: format!("/clusters/{CLUSTER}"),
        ca_pem: rig.server_ca(),
        identity: rig.caller(user, &[GROUP]).await,
        kubectl: cluster.kubectl_with(rig.kubeconfig(user, &[GROUP], CLUSTER).await).limit(SOON),
        ..direct.clone()
    };
    let host_name = Route {
        name: "host name",
        host: format!("{CLUSTER}.{SUFFIX}"),
        prefix: String::new(),
        kubectl: by_host_name(cluster, rig, user).await,
        ..path.clone()
    };
    [direct, path, host_name]
}

/// An unmodified kubectl whose kubeconfig has the cluster's host name, with an `/etc/hosts` of its own that
/// resolves it.
async fn by_host_name(cluster: &EdgeCluster, rig: &Rig, user: &str) -> Kubectl {
    let kubeconfig = rig.kubeconfig_by_host_name(user, &[GROUP], CLUSTER, SUFFIX).await;
    cluster.kubectl_with(kubeconfig).with_hosts(Some(rig.path().join("hosts"))).limit(SOON)
}
