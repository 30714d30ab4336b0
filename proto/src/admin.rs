//! The admin API, generated from `proto/tombolo/admin/v1/admin.proto`: messages, service and client, without
//! a transport.

pub use generated::*;

/// The schema with all that it imports, as an encoded `FileDescriptorSet`: for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tombolo.admin.v1.fds"));

/// Most names that one request may list.
pub const NAMES_MAX: usize = 1_000;

/// Most bytes of a request: more than [`NAMES_MAX`] of the longest names take.
pub const REQUEST_BYTES_MAX: usize = 128 * 1024;

/// Most bytes of an answer: of 10,000 clusters of two agents with five endpoints each, and to spare.
pub const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Default path of a server's admin socket.
pub const SOCKET_DEFAULT: &str = "/run/tombolo/admin.sock";

#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    elided_lifetimes_in_paths,
    clippy::allow_attributes_without_reason,
    clippy::too_many_lines,
    clippy::unwrap_used,
    clippy::use_self,
    clippy::wildcard_enum_match_arm,
    reason = "generated"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/tombolo.admin.v1.rs"));
}
