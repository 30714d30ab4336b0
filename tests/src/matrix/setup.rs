//! The setup of a cell's trial: a server in the cloud, a site behind a masquerading node and an impaired
//! link, agents, and a fake API server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::code::Request;
use super::fault::{ApiFault, Family, Injection, Row, Victim};
use super::gateway::GatewayClient;
use super::inject::Clocks;
use super::namespace::in_namespace;
use super::servers::SharedServers;
use crate::check::stream::Generator;
use crate::fake_api::{Answer, Behaviour, Cut, Declared, FakeApi, FakeApiOptions, HttpVersion, Store};
use crate::lab::{Lab, SERVER, SERVER_V6, Site, Uplink};
use crate::rig::{AGENT_TOKEN, Agent, ApiServer, Peer, Rig, ServerPlacement, TOKEN, ask};

/// The name of the cluster under test.
pub const CLUSTER: &str = "edge-a";
/// The collection that is watched and written to.
pub const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";
/// Bytes of a small read.
const GET_BYTES: usize = 64 * 1024;
/// Bytes of a read that comes byte by byte.
const TRICKLE_BYTES: usize = 4;
/// The pause before each byte of a slow answer.
const TRICKLE_PAUSE: Duration = Duration::from_secs(1);
/// Pause between two looks at the server's list.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The address from which the agent appears once its NAT is another (RFC 5737: for documentation).
pub const OTHER_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
/// The cloud's end of the link to the first site.
const FIRST_LINK: &str = "site-0";
/// The name by which an agent finds a server that has two addresses.
const GATEWAY: &str = "gateway.test";
/// The limit for a second server to get its tunnel.
const LISTED_MAX: Duration = Duration::from_secs(60);

/// The setup of one cell. It is removed when this is dropped.
#[derive(Debug)]
#[must_use = "all of it ends when this is dropped"]
pub struct MatrixSetup {
    /// The server and its files.
    pub rig: Rig,
    /// The site of the cluster.
    pub site: Site,
    /// The API server; absent only while it is moved.
    pub fake: Option<FakeApi>,
    /// The agents; one that has ended may be absent.
    pub agents: Vec<Option<Agent>>,
    /// The objects that are watched.
    pub store: Store,
    /// The second server, if there are two.
    pub peer: Option<Peer>,
    /// The servers that share their records with the first one, if the row is about them.
    pub shared: Option<SharedServers>,
    /// The daemons' wall clocks, where they are not the machine's.
    pub clocks: Option<Clocks>,
    /// The agent's `servers` and their resolution, where that is not one address.
    servers: Option<Servers>,
}

/// The servers of an agent, and how it resolves them.
#[derive(Debug)]
struct Servers {
    names: String,
    hosts: Option<PathBuf>,
}

impl MatrixSetup {
    /// Builds it for a row.
    pub async fn build(lab: &Lab, row: &Row, seed: u64) -> Self {
        let clocks = match row.injection {
            Injection::Clock { .. } => Some(Clocks::build(lab.path()).await),
            _ => None,
        };
        let variables = clocks.as_ref().map(Clocks::variables).unwrap_or_default();
        let placement = ServerPlacement { is_dual: row.family.is_some(), variables, ..lab.placement() };
        let mut rig = Rig::start_at(placement, "debug", "").await;
        let shared = match row.injection {
            Injection::Servers(fault) => Some(SharedServers::start(lab, &mut rig, fault).await),
            _ => None,
        };
        let words = match row.injection {
            Injection::LinkFromStart(words) => words,
            _ => row.link,
        };
        let seed = seed.to_string();
        let uplink = Uplink::simulated(words).with(&["--nat", "--seed", &seed]);
        let site = lab.site(CLUSTER, uplink).await;
        let route = format!("route add {OTHER_ADDRESS}/32 dev {FIRST_LINK}");
        lab.cloud().ip(&route).await.expect("a route can be added");
        let fake = site.fake_api(row.api()).await;
        let store = Store::new();
        let peer = if row.has_two_servers() { Some(rig.peer_everywhere("other", "").await) } else { None };
        let servers = peer.as_ref().map(|peer| Servers {
            names: format!("servers: [\"{}\", \"{SERVER}:{}\"]\n", rig.dialed(), peer.gateway.port()),
            hosts: None,
        });
        let servers =
            servers.or(shared.as_ref().map(|shared| Servers { names: shared.names(), hosts: None }));
        let (fake, agents) = (Some(fake), Vec::new());
        let mut setup = Self { rig, site, fake, agents, store, peer, shared, clocks, servers };
        if let Some(family) = row.family {
            setup.go_by(lab, family).await;
        }
        for number in 0..row.agents() {
            let agent = setup.start_agent(number).await;
            setup.agents.push(Some(agent));
        }
        setup.rig.listed(CLUSTER, |item| item.matches("\"agent\":").count() >= row.agents()).await;
        if row.family.is_some() {
            // It has dialed both addresses now, and keeps the one that answered first.
            setup.rule("flush ruleset inet").await;
            setup.rig.logged("edge-a.log", 0, "reached by another address already").await;
        }
        if let Some(peer) = &setup.peer {
            setup.listed_at(peer.gateway).await;
        }
        setup
    }

