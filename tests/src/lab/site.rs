//! A site: a pod behind a node that masquerades, and the node's uplink to the cloud.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::Lab;
use super::linksim::{Linksim, LinksimError};
use super::namespace_runtime::NamespaceRuntime;
use crate::fake_api::{FakeApi, FakeApiOptions};
use crate::network::{NetworkError, NetworkNamespace};
use crate::process::{Invocation, ProcessError, run};
use crate::rig::{AGENT_TOKEN, Agent, ApiServer, ProcessEnvironment, Rig};

/// The pod's address, at every site the same.
pub const POD: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 2);
/// The node's, on the pod's side.
const NODE: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 1);
/// The uplinks' addresses are two each from here: shared address space, RFC 6598.
const UPLINKS: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 0);
/// The IPv6 addresses of links: unique local addresses, RFC 4193.
const POD_V6: &str = "fd00:42::2";
const NODE_V6: &str = "fd00:42::1";
const UPLINK_V6: [&str; 2] = ["fd00:64::1", "fd00:64::2"];
/// The limit for one program that sets a namespace up.
const SET_UP_MAX: Duration = Duration::from_secs(10);

/// A node forwards, and its pod appears under the node's address, as in most clusters.
const MASQUERADE: &str = "echo 1 > /proc/sys/net/ipv4/ip_forward && \
     nft 'add table ip lab; add chain ip lab out { type nat hook postrouting priority 100; }; \
     add rule ip lab out oifname \"uplink\" masquerade'";

/// The agents' configuration at a site: the identities that may be asserted, and the advertised address.
const GUARD: &str = "impersonation: { users: [\"*\"], groups: [\"*\"] }\nadvertise: [\"192.168.1.10:6443\"]";

/// The link between a node and the cloud.
#[derive(Debug, Clone)]
pub enum Uplink {
    /// A cable, which never fails.
    Cable,
    /// A `linksim` with these further arguments; its side A is the site.
    Linksim(Vec<String>),
}

/// A pod, its node and its uplink; all of it is gone when this is dropped.
#[derive(Debug)]
#[must_use = "the site is gone when this is dropped"]
pub struct Site {
    name: String,
    /// The device at the cloud's end of the uplink.
    device: String,
    link: Option<Linksim>,
    runtime: NamespaceRuntime,
    pod: NetworkNamespace,
    node: NetworkNamespace,
    address: Ipv4Addr,
}

/// An error of building a site.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// A network namespace could not be set up.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A program could not be run.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The simulated link did not start.
    #[error(transparent)]
    Link(#[from] LinksimError),
    /// Masquerading could not be set up.
    #[error("a node cannot masquerade; is nft (Debian's package nftables) installed? {0}")]
    Masquerade(String),
    /// There are no TUN devices here.
    #[error("there is no /dev/net/tun")]
    NoTun,
}

impl Uplink {
    /// A link by `linksim` with these options in both directions, such as `delay=20ms loss=5%`.
    pub fn simulated(words: &str) -> Self {
        Self::Linksim(vec!["--both".to_owned(), words.to_owned()])
    }

    /// The same with further arguments.
    #[must_use]
    pub fn with(self, more: &[&str]) -> Self {
        let mut words = match self {
            Self::Cable => Vec::new(),
            Self::Linksim(words) => words,
        };
        words.extend(more.iter().map(|word| (*word).to_owned()));
        Self::Linksim(words)
    }
}

