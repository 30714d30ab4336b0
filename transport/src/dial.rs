//! The dialing side of a new connection: dial, handshake, greeting.

mod error;
mod greet;
mod peer;
mod proxies;
mod proxy;
mod quic;
mod tcp;
mod tls;

pub use self::error::DialError;
pub use self::greet::{Dialed, Opening};
pub use self::peer::PeerOpening;
pub use self::proxies::{Proxies, ProxiesError};
pub use self::proxy::{NotAProxy, Proxy, ProxyError};
pub use self::tcp::{DialPath, dial_tcp};
pub use self::tls::DialTls;