    /// Both families lead to the server, and the agent's first tunnel goes by this one: what the other one
    /// carries is dropped until it is there.
    async fn go_by(&mut self, lab: &Lab, family: Family) {
        lab.speak_v6(&self.site).await;
        let name = format!("{GATEWAY}:{}", self.rig.gateway().port());
        let hosts = self.rig.write("hosts", &format!("{SERVER_V6} {GATEWAY}\n{SERVER} {GATEWAY}\n"));
        self.servers = Some(Servers { names: format!("servers: [\"{name}\"]\n"), hosts: Some(hosts) });
        let other = match family {
            Family::V4 => "ipv6",
            Family::V6 => "ipv4",
        };
        self.rule(&format!(
            "add table inet first; add chain inet first way {{ type filter hook forward priority 0; }}; \
             add rule inet first way meta nfproto {other} drop"
        ))
        .await;
    }

    /// Waits until a server knows of a live tunnel.
    async fn listed_at(&self, gateway: SocketAddr) {
        let deadline = Instant::now() + LISTED_MAX;
        while !self.rig.ask_at(gateway, "/clusters").await.body.contains("\"Live\"") {
            assert!(Instant::now() < deadline, "the second server never had a tunnel");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Runs a script of nft on the node.
    async fn rule(&self, script: &str) {
        let script = format!("nft '{script}'");
        in_namespace(self.site.node().path(), &script).await.unwrap_or_else(|error| panic!("{error}"));
    }

    /// A client of the gateway.
    pub fn gateway(&self) -> GatewayClient {
        let next = self.peer.as_ref().map(|peer| peer.gateway);
        GatewayClient::of(&self.rig).or(next.or(self.shared.as_ref().map(SharedServers::next_gateway)))
    }

    /// The fake API server of the cluster.
    ///
    /// # Panics
    /// While it is moved to another address.
    pub fn fake(&self) -> &FakeApi {
        self.fake.as_ref().expect("it is there but while it is moved")
    }

    /// Starts an agent; the first has the cluster's name, the others have IDs of their own.
    pub async fn start_agent(&self, number: usize) -> Agent {
        let kubeconfig = self.rig.path().join("matrix.kubeconfig");
        self.fake().write_kubeconfig(&kubeconfig, AGENT_TOKEN).expect("a file can be written");
        let api = ApiServer::Kubeconfig(kubeconfig);
        let (site, rig) = (&self.site, &self.rig);
        if number == 0 {
            return match &self.servers {
                None => site.agent_of(rig, CLUSTER, &api, "").await,
                Some(Servers { names, hosts: None }) => site.agent_of(rig, CLUSTER, &api, names).await,
                Some(Servers { names, hosts: Some(hosts) }) => {
                    site.agent_with_hosts(rig, hosts.clone(), CLUSTER, &api, names).await
                }
            };
        }
        self.site.agent_of_id(&self.rig, CLUSTER, &format!("agent-{number}"), &api, "").await
    }

    /// The beginning of a request's path at the API server. Each has its own, so that the records distinguish
    /// them.
    pub fn path(request: Request, mark: &str) -> String {
        match request {
            Request::Get => "/api/v1/namespaces/default/secrets/small".to_owned(),
            Request::Download => "/api/v1/namespaces/default/pods/large/log".to_owned(),
            Request::Exec => {
                "/api/v1/namespaces/default/pods/shell/exec?command=cat&stdin=true&stdout=true".to_owned()
            }
            Request::Watch => COLLECTION.to_owned(),
            Request::Apply => format!("{COLLECTION}/{mark}"),
        }
    }

    /// Number of bytes in a read's answer.
    pub fn bytes(row: &Row, request: Request) -> usize {
        match (request, row.injection) {
            (Request::Download, _) => row.download_bytes,
            (_, Injection::Api(ApiFault::Trickles)) => TRICKLE_BYTES,
            _ => GET_BYTES,
        }
    }

    /// Sets the API server's answers, which are right unless they are the fault. Returns its own answer if
    /// that is no success.
    pub fn set_answers(&self, row: &Row, mark: &str, seed: u64) -> Option<(u16, String)> {
        let fake = self.fake();
        for request in Request::ALL {
            let path = Self::path(request, mark);
            let path = path.split('?').next().unwrap_or_default();
            let well = match request {
                Request::Get | Request::Download => {
                    let body = Generator::new(seed).take(Self::bytes(row, request)).into();
                    let headers = vec![("Content-Type".to_owned(), "application/octet-stream".to_owned())];
                    Behaviour::Answer(Answer { status: 200, headers, body })
                }
                Request::Exec => Behaviour::upgrade(),
                Request::Watch | Request::Apply => Behaviour::Store(self.store.clone()),
            };
            fake.on(path, if request == Request::Watch { well } else { ill(row, request, well) });
        }
        match row.injection {
            Injection::Api(ApiFault::Says(status)) => Some((status, status_body(status))),
            _ => None,
        }
    }

    /// The IDs of the processes that a row affects.
    pub fn victims(&mut self, victim: Victim) -> Vec<u32> {
        let agent = self.agents.first().and_then(Option::as_ref).and_then(|agent| agent.process.id());
        let server = match victim {
            Victim::Server | Victim::ServerOfTwo | Victim::Both => self.rig.server().id(),
            Victim::Agent | Victim::OneAgentOf(_) => None,
        };
        let agent = agent.filter(|_| !matches!(victim, Victim::Server | Victim::ServerOfTwo));
        agent.into_iter().chain(server).collect()
    }

    /// The gateway's address and CA, to ask the server for the cluster's health.
    pub fn server_endpoint(&self) -> (SocketAddr, String) {
        (self.rig.gateway(), self.rig.server_ca())
    }

    /// Waits until the server reports the cluster as anything but live and well, and returns the time of
    /// that.
    pub async fn noticed((gateway, ca_pem): (SocketAddr, String)) -> Instant {
        let authorization = format!("Bearer {TOKEN}");
        let headers = [("Authorization", authorization.as_str())];
        loop {
            let message = ask(gateway, &ca_pem, None, "GET", "/clusters", &headers).await;
            let is_well = message
                .is_ok_and(|reply| reply.body.contains("\"Live\"") && !reply.body.contains("\"Suspect\""));
            if !is_well {
                return Instant::now();
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

impl Row {
    /// The API server's options: HTTP/1.1 alone where the end of an answer must not affect another one.
    fn api(&self) -> FakeApiOptions {
        match self.injection {
            Injection::Api(
                ApiFault::ClosesAfterTheLastByte
                | ApiFault::ShortOfLength
                | ApiFault::ShortOfChunks
                | ApiFault::BadChunk
                | ApiFault::Wrong101,
            ) => FakeApiOptions { versions: vec![HttpVersion::Http1], ..FakeApiOptions::default() },
            _ => FakeApiOptions::default(),
        }
    }

    /// Returns true if there is a second server.
    fn has_two_servers(&self) -> bool {
        matches!(self.injection, Injection::Process(Victim::ServerOfTwo, _))
    }

    /// Number of agents that the cluster has.
    pub fn agents(&self) -> usize {
        match self.injection {
            Injection::Process(Victim::OneAgentOf(count), _) => count,
            _ => 1,
        }
    }
}

/// An answer with the fault in it, where the fault is of answers.
fn ill(row: &Row, request: Request, well: Behaviour) -> Behaviour {
    let Injection::Api(fault) = row.injection else { return well };
    let body = match &well {
        Behaviour::Answer(answer) => answer.body.clone(),
        _ => "{}".into(),
    };
    let half = body.slice(..body.len() / 2);
    match (fault, &well) {
        (ApiFault::ShortOfLength, _) => Behaviour::Truncate {
            declared: Declared::ContentLength(body.len() as u64),
            sent: half,
            cut: Cut::Close,
        },
        (ApiFault::ShortOfChunks, _) => {
            Behaviour::Truncate { declared: Declared::Chunked, sent: half, cut: Cut::Close }
        }
        (ApiFault::BadChunk, _) => {
            let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n".to_vec();
            bytes.extend_from_slice(&body[..body.len().min(8)]);
            bytes.extend_from_slice(b"\r\nnot a size\r\n");
            Behaviour::raw(bytes, Cut::Close)
        }
        (ApiFault::ClosesAfterTheLastByte, Behaviour::Answer(answer)) => {
            Behaviour::Last { answer: answer.clone(), cut: Cut::Close }
        }
        (ApiFault::Trickles, Behaviour::Answer(answer)) if request == Request::Get => {
            Behaviour::Slow { answer: answer.clone(), piece_bytes: 1, pause: TRICKLE_PAUSE }
        }
        (ApiFault::Says(status), _) => {
            let headers = vec![
                ("Content-Type".to_owned(), "application/json".to_owned()),
                ("Retry-After".to_owned(), "7".to_owned()),
            ];
            Behaviour::Answer(Answer { status, headers, body: status_body(status).into() })
        }
        (ApiFault::Redirects, _) => Behaviour::redirect(302, "https://elsewhere.example/"),
        (ApiFault::Wrong101, _) => Behaviour::wrong_101_protocol(),
        _ => well,
    }
}

fn status_body(status: u16) -> String {
    format!(r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"AsTold","code":{status}}}"#)
}
