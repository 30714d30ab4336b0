//! An etcd cluster of three members with TLS in both directions, whose members can be killed and started again.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::etcd::{Client, CommitError, Endpoint, KeyRange, Write};
use daemon::Scope;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::caller::SOON;
use crate::dial::{config, dial};
use crate::faulty_relay::TcpRelay;
use crate::kube::assets::Assets;
use crate::network::NetworkNamespace;
use crate::pki::{Authority, Issued};
use crate::process::{Invocation, Process, ProcessError};
use crate::rig::free_port;
use crate::scratch::Scratch;

/// The number of members, of which two are a quorum.
pub const MEMBERS: usize = 3;

/// Longest wait for the cluster's first answer.
const READY_MAX: Duration = Duration::from_secs(60);

/// The cluster. Its members end when this is dropped.
#[derive(Debug)]
pub struct EtcdCluster {
    home: Scratch,
    assets: Assets,
    authority: Authority,
    identity: Issued,
    /// The addresses of each member: for clients, and for the other members.
    addresses: Vec<(SocketAddr, SocketAddr)>,
    members: Vec<Option<Process>>,
    /// The network namespace of the members; `None` for that of this process.
    network_namespace: Option<PathBuf>,
    /// The word from which members derive the ID of their cluster.
    token: &'static str,
    /// True if members write changes through to the disk, for which most tests need not wait.
    syncs: bool,
}

impl EtcdCluster {
    /// Starts all members, and waits until they answer.
    ///
    /// # Panics
    /// If etcd does not start.
    pub async fn start() -> Self {
        Self::prepare().started().await
    }

    /// The same with members that write each change through to the disk, so that its slowness counts.
    ///
    /// # Panics
    /// If etcd does not start.
    pub async fn start_syncing() -> Self {
        Self { syncs: true, ..Self::prepare() }.started().await
    }

    /// The same as [`EtcdCluster::start`] in a network namespace. The caller must be inside of it, as a trial of a lab is.
    ///
    /// # Panics
    /// If etcd does not start.
    pub async fn start_in(namespace: &NetworkNamespace) -> Self {
        Self { network_namespace: Some(namespace.path().to_owned()), ..Self::prepare() }.started().await
    }

    /// The same as [`EtcdCluster::start_syncing`] in a network namespace.
    ///
    /// # Panics
    /// If etcd does not start.
    pub async fn start_syncing_in(namespace: &NetworkNamespace) -> Self {
        let network_namespace = Some(namespace.path().to_owned());
        Self { syncs: true, network_namespace, ..Self::prepare() }.started().await
    }

    async fn started(mut self) -> Self {
        self.start_members().await;
        self
    }

    /// Lets each sync to the disk of each member take this much longer, as long as the returned processes run. strace does it, which
    /// delays the end of the system calls.
    ///
    /// # Errors
    /// strace cannot be started.
    pub async fn slow_disks(&self, longer: Duration) -> Result<Vec<Process>, ProcessError> {
        let mut slow = Vec::new();
        for (number, id) in self.process_ids().into_iter().enumerate() {
            let delay = format!("--inject=fdatasync,fsync:delay_exit={}", longer.as_micros());
            let strace = Invocation::of("strace")
                .arguments(["-f", "--output=/dev/null", "--trace=fdatasync,fsync"])
                .arguments([delay, format!("--attach={id}")]);
            slow.push(Process::start(&strace, &self.home.path().join(format!("strace-{number}.log"))).await?);
        }
        Ok(slow)
    }

    /// The same without starting a member.
    ///
    /// # Panics
    /// If etcd is not built.
    pub fn prepare() -> Self {
        let home = Scratch::new("tombolo-etcd-").expect("a folder");
        let authority = Authority::new("etcd");
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let server = authority.issue_server(&["localhost"], &[loopback]);
        let identity = authority.issue_user("tombolo", &[]);
        for (name, pem) in [
            ("ca.crt", authority.certificate_pem()),
            // etcd's API in JSON asks etcd itself, as a client.
            ("client.crt", &identity.certificate_pem),
            ("client.key", &identity.key_pem),
            ("server.crt", &server.certificate_pem),
            ("server.key", &server.key_pem),
        ] {
            std::fs::write(home.path().join(name), pem).expect("a file");
        }
        let addresses = (0..MEMBERS).map(|_| (free_port(), free_port())).collect();
        let assets = Assets::find().expect("etcd is built");
        let members = (0..MEMBERS).map(|_| None).collect();
        Self {
            home,
            assets,
            authority,
            identity,
            addresses,
            members,
            network_namespace: None,
            token: "first",
            syncs: false,
        }
    }

