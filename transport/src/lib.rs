//! Tunnels over QUIC or HTTP/2: dialing and accepting, greeting, streams, liveness, and exact reasons for
//! every end.
//!
//! The only crate that speaks QUIC, and HTTP/2 as the second carrier. Its types (`Tunnel`, `TunnelStream`,
//! `Driver`) hide the carrier. It starts no task by itself: the carriers' own drivers go to the [`Spawn`]
//! that the caller passes in, everything else is a future for its caller to own.

mod accept;
mod alert;
mod carrier;
mod cid;
mod congestion;
mod control;
mod dial;
mod endpoint;
mod error;
mod keys;
mod link_stats;
mod min_rtt;
mod path_mtu;
mod peer_queue;
mod priority;
mod probe;
mod rebind;
mod runtime;
mod settings;
mod socket;
mod stream;
mod task_budget;
pub mod tls;
mod tunnel;
mod tunnel_state;
mod unprocessed;

pub use accept::{AcceptedConnection, GreetError, Incoming};
pub use carrier::Carrier;
pub use congestion::LossTolerantFactory;
pub use control::{Driver, TunnelEvent};
pub use dial::{
    DialError, DialPath, DialTls, Dialed, NotAProxy, Opening, PeerOpening, Proxies, ProxiesError, Proxy,
    ProxyError, dial_tcp,
};
pub use endpoint::{Endpoint, EndpointError, ServerNumber};
pub use error::{Aborted, TunnelEnded, abort_code};
pub use keys::{EndpointKeys, NotKeys};
pub use link_stats::LinkStats;
pub use peer_queue::{PEER_QUEUE_BYTES_MAX, TellError};
pub use runtime::Spawn;
pub use settings::{HANDSHAKE_MAX, STREAM_WINDOW_BYTES, STREAMS_MAX};
pub use socket::Buffers;
pub use stream::{AbortCodes, OpenFrameError, TunnelStream};
pub use tunnel::{OpenError, Tunnel};
pub use unprocessed::{Unprocessed, unprocessed};