impl Site {
    pub(super) async fn build(lab: &Lab, name: &str, number: u16, uplink: Uplink) -> Result<Self, SiteError> {
        let (pod, node) = (NetworkNamespace::new().await?, NetworkNamespace::new().await?);
        pod.connect("eth0", &node, "pod").await?;
        pod.ip(&format!("addr add {POD}/24 dev eth0")).await?;
        pod.ip(&format!("route add default via {NODE}")).await?;
        node.ip(&format!("addr add {NODE}/24 dev pod")).await?;
        masquerade(&node).await?;
        let [near, far] =
            [0, 1].map(|end| Ipv4Addr::from_bits(UPLINKS.to_bits() + u32::from(number) * 2 + end));
        let device = format!("site-{number}");
        let link = match uplink {
            Uplink::Cable => {
                lab.cloud.connect(&device, &node, "uplink").await?;
                lab.cloud.ip(&format!("addr add {near}/31 dev {device}")).await?;
                node.ip(&format!("addr add {far}/31 dev uplink")).await?;
                None
            }
            Uplink::Linksim(more) => {
                let ends =
                    [(&node, "uplink", format!("{far}/31")), (&lab.cloud, &device, format!("{near}/31"))];
                let [a, b] = ends;
                Some(Linksim::start(lab.path(), &format!("{number}-{name}"), a, b, &more).await?)
            }
        };
        node.ip(&format!("route add default via {near}")).await?;
        let runtime = NamespaceRuntime::new(&pod);
        Ok(Self { name: name.to_owned(), device, link, runtime, pod, node, address: far })
    }

    /// Its name, and its cluster's.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The link to the cloud.
    ///
    /// # Panics
    /// If it is a cable.
    pub fn link(&self) -> &Linksim {
        self.link.as_ref().expect("this site's uplink is a cable")
    }

    /// The network namespace of the pod.
    pub fn pod(&self) -> &NetworkNamespace {
        &self.pod
    }

    /// The network namespace of the node.
    pub fn node(&self) -> &NetworkNamespace {
        &self.node
    }

    /// The node's address on the uplink: from there the cloud sees all that comes from the site, unless a NAT
    /// of the link hides that too.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Removes the pod's interface, and adds another one by the name `device` whose address ends with `last`.
    ///
    /// # Panics
    /// If that is not possible, for example because an interface has that name.
    pub async fn replace_interface(&self, device: &str, last: u8) {
        let replaced = async {
            // The node's end goes with the pod's, and with it what the node knows of the pod.
            self.pod.ip(&format!("link delete {}", self.interface().await?)).await?;
            let far = format!("pod-{device}");
            self.pod.connect(device, &self.node, &far).await?;
            self.node.ip(&format!("addr add {NODE}/24 dev {far}")).await?;
            self.pod.ip(&format!("addr add 10.42.0.{last}/24 dev {device}")).await?;
            self.pod.ip(&format!("route add default via {NODE}")).await
        };
        replaced.await.map(drop).unwrap_or_else(|error: NetworkError| panic!("another interface: {error}"));
    }

    /// The device by which the pod reaches its node.
    async fn interface(&self) -> Result<String, NetworkError> {
        let route = self.pod.ip("route show default").await?;
        let device = route.split_whitespace().skip_while(|word| *word != "dev").nth(1);
        Ok(device.unwrap_or("eth0").to_owned())
    }

    /// Replaces the address of the node's uplink, as the cloud knows it. The first address is gone, and with
    /// it all its NAT mappings.
    ///
    /// # Panics
    /// If that is not possible.
    pub async fn replace_address(&self, cloud: &NetworkNamespace, address: Ipv4Addr) {
        let replaced = async {
            cloud.ip(&format!("route add {address}/32 dev {}", self.device)).await?;
            let gateway = Ipv4Addr::from_bits(self.address.to_bits() - 1);
            self.node.ip("addr flush dev uplink").await?;
            self.node.ip(&format!("addr add {address}/32 dev uplink")).await?;
            self.node.ip(&format!("route add {gateway}/32 dev uplink")).await?;
            self.node.ip(&format!("route add default via {gateway}")).await
        };
        replaced.await.map(drop).unwrap_or_else(|error: NetworkError| panic!("another address: {error}"));
    }