    /// Starts the members that do not run, and waits until they answer.
    ///
    /// # Panics
    /// If etcd does not start.
    pub async fn start_members(&mut self) {
        for member in 0..MEMBERS {
            if self.members[member].is_none() {
                self.start_member(member).await;
            }
        }
        let client = self.client(&Scope::here());
        let ready =
            timeout(READY_MAX, async { while client.count(&KeyRange::key("ready")).await.is_err() {} });
        ready.await.expect("etcd answers");
    }

    /// Kills all members, and starts an empty cluster in their place, at the same addresses.
    ///
    /// # Panics
    /// If etcd does not start.
    pub async fn replace_by_an_empty_one(&mut self) {
        for member in 0..MEMBERS {
            self.kill_member(member);
            let data = self.home.path().join(format!("data-{member}"));
            std::fs::remove_dir_all(data).expect("its data");
        }
        self.token = "another";
        self.start_members().await;
    }

    /// The section `directory` of a server's configuration, whose part `etcd` ends with `more`.
    pub fn section(&self, more: &str) -> String {
        let endpoints: Vec<String> =
            self.endpoints().iter().map(|endpoint| format!("\"{endpoint}\"")).collect();
        let file = |name: &str| self.home.path().join(name).display().to_string();
        format!(
            "directory: {{ etcd: {{ endpoints: [{}], caFile: {}, certificateFile: {}, keyFile: {}, {more} }} }}\n",
            endpoints.join(", "),
            file("ca.crt"),
            file("client.crt"),
            file("client.key")
        )
    }

    /// Writes the value of a key.
    ///
    /// # Panics
    /// If etcd refuses.
    pub async fn put(&self, key: &str, value: &[u8]) {
        self.try_put(key, value).await.expect("it is written");
    }

    /// The same for a cluster that may be too slow.
    ///
    /// # Errors
    /// The change was not made in time, or its outcome is not known.
    pub async fn try_put(&self, key: &str, value: &[u8]) -> Result<(), CommitError> {
        let write = Write::Put(key.as_bytes().to_vec(), value.to_vec());
        self.client(&Scope::here()).commit(Vec::new(), vec![write]).await.map(drop)
    }

    /// Starts a member that was killed, or has not run yet.
    ///
    /// # Panics
    /// If it cannot be started.
    pub async fn start_member(&mut self, member: usize) {
        let (file, (clients, peers)) = (|name: &str| self.home.path().join(name), self.addresses[member]);
        let all = self.addresses.iter().enumerate();
        let all: Vec<_> = all.map(|(number, (_, peers))| format!("m{number}=http://{peers}")).collect();
        let flags = [
            format!("--name=m{member}"),
            format!("--data-dir={}", file(&format!("data-{member}")).display()),
            format!("--listen-client-urls=https://{clients}"),
            format!("--advertise-client-urls=https://{clients}"),
            format!("--listen-peer-urls=http://{peers}"),
            format!("--initial-advertise-peer-urls=http://{peers}"),
            format!("--initial-cluster={}", all.join(",")),
            format!("--initial-cluster-token={}", self.token),
            format!("--cert-file={}", file("server.crt").display()),
            format!("--key-file={}", file("server.key").display()),
            format!("--trusted-ca-file={}", file("ca.crt").display()),
            format!("--client-cert-file={}", file("client.crt").display()),
            format!("--client-key-file={}", file("client.key").display()),
            "--client-cert-auth".to_owned(),
            format!("--unsafe-no-fsync={}", !self.syncs),
        ];
        let invocation = Invocation::of(&self.assets.etcd)
            .in_network_namespace(self.network_namespace.clone())
            .arguments(flags);
        let started = Process::start(&invocation, &file(&format!("member-{member}.log"))).await;
        self.members[member] = Some(started.expect("etcd starts"));
    }

    /// Kills a member without a warning.
    pub fn kill_member(&mut self, member: usize) {
        if let Some(mut process) = self.members[member].take() {
            process.kill();
        }
    }

