//! Every way to one cluster's API server that there is without a network of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Weak};

use tests::binaries::binary;
use tests::enroll::at;
use tests::kube::EdgeCluster;
use tests::kube::kubectl::Kubectl;
use tests::process::{Invocation, Process};
use tests::rig::policy::{allow_all, may_dial, user_may_dial};
use tests::rig::{Agent, ApiServer, GROUP, Rig, free_port};
use tokio::sync::Mutex;

/// The ways, in the order of the page: the gateway's URL, `tombolo proxy` by CONNECT and by SOCKS5, a dial token at the server's
/// proxy listener, and TLS that passes through.
pub(super) const WAYS: [&str; 5] = ["url", "http", "socks5", "https", "sni"];

const CLUSTER: &str = "edge-a";
const CALLER: &str = "alice";
const USER: &str = "ci";
/// For which the proxy listener's certificate is, and the API server's too.
const NAME: &str = "localhost";

/// A cluster, and what leads to it.
pub(super) struct Ways {
    pub(super) cluster: EdgeCluster,
    pub(super) rig: Rig,
    _agent: Agent,
    _proxies: [Process; 2],
}

impl Ways {
    /// Those that are there, or new ones: trials that run beside each other share them.
    pub(super) async fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Ways>> = Mutex::const_new(Weak::new());
        let mut shared = SHARED.lock().await;
        if let Some(ways) = shared.upgrade() {
            return ways;
        }
        let ways = Arc::new(Self::start().await);
        *shared = Arc::downgrade(&ways);
        ways
    }

    async fn start() -> Self {
        let cluster = EdgeCluster::start().await.unwrap();
        let account = cluster.create_agent_account().await.unwrap();
        cluster.make_admins(GROUP).await;
        let target = cluster.address().to_string();
        let (rig, proxy, passthrough) = rig_with_doors(&target).await;
        let agent = rig
            .agent_with(CLUSTER, &ApiServer::of(&cluster, &account), &format!("targets: [{target:?}]\n"))
            .await;
        rig.connected(CLUSTER).await;
        rig.put_policy(&[
            allow_all("admins", ("client-certificate", GROUP), &[CLUSTER]),
            may_dial("dialers", ("client-certificate", GROUP), &[CLUSTER]),
            user_may_dial("ci", ("dial-token", USER), &[CLUSTER]),
            user_may_dial("sni", ("way-in:sni", "way-in:sni"), &[CLUSTER]),
        ])
        .await;
        at(&rig, &["cluster", "update", CLUSTER, "--advertise", &target]).await;
        let written = rig.kubeconfig(CALLER, &[GROUP], CLUSTER).await;
        std::fs::rename(written, rig.path().join(file("url"))).unwrap();
        let admin = cluster.admin_kubeconfig();
        let proxies = [
            local_proxy(&rig, &admin, "http", &[]).await,
            local_proxy(&rig, &admin, "socks5", &["--socks5"]).await,
        ];
        with_dial_token(&rig, &admin, proxy).await;
        let server = format!("https://{NAME}:{}", passthrough.port());
        let (from, to) = (admin.display().to_string(), file("sni"));
        rig.tombolo(&["passthrough", "--server", &server, "--kubeconfig", &from, "--output", &to]).await;
        Self { cluster, rig, _agent: agent, _proxies: proxies }
    }

    /// A kubectl that comes by one of [`WAYS`].
    pub(super) fn kubectl(&self, way: &str) -> Kubectl {
        self.cluster.kubectl_with(self.rig.path().join(file(way)))
    }

    /// Makes something to be seen.
    pub(super) async fn make(&self, config_map: &str) {
        self.cluster.admin().stdout(&["create", "configmap", config_map]).await;
    }
}

fn file(way: &str) -> String {
    format!("{way}.conf")
}

/// A server with both doors that dial for others than callers with a certificate.
async fn rig_with_doors(target: &str) -> (Rig, SocketAddr, SocketAddr) {
    let mut rig = Rig::start().await;
    rig.tombolo(&["ca", "issue", "proxy", "--dir", "pki", "--name", NAME]).await;
    rig.kill_server();
    let (proxy, passthrough) = (free_port(), free_port());
    let doors = format!(
        "proxy: {{ listen: \"{proxy}\", certificateFile: pki/proxy.crt, keyFile: pki/proxy.key }}\n\
         passthrough: {{ name: sni, listen: \"{passthrough}\", sources: [127.0.0.1/32], \
         servers: [{{ name: {NAME}, cluster: {CLUSTER}, target: {target:?} }}] }}\n"
    );
    rig.write_config(|config| format!("{config}{doors}"));
    rig.start_server().await;
    (rig, proxy, passthrough)
}

/// `tombolo proxy`, which has written its copy.
async fn local_proxy(rig: &Rig, admin: &Path, way: &str, flags: &[&str]) -> Process {
    rig.caller(CALLER, &[GROUP]).await;
    let (gateway, admin) = (format!("https://{}", rig.gateway()), admin.display().to_string());
    let (certificate, key) = (format!("pki/{CALLER}-caller.crt"), format!("pki/{CALLER}-caller.key"));
    let output = file(way);
    let words = ["proxy", "--gateway", &gateway, "--ca", "pki/server-ca.crt", "--cert", &certificate];
    let more = ["--key", &key, "--cluster", CLUSTER, "--kubeconfig", &admin, "--output", &output];
    let words = [words.as_slice(), &more, flags].concat();
    let invocation = Invocation::of(binary("tombolo")).arguments(words).in_directory(rig.path());
    let log = format!("{way}.log");
    let proxy = Process::start(&invocation, &rig.path().join(&log)).await.unwrap();
    rig.logged(&log, 0, "is reached through").await;
    proxy
}

async fn with_dial_token(rig: &Rig, admin: &Path, proxy: SocketAddr) {
    let token = "ci.token";
    at(rig, &["user", "dial-token", "create", "--user", USER, "--cluster", CLUSTER, "--out", token]).await;
    let (proxy, admin) = (format!("https://{NAME}:{}", proxy.port()), admin.display().to_string());
    let words = ["user", "dial-token", "kubeconfig", "--user", USER, "--dial-token-file", token];
    let output = file("https");
    let more = ["--proxy", &proxy, "--ca", "pki/proxy-ca.crt", "--kubeconfig", &admin, "--output", &output];
    rig.tombolo(&[words.as_slice(), &more].concat()).await;
}