    pub(super) async fn speak_v6(&self, cloud: &NetworkNamespace) -> Result<(), NetworkError> {
        let [near, far] = UPLINK_V6;
        let (server, device) = (super::SERVER_V6, &self.device);
        // Nobody else has these addresses: what looks for doubles would only take its time.
        cloud.ip(&format!("-6 addr add {server}/128 dev lo nodad")).await?;
        cloud.ip(&format!("-6 addr add {near}/64 dev {device} nodad")).await?;
        cloud.ip(&format!("-6 route add fd00:42::/64 via {far}")).await?;
        self.node.ip(&format!("-6 addr add {far}/64 dev uplink nodad")).await?;
        self.node.ip(&format!("-6 addr add {NODE_V6}/64 dev pod nodad")).await?;
        self.node.ip(&format!("-6 route add default via {near}")).await?;
        self.pod.ip(&format!("-6 addr add {POD_V6}/64 dev eth0 nodad")).await?;
        self.pod.ip(&format!("-6 route add default via {NODE_V6}")).await?;
        let forward = "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding";
        let shell = Invocation::of("sh").arguments(["-c", forward]);
        run(&shell.in_network_namespace(Some(self.node.path().to_owned())), SET_UP_MAX).await?;
        Ok(())
    }

    /// Runs a future in the pod, where its sockets then are.
    pub async fn run<F>(&self, future: F) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.runtime.run(future).await
    }

    /// Starts a fake API server in the pod.
    pub async fn fake_api(&self, options: FakeApiOptions) -> FakeApi {
        self.run(FakeApi::start_with(options)).await.expect("the fake starts")
    }

    /// Starts the cluster's agent in the pod and waits until it is connected; its configuration ends with
    /// `more`.
    pub async fn agent(&self, rig: &Rig, api: &FakeApi, more: &str) -> Agent {
        let kubeconfig = rig.path().join(format!("{}.kubeconfig", self.name));
        api.write_kubeconfig(&kubeconfig, AGENT_TOKEN).expect("a file can be written");
        let agent = self.agent_of(rig, &self.name, &ApiServer::Kubeconfig(kubeconfig), more).await;
        rig.connected(&self.name).await;
        agent
    }

    /// Starts an agent of any cluster in the pod, and does not wait.
    pub async fn agent_of(&self, rig: &Rig, cluster: &str, api: &ApiServer, more: &str) -> Agent {
        rig.agent_in(Some(self.pod.path()), cluster, api, &guarded(more)).await
    }

    /// The same for an agent with a hosts file of its own.
    pub async fn agent_with_hosts(
        &self,
        rig: &Rig,
        hosts: PathBuf,
        cluster: &str,
        api: &ApiServer,
        more: &str,
    ) -> Agent {
        let pod = Some(self.pod.path().to_owned());
        let around = ProcessEnvironment {
            network_namespace: pod,
            hosts: Some(hosts),
            ..ProcessEnvironment::default()
        };
        rig.agent_amid(&around, cluster, api, &guarded(more)).await
    }

    /// The same for one of several agents of a cluster.
    pub async fn agent_of_id(
        &self,
        rig: &Rig,
        cluster: &str,
        id: &str,
        api: &ApiServer,
        more: &str,
    ) -> Agent {
        rig.agent_of_id_in(Some(self.pod.path()), cluster, id, api, &guarded(more)).await
    }

    /// The answer of an agent in the pod at its probes, for a path such as `/metrics`.
    pub async fn probe(&self, probes: SocketAddr, path: &'static str) -> String {
        self.run(crate::rig::plain(probes, path)).await.expect("the probes answer")
    }
}

/// An agent's configuration, with the default list of identities unless it has its own.
fn guarded(more: &str) -> String {
    if more.contains("impersonation:") { more.to_owned() } else { format!("{GUARD}\n{more}") }
}

/// Checks whether sites can be built at all.
pub(super) async fn rehearse() -> Result<(), SiteError> {
    if !std::path::Path::new("/dev/net/tun").exists() {
        return Err(SiteError::NoTun);
    }
    masquerade(&NetworkNamespace::new().await?).await?;
    Ok(())
}

/// Lets all that a node forwards to its device `uplink` appear there under the node's own address.
///
/// # Errors
/// [`SiteError::Masquerade`], where that is not possible.
pub(crate) async fn masquerade(node: &NetworkNamespace) -> Result<(), SiteError> {
    let shell = Invocation::of("sh").arguments(["-c", MASQUERADE]);
    let output = run(&shell.in_network_namespace(Some(node.path().to_owned())), SET_UP_MAX).await?;
    if !output.status.success() {
        return Err(SiteError::Masquerade(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(())
}
