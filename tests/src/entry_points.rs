//! All entry points to one cluster's API server. Each is a kubeconfig.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::binaries::binary;
use crate::caller::SOON;
use crate::enroll::at;
use crate::kube::EdgeCluster;
use crate::kube::kubectl::Kubectl;
use crate::process::{Invocation, Process, run};
use crate::rig::policy::{allow_all, may_dial, user_may_dial};
use crate::rig::{GROUP, Rig, free_port};

/// The entry points, in the order of `docs/clients.md`: the gateway's URL, `tombolo proxy` by CONNECT and by SOCKS5,
/// a dial token at the server's proxy listener, and TLS that passes through.
pub const ENTRY_POINTS: [&str; 5] = ["url", "http", "socks5", "https", "sni"];

const CALLER: &str = "alice";
const USER: &str = "ci";
/// The name in the proxy listener's certificate, and in the API server's too.
const NAME: &str = "localhost";

/// The listeners by which a server serves callers without a client certificate.
#[derive(Debug)]
pub struct DialListeners {
    proxy: SocketAddr,
    passthrough: SocketAddr,
}

/// The kubeconfigs and local proxies for one cluster.
#[derive(Debug)]
#[must_use = "local proxies end when this is dropped"]
pub struct EntryPoints {
    folder: PathBuf,
    network_namespace: Option<PathBuf>,
    _proxies: [Process; 2],
}

impl DialListeners {
    /// Restarts a server with these listeners. TLS that passes through leads to `target` of `cluster`. No
    /// agent is connected yet.
    ///
    /// # Panics
    /// If the server does not start.
    pub async fn of(rig: &mut Rig, cluster: &str, target: &str) -> Self {
        rig.tombolo(&["ca", "issue", "proxy", "--dir", "pki", "--name", NAME]).await;
        rig.kill_server();
        let (proxy, passthrough) = (free_port(), free_port());
        let listeners = format!(
            "proxy: {{ listen: \"{proxy}\", certificateFile: pki/proxy.crt, keyFile: pki/proxy.key }}\n\
             passthrough: {{ name: sni, listen: \"{passthrough}\", sources: [127.0.0.1/32], \
             servers: [{{ name: {NAME}, cluster: {cluster}, target: {target:?} }}] }}\n"
        );
        rig.write_config(|config| format!("{config}{listeners}"));
        rig.start_server().await;
        Self { proxy, passthrough }
    }
}

impl EntryPoints {
    /// Opens all entry points to the API server at `target`, which the agent of `name` dials. Every caller is
    /// permitted.
    ///
    /// # Panics
    /// If one of them does not open.
    pub async fn open(
        rig: &Rig,
        listeners: &DialListeners,
        cluster: &EdgeCluster,
        name: &str,
        target: &str,
    ) -> Self {
        rig.put_policy(&[
            allow_all("admins", ("client-certificate", GROUP), &[name]),
            may_dial("dialers", ("client-certificate", GROUP), &[name]),
            user_may_dial("ci", ("dial-token", USER), &[name]),
            user_may_dial("sni", ("entry-point:sni", "entry-point:sni"), &[name]),
        ])
        .await;
        at(rig, &["cluster", "update", name, "--advertise", target]).await;
        let written = rig.kubeconfig(CALLER, &[GROUP], name).await;
        std::fs::rename(written, rig.path().join(file("url"))).expect("it was written");
        let admin = cluster.admin_kubeconfig();
        let proxies = [
            local_proxy(rig, name, &admin, "http", &[]).await,
            local_proxy(rig, name, &admin, "socks5", &["--socks5"]).await,
        ];
        with_dial_token(rig, name, &admin, listeners.proxy).await;
        let server = format!("https://{NAME}:{}", listeners.passthrough.port());
        let (from, to) = (admin.display().to_string(), file("sni"));
        let words = ["passthrough", "--server", &server, "--kubeconfig", &from, "--output", &to];
        let written = run(&tombolo(rig, &words), SOON).await.expect("tombolo runs");
        assert!(written.status.success(), "{written:?}");
        let network_namespace = rig.network_namespace().map(Path::to_owned);
        Self { folder: rig.path().to_owned(), network_namespace, _proxies: proxies }
    }

    /// A kubectl of the pinned release that comes by one of [`ENTRY_POINTS`].
    pub fn kubectl(&self, cluster: &EdgeCluster, entry_point: &str) -> Kubectl {
        cluster
            .kubectl_with(self.folder.join(file(entry_point)))
            .in_network_namespace(self.network_namespace.clone())
    }
}

fn file(entry_point: &str) -> String {
    format!("{entry_point}.conf")
}

/// An invocation of `tombolo` in the network namespace of the callers.
fn tombolo(rig: &Rig, words: &[&str]) -> Invocation {
    Invocation::of(binary("tombolo"))
        .arguments(words.iter().copied())
        .in_directory(rig.path())
        .in_network_namespace(rig.network_namespace().map(Path::to_owned))
}

/// `tombolo proxy`, which has written its copy.
async fn local_proxy(rig: &Rig, cluster: &str, admin: &Path, entry_point: &str, flags: &[&str]) -> Process {
    let (gateway, admin) = (format!("https://{}", rig.gateway()), admin.display().to_string());
    let (certificate, key) = (format!("pki/{CALLER}-caller.crt"), format!("pki/{CALLER}-caller.key"));
    let output = file(entry_point);
    let words = ["proxy", "--gateway", &gateway, "--ca", "pki/server-ca.crt", "--cert", &certificate];
    let more = ["--key", &key, "--cluster", cluster, "--kubeconfig", &admin, "--output", &output];
    let words = [words.as_slice(), &more, flags].concat();
    let log = format!("{entry_point}.log");
    let proxy = Process::start(&tombolo(rig, &words), &rig.path().join(&log)).await.expect("it starts");
    rig.logged(&log, 0, "is reached through").await;
    proxy
}

async fn with_dial_token(rig: &Rig, cluster: &str, admin: &Path, proxy: SocketAddr) {
    let token = "ci.token";
    at(rig, &["user", "dial-token", "create", "--user", USER, "--cluster", cluster, "--out", token]).await;
    let (proxy, admin) = (format!("https://{NAME}:{}", proxy.port()), admin.display().to_string());
    let words = ["user", "dial-token", "kubeconfig", "--user", USER, "--dial-token-file", token];
    let output = file("https");
    let more = ["--proxy", &proxy, "--ca", "pki/proxy-ca.crt", "--kubeconfig", &admin, "--output", &output];
    rig.tombolo(&[words.as_slice(), &more].concat()).await;
}
