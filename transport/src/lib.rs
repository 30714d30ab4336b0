//! A carrier as a tunnel: dial, greet, open streams, notice death, tell the truth about how a stream ended.
//!
//! The only crate that speaks QUIC, and HTTP/2 as the second carrier. What it shows (`Tunnel`, `TunnelStream`, `Driver`) names
//! no carrier. It starts no task by itself: the carriers' own drivers go to the [`Spawn`] that the caller hands in, everything
//! else is a future for its caller to own.

mod alert;
mod arrive;
mod carrier;
mod cid;
mod congestion;
mod control;
mod counted;
mod dial;
mod distance;
mod endpoint;
mod error;
mod keys;
mod link;
mod path;
mod precedence;
mod probe;
mod rebind;
mod runtime;
mod settings;
mod socket;
mod stream;
pub mod tls;
mod tunnel;

pub use arrive::{Arrived, Arriving, GreetError};
pub use carrier::Carrier;
pub use congestion::LossTolerantFactory;
pub use control::{Driver, TunnelEvent};
pub use dial::{DialError, DialTls, Dialed, NotAProxy, Proxy, ProxyError, Way, dial_tcp};
pub use endpoint::{Endpoint, EndpointError, ServerNumber};
pub use error::{Aborted, TunnelEnded, abort_code};
pub use keys::{EndpointKeys, NotKeys};
pub use link::Link;
pub use runtime::Spawn;
pub use settings::{HANDSHAKE_MAX, STREAM_WINDOW_BYTES, STREAMS_MAX};
pub use socket::Buffers;
pub use stream::{OpenFrameError, TunnelStream, Verdict};
pub use tunnel::{OpenError, Tunnel};
