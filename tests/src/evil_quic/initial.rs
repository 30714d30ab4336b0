//! First packets of a client, written and sealed by hand (RFC 9000, section 17.2.2; RFC 9001, section 5.2).

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::quic::{ClientConnection, Keys, Suite, Version};
use rustls::{ClientConfig, RootCertStore, Side, version::TLS13};

use super::frames::{crypto, varint};

/// The minimum size of a client's first datagram, in bytes.
pub const DATAGRAM_BYTES: usize = 1200;

const NUMBER_BYTES: usize = 4;

/// A client's first packet, before it is sealed.
#[derive(Debug, Clone)]
pub struct Initial<'a> {
    /// The name that the client gives the server, of which the keys are made.
    pub keyed_by: &'a [u8],
    /// The connection ID in the packet. Only a lying packet has another one.
    pub destination: &'a [u8],
    /// The client's own connection ID.
    pub source: &'a [u8],
    /// The token of a Retry packet.
    pub token: &'a [u8],
    /// The number of the packet.
    pub number: u32,
    /// The frames of the packet. PADDING follows them.
    pub frames: &'a [u8],
}

impl<'a> Initial<'a> {
    /// With one name of each side, no token and the first number.
    pub fn new(destination: &'a [u8], source: &'a [u8], frames: &'a [u8]) -> Self {
        Self { keyed_by: destination, destination, source, token: &[], number: 0, frames }
    }

    /// The datagram, as large as a first one has to be.
    pub fn sealed(&self) -> Vec<u8> {
        self.sealed_in(DATAGRAM_BYTES)
    }

    /// The packet, filled up to so many bytes.
    ///
    /// # Panics
    /// Where the frames have no room.
    pub fn sealed_in(&self, bytes: usize) -> Vec<u8> {
        let keys = self.keys().local;
        let id = |id: &[u8]| [&[u8::try_from(id.len()).expect("a name of at most 20 bytes")], id].concat();
        let mut packet = [&[0xc3, 0, 0, 0, 1], id(self.destination).as_slice(), &id(self.source)].concat();
        packet.extend(varint(self.token.len() as u64));
        packet.extend(self.token);
        let number_at = packet.len() + 2;
        let sealed_bytes = bytes - number_at;
        // A length in two bytes, whatever it is.
        packet.extend((u16::try_from(sealed_bytes).expect("one packet") | 0x4000).to_be_bytes());
        packet.extend(self.number.to_be_bytes());
        let header_bytes = packet.len();
        let mut payload = self.frames.to_vec();
        assert!(payload.len() <= bytes - header_bytes - keys.packet.tag_len(), "the frames do not fit");
        payload.resize(bytes - header_bytes - keys.packet.tag_len(), 0);
        let tag =
            keys.packet.encrypt_in_place(self.number.into(), &packet, &mut payload).expect("it is sealed");
        packet.extend(payload);
        packet.extend(tag.as_ref());
        let (head, rest) = packet.split_at_mut(number_at);
        let (number, sample) = rest.split_at_mut(NUMBER_BYTES);
        let sample = &sample[..keys.header.sample_len()];
        keys.header.encrypt_in_place(sample, &mut head[0], number).expect("a sample");
        packet
    }

    fn keys(&self) -> Keys {
        suite().keys(self.keyed_by, Side::Client, Version::V1)
    }
}

/// The CRYPTO frame of a ClientHello for the tunnel's protocol with these transport parameters. It offers no
/// post-quantum key exchange, so that it fits into one packet.
///
/// # Panics
/// Never, if the parameters fit into a ClientHello.
pub fn client_hello(parameters: Vec<u8>) -> Vec<u8> {
    let provider =
        CryptoProvider { kx_groups: vec![aws_lc_rs::kx_group::X25519], ..aws_lc_rs::default_provider() };
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has TLS 1.3")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = vec![b"tombolo/1".to_vec()];
    let name = "127.0.0.1".try_into().expect("an address");
    let mut tls = ClientConnection::new(Arc::new(config), Version::V1, name, parameters).expect("a client");
    let mut hello = Vec::new();
    tls.write_hs(&mut hello);
    crypto(0, &hello)
}

/// Returns true if a datagram begins with a Retry.
pub fn is_retry(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & 0xf0 == 0xf0) && datagram.get(1..5) == Some(&[0, 0, 0, 1])
}

/// The server's name and the token in a Retry (RFC 9000, section 17.2.5).
pub fn of_retry(datagram: &[u8]) -> Option<(&[u8], &[u8])> {
    let after = |from: &'_ [u8]| Some(1 + usize::from(*from.first()?));
    let rest = datagram.get(5..)?;
    let rest = rest.get(after(rest)?..)?;
    let (id, rest) = rest.split_at_checked(after(rest)?)?;
    Some((&id[1..], rest.get(..rest.len().checked_sub(16)?)?))
}

/// That of all first packets (RFC 9001, section 5.2).
fn suite() -> Suite {
    let suite = aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().expect("a suite of TLS 1.3");
    suite.quic_suite().expect("a suite of QUIC")
}
