//! A worker with node-lb and three masters, each in a network namespace with a cable to the worker.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::kube::kubeconfig::{Credential, Kubeconfig};
use crate::kube::kubectl::Kubectl;
use crate::kube::{ClusterOptions, EdgeCluster};
use crate::lab::NamespaceRuntime;
use crate::network::{NetworkError, NetworkNamespace};
use crate::pki::Issued;
use crate::process::Process;

pub mod booted_worker;
pub mod callers;
pub mod command;
pub mod download;
pub mod kube_proxy;
pub mod kubeadm;
mod node_lb;
mod on_worker;
pub mod pod;
pub mod watches;

pub use node_lb::{LB, NodeLb};

/// The number of masters of the control plane.
pub const MASTERS: usize = 3;

/// The port of every API server.
const PORT: u16 = 6443;

/// Longest wait for an API server to be ready. Builds of other tests may run beside.
pub const READY_MAX: Duration = Duration::from_secs(90);

/// Longest time for an API server to end after SIGTERM.
const TERMINATE_MAX: Duration = Duration::from_secs(60);

/// Longest wait for an answer of probes.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Pause between two looks at something.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The machines and what runs on them. All of it ends when this is dropped.
#[derive(Debug)]
#[must_use = "all of it ends when this is dropped"]
pub struct LbCluster {
    // The processes go before their namespaces.
    /// etcd, the files, and the API server of the first master.
    pub edge: EdgeCluster,
    others: Vec<Process>,
    /// Code of the test that runs on the worker.
    pub on_worker: NamespaceRuntime,
    /// The network of the worker.
    pub worker: NetworkNamespace,
    /// The networks of the masters.
    pub masters: Vec<NetworkNamespace>,
    /// The addresses of the API servers. A test may move one.
    pub addresses: Vec<IpAddr>,
}

impl LbCluster {
    /// Starts a control plane of three masters, with the rights of `deploy/node-lb/rbac.yaml`, and no
    /// node-lb.
    ///
    /// # Errors
    /// No network namespace can be made here.
    ///
    /// # Panics
    /// If something does not start.
    pub async fn start() -> Result<Self, NetworkError> {
        let worker = NetworkNamespace::new().await?;
        let (mut masters, mut addresses) = (Vec::new(), Vec::new());
        for number in 1..=u8::try_from(MASTERS).expect("few") {
            let (master, address) = cabled(&worker, number).await?;
            masters.push(master);
            addresses.push(address);
        }
        let options = ClusterOptions {
            network_namespace: Some(masters[0].path().to_owned()),
            address: addresses[0],
            port: Some(PORT),
            advertise: addresses[0],
            has_events_etcd: true,
            apiserver_flags: &["--enable-bootstrap-token-auth=true"],
            ..ClusterOptions::default()
        };
        let edge = EdgeCluster::start_at(options).await.expect("a cluster starts");
        let on_worker = NamespaceRuntime::new(&worker);
        let mut cluster = Self { edge, others: Vec::new(), on_worker, worker, masters, addresses };
        for number in 1..MASTERS {
            let process = cluster.start_process(number).await;
            cluster.others.push(process);
        }
        let rbac = crate::sources::workspace().join("deploy/node-lb/rbac.yaml");
        cluster.edge.admin().stdout(&["apply", "-f", &rbac.display().to_string()]).await;
        Ok(cluster)
    }

    /// `ADDRESS:6443` of an API server.
    pub fn socket(&self, master: usize) -> SocketAddr {
        SocketAddr::new(self.addresses[master], PORT)
    }

    /// The certificate of the worker's kubelet.
    pub fn kubelet(&self) -> Issued {
        self.edge.issue_user("system:node:worker", &["system:nodes"])
    }

    /// The certificate of an administrator.
    pub fn administrator(&self) -> Issued {
        self.edge.issue_user("admin", &["system:masters"])
    }

