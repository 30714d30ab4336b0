//! The gateway: serves the requests of callers, and of API servers' egress, by forwarding them to clusters.
//!
//! A connection (`connection`) passes its requests through the layers of `stack` to `request`, where
//! each step takes the proof of the one before. The module `forwarding` opens the stream to the cluster.

mod audit;
mod audit_id;
mod body;
mod body_error;
mod cluster_sets;
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
mod guarded_body;
mod layer;
mod linger;
mod login_throttle;
mod low_priority;
mod malformed;
mod peer;
mod refusal;
mod request;
mod stack;
mod state;
mod summaries;
mod summary_error;
mod upgrade_pipe;
mod watch;

pub use cluster_sets::ClusterSetError;
pub use connect_target::ConnectRequestError;
pub use cross_origin::check::CrossOriginError;
pub use entry_point::{EntryPoint, EntryPointSlots};
pub use peer::Peer;
pub use refusal::{MalformedRequest, Refusal};
pub use state::{AccessControl, Gateway, GatewaySettings};
pub use summary_error::SummaryError;
