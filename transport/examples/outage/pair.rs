//! Both ends of a tunnel over one link, ours or plain quinn's.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proto::wire::{Assert, StreamOpen};
use quinn::congestion::BbrConfig;
use rustls::RootCertStore;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;
use transport::tls::Material;
use transport::{Endpoint, Tunnel};

use crate::authority::{Authority, SERVER_NAME};
use crate::link::Link;
use crate::watch::Watch;

/// A stream with a clean end or none.
pub(crate) type Duplex = Box<dyn Stream>;

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// One server of each sort.
pub(crate) struct Servers {
    ours: Endpoint,
    stock: quinn::Endpoint,
    authority: Authority,
}

pub(crate) struct Pair {
    ends: Ends,
    server: SocketAddr,
    /// Held, because a closed endpoint closes its connections.
    _endpoint: Box<dyn Any>,
}

#[derive(Clone)]
pub(crate) enum Ends {
    Ours { server: Tunnel, agent: Tunnel },
    Stock { server: quinn::Connection, agent: quinn::Connection },
}

impl Servers {
    pub(crate) fn start() -> Self {
        let authority = Authority::new();
        let ours = authority.server();
        let Material { chain, key, .. } = authority.server_material();
        let mut config = quinn::ServerConfig::with_single_cert(chain, key).unwrap();
        config.transport_config(Arc::new(stock_parameters()));
        let stock = quinn::Endpoint::server(config, "127.0.0.1:0".parse().unwrap()).unwrap();
        Self { ours, stock, authority }
    }

    pub(crate) fn address(&self, stock: bool) -> SocketAddr {
        if stock { self.stock.local_addr().unwrap() } else { self.ours.address().unwrap() }
    }

    pub(crate) async fn ours(&self, link: &Link) -> Pair {
        let (endpoint, (server, server_driver), dialed) =
            self.authority.greeted(&self.ours, link.address(), Duration::ZERO).await;
        tokio::spawn(server_driver.run(|_| {}));
        tokio::spawn(dialed.driver.run(|_| {}));
        let ends = Ends::Ours { server, agent: dialed.tunnel };
        Pair { ends, server: self.address(false), _endpoint: Box::new(endpoint) }
    }

    pub(crate) async fn stock(&self, link: &Link) -> Pair {
        let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.server_root.clone()).unwrap();
        let mut config = quinn::ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
        config.transport_config(Arc::new(stock_parameters()));
        let connecting = endpoint.connect_with(config, link.address(), SERVER_NAME).unwrap();
        let accepting = async { self.stock.accept().await.unwrap().await.unwrap() };
        let (server, agent) = tokio::join!(accepting, connecting);
        let ends = Ends::Stock { server, agent: agent.unwrap() };
        Pair { ends, server: self.address(true), _endpoint: Box::new(endpoint) }
    }
}

impl Pair {
    /// A stream, the server's end first.
    pub(crate) async fn stream(&self) -> (Duplex, Duplex) {
        match &self.ends {
            Ends::Ours { server, agent } => {
                let alice = Assert { user: "alice".to_owned(), groups: Vec::new() };
                let open = StreamOpen::http(alice, "audit".to_owned(), true);
                let (there, here) = tokio::join!(server.open(&open), agent.accept());
                let mut here = here.unwrap();
                here.read_open().await.unwrap();
                (Box::new(there.unwrap()), Box::new(here))
            }
            Ends::Stock { server, agent } => {
                let opening = async {
                    let (mut send, recv) = server.open_bi().await.unwrap();
                    send.write_all(b"x").await.unwrap();
                    (send, recv)
                };
                let (there, here) = tokio::join!(opening, agent.accept_bi());
                let (here_send, mut here_recv) = here.unwrap();
                here_recv.read_exact(&mut [0]).await.unwrap();
                (Box::new(tokio::io::join(there.1, there.0)), Box::new(tokio::io::join(here_recv, here_send)))
            }
        }
    }

    /// Looks for packets that arrive at either end.
    pub(crate) fn watch_packets(&self, at_server: Watch, at_agent: Watch) {
        match &self.ends {
            Ends::Ours { server, agent } => {
                for (tunnel, watch) in [(server.clone(), at_server), (agent.clone(), at_agent)] {
                    look(watch, move || tunnel.link_stats().wire_bytes_received);
                }
            }
            Ends::Stock { server, agent } => {
                for (connection, watch) in [(server.clone(), at_server), (agent.clone(), at_agent)] {
                    look(watch, move || connection.stats().udp_rx.bytes);
                }
            }
        }
    }

    pub(crate) fn ends(&self) -> Ends {
        self.ends.clone()
    }

    pub(crate) fn server(&self) -> SocketAddr {
        self.server
    }

    pub(crate) fn is_stock(&self) -> bool {
        matches!(self.ends, Ends::Stock { .. })
    }
}

impl Ends {
    /// The round-trip estimates of both ends; the server's first.
    pub(crate) fn round_trips(&self) -> (Duration, Duration) {
        match self {
            Self::Ours { server, agent } => (server.round_trip(), agent.round_trip()),
            Self::Stock { server, agent } => (server.rtt(), agent.rtt()),
        }
    }
}

fn look(watch: Watch, count: impl Fn() -> u64 + Send + 'static) {
    tokio::spawn(async move {
        let mut before = count();
        loop {
            sleep(Duration::from_millis(10)).await;
            let now = count();
            if now > before {
                watch.saw(now - before);
            }
            before = now;
        }
    });
}

/// As ours, but for what is measured.
fn stock_parameters() -> quinn::TransportConfig {
    let mut config = quinn::TransportConfig::default();
    config
        .max_idle_timeout(Some(Duration::from_secs(700).try_into().unwrap()))
        .keep_alive_interval(Some(Duration::from_secs(1)))
        .congestion_controller_factory(Arc::new(BbrConfig::default()));
    config
}
