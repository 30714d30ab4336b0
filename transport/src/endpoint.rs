//! A UDP socket and the QUIC connections on it: a server's endpoint, which accepts agents or other servers, or one
//! that dials.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use proto::CloseCode;
use proto::session::{PEER_SILENCE_MAX, Protocol, SILENCE_LEAST, SILENCE_MAX, SILENCE_MOST};
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Runtime as _, TokioRuntime, VarInt};
use tokio::time::timeout;

use crate::accept::Incoming;
use crate::keys::EndpointKeys;
use crate::path_mtu::{self, PACKET_BYTES_MAX};
use crate::runtime::{OwnedRuntime, Spawn};
use crate::socket::{Buffers, SwappableSocket};
use crate::tls::{self, Material, ServerMaterial, TlsError};
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
    /// The configuration for accepted connections; none at an agent's endpoint.
    server: Option<quinn::ServerConfig>,
    silence_max: Duration,
    buffers: Buffers,
}

/// The reason why an endpoint cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The address cannot be bound.
    #[error("UDP {address} cannot be bound")]
    Bind {
        /// The address that was to be bound.
        address: SocketAddr,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[from] TlsError),
}

impl Endpoint {
    /// A server's endpoint. Agents must present a certificate of `material.peer_roots`.
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
        Self::serve_shared(address, material.try_into()?, keys, number, spawn)
    }

    /// A server's endpoint whose certificate can be replaced: each handshake shows the newest one.
    ///
    /// # Errors
    /// `EndpointError`.
    pub fn serve_shared(
        address: SocketAddr,
        material: ServerMaterial,
        keys: &EndpointKeys,
        number: ServerNumber,
        spawn: Arc<dyn Spawn>,
    ) -> Result<Self, EndpointError> {
        let crypto = tls::server(Protocol::Agent, material)?;
        Self::accepting(address, crypto, keys, number, spawn)
    }

    /// A server's endpoint for other servers, which must present a certificate of `material.client_roots`. It accepts no agent.
    /// Sessions are given up after `PEER_SILENCE_MAX`.
    ///
    /// # Errors
    /// `EndpointError`.
    pub fn serve_peers(
        address: SocketAddr,
        material: ServerMaterial,
        keys: &EndpointKeys,
        number: ServerNumber,
        spawn: Arc<dyn Spawn>,
    ) -> Result<Self, EndpointError> {
        let crypto = tls::server(Protocol::Peer, material)?;
        let endpoint = Self::accepting(address, crypto, keys, number, spawn)?;
        Ok(Self { silence_max: PEER_SILENCE_MAX, ..endpoint })
    }

    fn accepting(
        address: SocketAddr,
        crypto: rustls::ServerConfig,
        keys: &EndpointKeys,
        number: ServerNumber,
        spawn: Arc<dyn Spawn>,
    ) -> Result<Self, EndpointError> {
        let crypto = QuicServerConfig::try_from(crypto)
            .map_err(|error| TlsError::Provider(rustls::Error::General(error.to_string())))?;
        let server = settings::server(Arc::new(crypto), keys);
        Self::bind(address, Some(server), PACKET_BYTES_MAX, keys, number, spawn)
    }

    /// An agent's endpoint on a free port, for dials of `server`, or one of a server that dials another one. One for
    /// each tunnel: a change of the socket then concerns that tunnel only.
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

    /// The endpoint with another limit for the silence of agents' tunnels, from `SILENCE_LEAST` to
    /// `SILENCE_MOST`; the default is `SILENCE_MAX`. It applies to both sides, unless the agent's greeting
    /// has a shorter one.
    #[must_use]
    pub fn with_silence_max(self, silence: Duration) -> Self {
        Self { silence_max: silence.clamp(SILENCE_LEAST, SILENCE_MOST), ..self }
    }

    /// The local address that was bound.
    ///
    /// # Errors
    /// An error of the system, if it does not know the address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.quic.local_addr()
    }

    /// The buffer sizes that the kernel granted to the socket.
    #[must_use]
    pub fn buffers(&self) -> Buffers {
        self.buffers
    }

    /// The next incoming connection; `None` once the endpoint was closed. Cancel-safe.
    pub async fn accept(&self) -> Option<Incoming> {
        let incoming = self.quic.accept().await?;
        Some(Incoming::new(incoming, self.server.clone()?, self.silence_max))
    }

    /// Replaces the socket by another one on a free port of the same address. Connections stay; the peer sees
    /// the new port from the next packet on.
    pub(crate) fn rebind(&self) -> io::Result<()> {
        let (socket, _) = socket::bind(SocketAddr::new(self.address()?.ip(), 0))?;
        self.socket.swap(TokioRuntime.wrap_udp_socket(socket)?);
        Ok(())
    }

    /// Silence after which agents' tunnels are given up, unless their greeting has a shorter limit.
    #[must_use]
    pub fn silence_max(&self) -> Duration {
        self.silence_max
    }

    pub(crate) fn quic(&self) -> &quinn::Endpoint {
        &self.quic
    }

    /// Closes the endpoint and every connection on it, and waits until the peers were notified.
    pub async fn close(&self, code: CloseCode) {
        self.quic.close(VarInt::from_u32(code.number()), code.to_string().as_bytes());
        // Does not wait longer for a peer that does not answer: three probe timeouts of a slow link.
        let _ = timeout(Duration::from_secs(1), self.quic.wait_idle()).await;
    }
}
