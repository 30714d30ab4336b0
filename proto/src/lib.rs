//! The protocol between server and agent, and between servers: its messages, and the next steps that each side may take.
//!
//! This crate does no I/O: time, randomness and bytes come in as arguments, frames and events go out as
//! values.

#[cfg(feature = "grpc")]
pub mod admin;
pub mod allow_list;
pub mod backoff;
pub mod capabilities;
pub mod cluster;
pub mod codes;
pub mod deadlines;
mod endpoint_text;
pub mod enrollment;
pub mod frame;
#[cfg(test)]
mod fuzz;
pub mod glob;
pub mod greeting;
pub mod headers;
pub mod help;
pub mod inquiry;
pub mod location;
pub mod name_text;
pub mod peering;
pub mod server_list;
pub mod session;
pub mod socks5;
pub mod spiffe;
pub mod stream_ledger;
mod text_enum;
pub mod trace;
pub mod trust;
pub mod upgrade_protocol;
pub mod wire;

pub use allow_list::AllowList;
pub use backoff::Backoff;
pub use capabilities::Capabilities;
pub use cluster::{ClusterId, NotAClusterId};
pub use codes::{AbortCode, CloseCode};
pub use session::Session;
