//! Every parameter of QUIC, in one place, each with its reason. Nothing is left to a default that may change.

use std::sync::Arc;
use std::time::Duration;

use proto::session::SILENCE_MOST;
use quinn::{EndpointConfig, IdleTimeout, MtuDiscoveryConfig, ServerConfig, TransportConfig, VarInt};

use crate::cid::Generator;
use crate::congestion::LossTolerantFactory;
use crate::keys::EndpointKeys;
use crate::path_mtu::{FULL_SIZE_BYTES, PACKET_BYTES_DEFAULT};
use crate::probe::Probe;

/// A handshake takes no longer than this: Initials go out after 0, 1, 3 and 7 s, so an attempt that began
/// while the server was away is answered within 4 s of its return.
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(8);

/// Most streams that a server may have open on one tunnel.
pub const STREAMS_MAX: u32 = 4096;

/// Streams that an agent grants at first. It doubles the grant whenever half of it is open, up to
/// [`STREAMS_MAX`], because every slot costs memory in the long run: quinn parks the buffers of a stream that
/// has ended (57 KiB after a large upload) in the slot of one to come, so that an agent which grants 4,096 at
/// once ends up with 4,096 of them.
pub(crate) const STREAMS_INITIAL: u32 = 128;

/// Streams that an agent may open: the control stream, and a spare. Each costs the server memory for every
/// agent.
const AGENT_STREAMS_MAX: u32 = 2;

/// Most bytes that one stream has in flight towards a reader who does not read. Larger windows with 10 % loss
/// can make more gaps than quinn tolerates on a stream, which would cost the whole connection.
pub const STREAM_WINDOW_BYTES: u32 = 1_250_000;

/// Most bytes that all streams of a tunnel have in flight towards this side. It never binds before the
/// streams' own windows, because it is shared, and thirteen callers who stop reading would otherwise stop the
/// tunnel.
const CONNECTION_WINDOW_BYTES: u64 = STREAMS_MAX as u64 * STREAM_WINDOW_BYTES as u64;

/// Most bytes that this side keeps unacknowledged for all streams of a tunnel. At 100 Mbit/s it fills a round
/// trip of 1.3 s.
pub(crate) const SEND_WINDOW_BYTES: u64 = 16 * 1024 * 1024;

/// Further bytes that it keeps of light streams. Bulk alone may fill the window, and a keystroke must not
/// wait until the path has carried some of it.
pub(crate) const SEND_RESERVE_BYTES: u64 = 1024 * 1024;

/// QUIC's idle timeout exceeds the tunnel's limit for silence by this much. Heartbeats decide about liveness;
/// QUIC only ends connections that they did not end.
pub(crate) const IDLE_BEYOND_SILENCE: Duration = Duration::from_secs(60);

/// Backstop for the heartbeats, below the 30 s after which common NATs forget a UDP mapping.
pub(crate) const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(10);

/// Most handshakes of unauthenticated peers at once, and most bytes that each, and all of them, may send
/// before they are accepted.
const INCOMING_MAX: usize = 1024;
const INCOMING_BYTES_MAX: u64 = 64 * 1024;
const INCOMING_BYTES_TOTAL_MAX: u64 = 16 * 1024 * 1024;

/// Least time between two stateless resets. A thousand agents that lost their server all get one within a
/// second; at quinn's 20 ms it would be fifty.
const RESET_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// The side of a tunnel that an endpoint is. Between servers the one that dials is the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Agent,
}

/// Buffer for heartbeats that wait to be sent or read: a few, of which the oldest are dropped. quinn counts
/// about 32 bytes for each beside its content. Three of them may be full-size probes.
const DATAGRAM_BYTES_MAX: usize = 4096;
const _: () = assert!(DATAGRAM_BYTES_MAX > 3 * FULL_SIZE_BYTES);

