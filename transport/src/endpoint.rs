//! One UDP socket, and the connections on it: a server's, to which agents come, or an agent's, which dials.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use proto::CloseCode;
use proto::session::{SILENCE_LEAST, SILENCE_MAX, SILENCE_MOST};
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Runtime as _, TokioRuntime, VarInt};
use tokio::time::timeout;

use crate::accept::Incoming;
use crate::keys::EndpointKeys;
use crate::path_mtu::{self, PACKET_BYTES_MAX};
use crate::runtime::{OwnedRuntime, Spawn};
use crate::socket::{Buffers, SwappableSocket};
use crate::tls::{self, Material, TlsError};
use crate::{cid, settings, socket};

const _: () = assert!(cid::CID_BYTES <= 20, "RFC 9000, section 17.2");

/// A server's number in connection IDs. Servers that share agents have different ones; an agent's is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerNumber(pub u16);

/// One UDP socket and the connections on it.
#[derive(Clone)]
pub struct Endpoint {
    quic: quinn::Endpoint,
    socket: Arc<SwappableSocket>,
    /// With what agents are accepted; none at an agent's endpoint.
    server: Option<quinn::ServerConfig>,
    silence_max: Duration,
    buffers: Buffers,
}

/// Why an endpoint cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The address cannot be bound.
    #[error("UDP {address} cannot be bound")]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[from] TlsError),
}

impl Endpoint {
    /// A server's endpoint. Agents must show a certificate of `material.peer_roots`.
    ///
    /// # Errors
    /// `EndpointError`.
    pub fn serve(
        address: SocketAddr,
        material: Material,
        keys: &EndpointKeys,
        number: ServerNumber,
        spawn: Arc<dyn Spawn>,
    ) -> Result<Self, EndpointError> {
        let crypto = QuicServerConfig::try_from(tls::server(material)?)
            .map_err(|error| TlsError::Provider(rustls::Error::General(error.to_string())))?;
        let server = settings::server(Arc::new(crypto), keys);
        Self::bind(address, Some(server), PACKET_BYTES_MAX, keys, number, spawn)
    }

    /// An agent's endpoint on a free port, for dials of `server`. One for each tunnel: a change of the socket then concerns that
    /// tunnel only.
    ///
    /// # Errors
    /// `EndpointError`.
    pub fn dialing(
        server: SocketAddr,
        keys: &EndpointKeys,
        spawn: Arc<dyn Spawn>,
    ) -> Result<Self, EndpointError> {
        let any: IpAddr = match server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let packet_bytes = path_mtu::packet_bytes(server);
        Self::bind((any, 0).into(), None, packet_bytes, keys, ServerNumber::default(), spawn)
    }

    fn bind(
        address: SocketAddr,
        server: Option<quinn::ServerConfig>,
        packet_bytes: u16,
        keys: &EndpointKeys,
        number: ServerNumber,
        spawn: Arc<dyn Spawn>,
    ) -> Result<Self, EndpointError> {
        let bind_error = |source| EndpointError::Bind { address, source };
        let (socket, buffers) = socket::bind(address).map_err(bind_error)?;
        let config = settings::endpoint(keys, number.0, packet_bytes);
        let runtime = Arc::new(OwnedRuntime(spawn));
        let socket = Arc::new(SwappableSocket::new(
            runtime.wrap_udp_socket(socket).map_err(bind_error)?,
            packet_bytes,
        ));
        let used = Arc::clone(&socket);
        let quic = quinn::Endpoint::new_with_abstract_socket(config, server.clone(), used, runtime)
            .map_err(bind_error)?;
        Ok(Self { quic, socket, server, silence_max: SILENCE_MAX, buffers })
    }

    /// The same; agents' tunnels to it are from now on held for so long without a sign of life: `SILENCE_LEAST` to
    /// `SILENCE_MOST`, and `SILENCE_MAX` where nothing is said. It counts for both sides, unless the agent's greeting bears less.
    #[must_use]
    pub fn with_silence_max(self, silence: Duration) -> Self {
        Self { silence_max: silence.clamp(SILENCE_LEAST, SILENCE_MOST), ..self }
    }

    /// The address that was bound.
    ///
    /// # Errors
    /// Where the system does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.quic.local_addr()
    }

    /// What the kernel gave the socket.
    #[must_use]
    pub fn buffers(&self) -> Buffers {
        self.buffers
    }

    /// The next agent that knocks; `None` once the endpoint was closed. Cancel-safe.
    pub async fn accept(&self) -> Option<Incoming> {
        let incoming = self.quic.accept().await?;
        Some(Incoming::new(incoming, self.server.clone()?, self.silence_max))
    }

    /// Leaves the socket for another on a free port of the same address. Connections stay; the peer sees where they are now
    /// from the next packet on.
    pub(crate) fn rebind(&self) -> io::Result<()> {
        let (socket, _) = socket::bind(SocketAddr::new(self.address()?.ip(), 0))?;
        self.socket.swap(TokioRuntime.wrap_udp_socket(socket)?);
        Ok(())
    }

    /// For how long agents' tunnels are held without a sign of life, unless their greeting bears less.
    #[must_use]
    pub fn silence_max(&self) -> Duration {
        self.silence_max
    }

    pub(crate) fn quic(&self) -> &quinn::Endpoint {
        &self.quic
    }

    /// Closes the endpoint and every connection on it, and waits until the other sides were told.
    pub async fn close(&self, code: CloseCode) {
        self.quic.close(VarInt::from_u32(code.number()), code.to_string().as_bytes());
        // A peer that does not answer must not hold this up: three probe timeouts of a slow link.
        let _ = timeout(Duration::from_secs(1), self.quic.wait_idle()).await;
    }
}
