//! An agent's connection by quinn whose packets carry other frames than quinn wrote.
//!
//! The payload is replaced at the moment when quinn seals a packet, so headers, packet numbers and keys are
//! right, and the peer acknowledges the packets. Meanwhile none of quinn's own frames is sent,
//! acknowledgements included.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::crypto::{
    ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, Session,
};
use quinn::{ConnectError, ConnectionId, Side};
use quinn_proto::TransportError;
use quinn_proto::transport_parameters::TransportParameters;

/// A packet number space (RFC 9000, section 12.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// Packets of the handshake, behind the first.
    Handshake,
    /// The space of all packets after the handshake.
    Data,
}

/// The frames that replace quinn's. Clones share their state.
#[derive(Clone, Default)]
pub struct Forgery(Arc<ForgeryState>);

#[derive(Default)]
struct ForgeryState {
    make: Mutex<Option<(Space, FrameMaker)>>,
    packets: AtomicU64,
}

/// Frames for a packet with room for so many bytes; what is left of it becomes PADDING.
type FrameMaker = Box<dyn FnMut(usize) -> Vec<u8> + Send>;

/// A TLS session by rustls whose packet keys forge.
struct Forging {
    tls: Arc<QuicClientConfig>,
    forgery: Forgery,
}

struct ForgingSession {
    tls: Box<dyn Session>,
    forgery: Forgery,
    /// The space of the keys that come next.
    next: Space,
}

struct ForgingKey {
    key: Box<dyn PacketKey>,
    space: Space,
    forgery: Forgery,
}

impl Forgery {
    /// The configuration of a client whose packets are forged from the moment that the forgery begins.
    pub fn client_config(&self, tls: QuicClientConfig) -> quinn::ClientConfig {
        let mut config =
            quinn::ClientConfig::new(Arc::new(Forging { tls: Arc::new(tls), forgery: self.clone() }));
        let mut transport = quinn::TransportConfig::default();
        // Each packet has all the room that there is.
        transport.pad_to_mtu(true);
        config.transport_config(Arc::new(transport));
        config
    }

    /// From now on each packet of a space carries the frames that `make` returns for its room.
    pub fn begin(&self, space: Space, make: impl FnMut(usize) -> Vec<u8> + Send + 'static) {
        *self.0.make.lock().unwrap_or_else(PoisonError::into_inner) = Some((space, Box::new(make)));
    }

    /// From now on packets carry quinn's own frames.
    pub fn end(&self) {
        *self.0.make.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Number of packets that were forged.
    pub fn packets(&self) -> u64 {
        self.0.packets.load(Ordering::Relaxed)
    }

    fn forge(&self, space: Space, payload: &mut [u8]) {
        let mut make = self.0.make.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, make)) = make.as_mut().filter(|(of, _)| *of == space) else { return };
        let frames = make(payload.len());
        let (written, padding) = payload.split_at_mut(frames.len());
        written.copy_from_slice(&frames);
        padding.fill(0);
        self.0.packets.fetch_add(1, Ordering::Relaxed);
    }
}

impl ClientConfig for Forging {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let tls = Arc::clone(&self.tls).start_session(version, server_name, params)?;
        Ok(Box::new(ForgingSession { tls, forgery: self.forgery.clone(), next: Space::Handshake }))
    }
}

impl ForgingSession {
    fn forging(&self, key: Box<dyn PacketKey>, space: Space) -> Box<dyn PacketKey> {
        Box::new(ForgingKey { key, space, forgery: self.forgery.clone() })
    }
}

impl Session for ForgingSession {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.tls.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.tls.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.tls.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.tls.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.tls.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.tls.read_handshake(buf)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.tls.transport_parameters()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let Keys { header, packet } = self.tls.write_handshake(buf)?;
        let local = self.forging(packet.local, self.next);
        self.next = Space::Data;
        Some(Keys { header, packet: KeyPair { local, remote: packet.remote } })
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let KeyPair { local, remote } = self.tls.next_1rtt_keys()?;
        Some(KeyPair { local: self.forging(local, Space::Data), remote })
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.tls.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.tls.export_keying_material(output, label, context)
    }
}

impl PacketKey for ForgingKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        let end = buf.len() - self.key.tag_len();
        self.forgery.forge(self.space, &mut buf[header_len..end]);
        self.key.encrypt(packet, buf, header_len);
    }

    fn decrypt(&self, packet: u64, header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        self.key.decrypt(packet, header, payload)
    }

    fn tag_len(&self) -> usize {
        self.key.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key.integrity_limit()
    }
}
