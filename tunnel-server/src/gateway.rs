//! The gateway: serves the requests of callers, and of API servers' egress, by forwarding them to clusters.
//!
//! A connection (`connection`) passes its requests through the layers of `stack` to `request`, where
//! each step takes the proof of the one before. `forward` opens the stream to the cluster.

mod audit;
mod audit_id;
mod body;
mod clusters;
mod complete_body;
mod connect;
mod connect_target;
mod connection;
mod connection_end;
mod cross_origin;
mod disconnect;
mod entry_point;
mod event_delay;
mod forward;
mod guarded_body;
mod head_timeout;
mod informational;
mod kept_body;
mod layer;
mod linger;
mod location;
mod login_throttle;
mod low_priority;
mod malformed;
mod park_timeout;
mod peer;
mod refusal;
mod request;
mod request_body;
mod response_head;
mod retry;
mod send_again;
mod stack;
mod state;
mod tunnel_body;
mod upgrade_pipe;
mod watch;

pub use connect_target::ConnectRequestError;
pub use cross_origin::check::CrossOriginError;
pub use entry_point::{EntryPoint, EntryPointSlots};
pub use head_timeout::CALLER_SILENCE_MAX;
pub use park_timeout::NotAParkLimit;
pub use peer::Peer;
pub use refusal::{MalformedRequest, Refusal};
pub use state::{AccessControl, Gateway, GatewaySettings};