    /// A kubectl on the worker, by way of node-lb.
    ///
    /// # Panics
    /// If its kubeconfig cannot be written.
    pub fn kubectl(&self) -> Kubectl {
        let path: PathBuf = self.edge.directory().join("worker.conf");
        let credential = Credential::Certificate(self.administrator());
        let server = format!("https://{LB}");
        let kubeconfig = Kubeconfig { server: &server, ca_pem: self.edge.ca_pem(), credential: &credential };
        kubeconfig.write(&path).expect("a file can be written");
        self.edge.kubectl_with(path).in_network_namespace(Some(self.worker.path().to_owned()))
    }

    /// The process id of an API server, or `None` if it does not run.
    pub fn id(&mut self, master: usize) -> Option<u32> {
        self.process(master).id()
    }

    /// Sends a signal to an API server.
    ///
    /// # Panics
    /// If it does not run.
    pub fn signal(&mut self, master: usize, signal: Signal) {
        self.process(master).signal(signal).expect("it runs");
    }

    /// Kills an API server, as a power cut does for a process.
    pub fn kill(&mut self, master: usize) {
        self.process(master).kill();
    }

    /// Ends an API server by SIGTERM, and waits for its end.
    ///
    /// # Panics
    /// If it does not end.
    pub async fn terminate(&mut self, master: usize) {
        let process = self.process(master);
        process.signal(Signal::TERM).expect("it runs");
        process.wait(TERMINATE_MAX).await.expect("it ends");
    }

    /// Starts an API server again, at its address.
    pub async fn start_again(&mut self, master: usize) {
        let process = self.start_process(master).await;
        *self.process(master) = process;
    }

    /// Starts an API server on one master more, and returns its number at once.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn add_master(&mut self) -> usize {
        let master = self.masters.len();
        let number = u8::try_from(master + 1).expect("few");
        let (network, address) = cabled(&self.worker, number).await.expect("a network namespace");
        self.masters.push(network);
        self.addresses.push(address);
        let process = self.start_process(master).await;
        self.others.push(process);
        master
    }

    /// The metrics at an address of the worker, or nothing if there is no answer.
    pub async fn scrape(&self, probes: SocketAddr) -> String {
        let scrape = async move {
            let mut stream = TcpStream::connect(probes).await.ok()?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: lb\r\nconnection: close\r\n\r\n").await.ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.ok()?;
            Some(answer)
        };
        self.on_worker
            .run(async { timeout(ANSWER_MAX, scrape).await.ok().flatten().unwrap_or_default() })
            .await
    }

    /// Gives a master another address, which its API server has when it starts again.
    ///
    /// # Panics
    /// If the address cannot be set.
    pub async fn move_master(&mut self, master: usize, last: u8) {
        let IpAddr::V4(old) = self.addresses[master] else { panic!("all are IPv4") };
        let [a, b, c, _] = old.octets();
        let new = Ipv4Addr::new(a, b, c, last);
        let network = &self.masters[master];
        // In this order, because the second address of a network goes with the first.
        network.ip(&format!("addr del {old}/24 dev eth0")).await.expect("it was there");
        network.ip(&format!("addr add {new}/24 dev eth0")).await.expect("an address can be added");
        self.addresses[master] = new.into();
    }

    async fn start_process(&self, master: usize) -> Process {
        let (namespace, name) = (self.masters[master].path(), format!("master-{master}"));
        let started = self.edge.start_apiserver_at(namespace, self.addresses[master], &name).await;
        started.expect("an API server starts")
    }

    fn process(&mut self, master: usize) -> &mut Process {
        match master {
            0 => self.edge.apiserver_process(),
            other => &mut self.others[other - 1],
        }
    }
}

/// The network of the master with this number, with a cable to the worker, and its address.
async fn cabled(worker: &NetworkNamespace, number: u8) -> Result<(NetworkNamespace, IpAddr), NetworkError> {
    let master = NetworkNamespace::new().await?;
    worker.connect(&format!("master{number}"), &master, "eth0").await?;
    worker.ip(&format!("addr add 10.7.{number}.1/24 dev master{number}")).await?;
    master.ip(&format!("addr add 10.7.{number}.2/24 dev eth0")).await?;
    Ok((master, Ipv4Addr::new(10, 7, number, 2).into()))
}

/// Looks until `done` says something, for at most `limit`.
///
/// # Panics
/// With `what`, if it does not come to pass.
pub async fn until<T>(what: &str, limit: Duration, mut done: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = done().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
