//! Forwards one recorded request to one cluster: opens a stream, sends the request, and receives the head of the answer.
//!
//! The request has an intent in the audit log already. Repetitions happen here, too: of reads (`retry`), and of requests that
//! their agent never began (`send_again`). A failure is a [`ForwardError`], and each entry point puts it into its own words.

mod abort_message;
pub(crate) mod audit_id;
mod error;
pub(crate) mod exchange;
mod head_timeout;
mod informational;
pub(crate) mod kept_body;
mod location;
pub(crate) mod park_timeout;
pub(crate) mod request_body;
pub(crate) mod response_head;
pub(crate) mod retry;
pub(crate) mod send_again;
pub(crate) mod tunnel_body;

pub use error::ForwardError;
pub use head_timeout::CALLER_SILENCE_MAX;
pub use park_timeout::NotAParkLimit;