/// The parameters of a tunnel's connection: its driver's probe, its limit for silence, and the packet size
/// for which its path is probed ([`packet_bytes`](crate::path_mtu::packet_bytes)).
pub(crate) fn connection(
    side: Side,
    probe: &Probe,
    silence_max: Duration,
    packet_bytes: u16,
) -> TransportConfig {
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(packet_bytes);
    let peer_streams = match side {
        Side::Server => AGENT_STREAMS_MAX,
        Side::Agent => STREAMS_INITIAL,
    };
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(peer_streams))
        // We use no unidirectional streams.
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW_BYTES))
        .receive_window(VarInt::from_u64(CONNECTION_WINDOW_BYTES).unwrap_or(VarInt::MAX))
        .send_window(SEND_WINDOW_BYTES)
        // Streams of one priority (`priority::Priority`) take turns, so that none waits for another's bulk.
        .send_fairness(true)
        .max_idle_timeout(IdleTimeout::try_from(silence_max + IDLE_BEYOND_SILENCE).ok())
        .keep_alive_interval(Some(KEEP_ALIVE_EVERY))
        // RFC 9002, section 6.2.2: what is assumed before the first sample; `HANDSHAKE_MAX` is derived from
        // it.
        .initial_rtt(Duration::from_millis(333))
        // RFC 9002, sections 6.1.1, 6.1.2 and 7.6.1.
        .packet_threshold(3)
        .time_threshold(9.0 / 8.0)
        .persistent_congestion_threshold(3)
        // Starts with the size that every path carries (RFC 9000, section 14), then probes for this path's;
        // falls back after a black hole.
        .initial_mtu(1200)
        .min_mtu(1200)
        .mtu_discovery_config(Some(discovery))
        .pad_to_mtu(false)
        .ack_frequency_config(None)
        .crypto_buffer_size(16 * 1024)
        // Lets network operators measure round trips, and nothing else.
        .allow_spin(true)
        // Heartbeats and nothing else.
        .datagram_receive_buffer_size(Some(DATAGRAM_BYTES_MAX))
        .datagram_send_buffer_size(DATAGRAM_BYTES_MAX)
        // CUBIC takes each lost packet for congestion and at 1 % loss keeps 4 % of a 100 Mbit/s link.
        .congestion_controller_factory(Arc::new(probe.factory(Arc::new(LossTolerantFactory))))
        // Sends batches of packets in one system call; quinn falls back where the path refuses.
        .enable_segmentation_offload(true);
    config
}

/// The parameters of an endpoint, with the keys that it keeps over a restart. No peer probes for larger
/// packets than `packet_bytes`.
pub(crate) fn endpoint(keys: &EndpointKeys, server_number: u16, packet_bytes: u16) -> EndpointConfig {
    let mut config = EndpointConfig::new(Arc::new(keys.reset_key()));
    let cid_key = keys.connection_id_key();
    config
        .cid_generator(move || Box::new(Generator::new(cid_key.clone(), server_number)))
        .min_reset_interval(RESET_INTERVAL_MIN)
        .supported_versions(vec![1])
        // Keeps middleboxes from relying on a fixed bit (RFC 9287).
        .grease_quic_bit(true);
    // quinn refuses less than 1,200 bytes and more than 65,527, which `path_mtu` never returns.
    let _ = config.max_udp_payload_size(packet_bytes);
    config
}

/// The parameters of the server's side of every tunnel.
pub(crate) fn server(crypto: Arc<dyn quinn::crypto::ServerConfig>, keys: &EndpointKeys) -> ServerConfig {
    let mut config = ServerConfig::new(crypto, Arc::new(keys.token_key()));
    config
        // Each connection has its own: see `Incoming`.
        .transport_config(Arc::new(connection(
            Side::Server,
            &Probe::new(),
            SILENCE_MOST,
            PACKET_BYTES_DEFAULT,
        )))
        // An agent's address changes with its uplink and its NAT.
        .migration(true)
        .max_incoming(INCOMING_MAX)
        .incoming_buffer_size(INCOMING_BYTES_MAX)
        .incoming_buffer_size_total(INCOMING_BYTES_TOTAL_MAX)
        // RFC 9000, section 8.1.3: long enough for a slow link, too short to collect tokens.
        .retry_token_lifetime(Duration::from_secs(15));
    config
}