    /// The process IDs of the members that run.
    pub fn process_ids(&self) -> Vec<u32> {
        self.members.iter().flatten().filter_map(Process::id).collect()
    }

    /// The number of changes so far.
    ///
    /// # Panics
    /// If etcd does not answer.
    pub async fn revision(&self) -> i64 {
        let client = self.client(&Scope::here());
        client.list(&KeyRange::key("nothing"), None).await.expect("etcd answers").revision.0
    }

    /// The endpoints of all members.
    ///
    /// # Panics
    /// Never, because the addresses are valid.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        endpoints(self.addresses.iter().map(|(clients, _)| *clients))
    }

    /// The address of a member for clients.
    pub fn address(&self, member: usize) -> SocketAddr {
        self.addresses[member].0
    }

    /// Relays before each member, for a client that is to lose etcd alone.
    ///
    /// # Panics
    /// If no socket can be bound.
    pub async fn relays(&self) -> Vec<TcpRelay> {
        let mut relays = Vec::new();
        for member in 0..MEMBERS {
            relays.push(TcpRelay::start(self.address(member)).await.expect("a relay"));
        }
        relays
    }

    /// A client with a certificate that reaches the members through these addresses.
    ///
    /// # Panics
    /// Never, because the certificates and addresses are valid.
    pub fn client_through(&self, addresses: impl Iterator<Item = SocketAddr>, scope: &Scope) -> Client {
        self.client_at(endpoints(addresses), Some(&self.identity), scope)
    }

    /// A client with a certificate, whose connections belong to `scope`.
    ///
    /// # Panics
    /// Never, because the certificates are valid.
    pub fn client(&self, scope: &Scope) -> Client {
        self.client_of(Some(&self.identity), scope)
    }

    /// The same without a certificate, which etcd refuses.
    ///
    /// # Panics
    /// Never, because the certificates are valid.
    pub fn client_without_certificate(&self, scope: &Scope) -> Client {
        self.client_of(None, scope)
    }

    fn client_of(&self, identity: Option<&Issued>, scope: &Scope) -> Client {
        self.client_at(self.endpoints(), identity, scope)
    }

    fn client_at(&self, endpoints: Vec<Endpoint>, identity: Option<&Issued>, scope: &Scope) -> Client {
        let mut tls = config(self.authority.certificate_pem(), identity).expect("certificates");
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let (_, tls) = watch::channel(Arc::new(tls));
        Client::new(endpoints, Some(tls), scope.clone())
    }

    /// Lets etcd forget all revisions before this one, by its API in JSON.
    ///
    /// # Panics
    /// If etcd refuses.
    pub async fn compact(&self, revision: i64) {
        let body = json!({ "revision": revision.to_string(), "physical": true });
        self.post(0, "kv/compaction", &body).await;
    }

    /// The member that leads now, of those that run.
    ///
    /// # Panics
    /// If no member that runs is the leader.
    pub async fn leader(&self) -> usize {
        for member in (0..MEMBERS).filter(|member| self.members[*member].is_some()) {
            let status = self.post(member, "maintenance/status", &json!({})).await;
            if status["leader"] == status["header"]["member_id"] {
                return member;
            }
        }
        panic!("no member of etcd leads");
    }

    /// Returns true if every member answers and knows a leader.
    pub async fn is_whole(&self) -> bool {
        let client = self.client(&Scope::here());
        for endpoint in self.endpoints() {
            if !client.status(&endpoint).await.is_ok_and(|status| status.has_leader) {
                return false;
            }
        }
        true
    }

    /// Calls a method of a member by etcd's API in JSON, and returns the answer.
    async fn post(&self, member: usize, method: &str, body: &Value) -> Value {
        let (address, ca, body) = (self.address(member), self.authority.certificate_pem(), body.to_string());
        let mut stream = dial(address, ca, &["http/1.1"], Some(&self.identity)).await.expect("etcd");
        let request = format!(
            "POST /v3/{method} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.expect("it is sent");
        let mut answer = String::new();
        timeout(SOON, stream.read_to_string(&mut answer)).await.expect("in time").expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).expect("JSON")
    }
}

/// The endpoints with these addresses.
fn endpoints(addresses: impl Iterator<Item = SocketAddr>) -> Vec<Endpoint> {
    addresses.map(|address| format!("https://{address}").parse().expect("an endpoint")).collect()
}
