//! A client of the cluster's kube-apiserver, with the agent's own credential or with those of callers.
//!
//! The process has one [`ApiServer`] for each of the two. It has a pool of verified connections (HTTP/2 where
//! the server offers it, or else HTTP/1.1), and a connection of its own for every upgrade. Dropping a call,
//! or the answer that it returned, cancels the request at the API server at once.

mod balancer;
mod client;
mod connection;
mod credential;
mod credential_check;
mod document;
mod endpoints;
mod error;
mod in_cluster;
mod kubeconfig;
mod limits;
mod location;
mod material;
mod pool;
mod probing;
mod request_body;
mod resend;
mod response_body;
mod serving_certificates;
mod socket;
mod tls;
mod tls_error;

pub use client::{ApiServer, SwitchedConnection, UpgradeAnswer};
pub use connection::STREAMS_MAX;
pub use document::DocumentError;
pub use endpoints::{PROBE_AGAIN_EVERY, PROBE_EVERY, PROBE_MAX};
pub use error::ApiServerError;
pub use limits::{AnswerDeadline, CONNECTIONS_MAX, Timeouts, WAITING_MAX};
pub use material::CredentialError;
pub use pool::PoolFigures;
pub use request_body::KEPT_BYTES_MAX;
pub use resend::{LOST_READS_RESENT_MAX, SENDINGS_MAX};
pub use response_body::ResponseBody;
