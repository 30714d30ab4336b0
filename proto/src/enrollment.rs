//! How agents ask for certificates, generated from `proto/tombolo/enrollment/v1/enrollment.proto`; the service itself only with
//! the feature `grpc`.

pub use generated::*;

/// Most bytes of a request: a certificate signing request of any supported key, and to spare.
pub const REQUEST_BYTES_MAX: usize = 16 * 1024;

/// Most bytes of an answer: a chain and eight roots, and to spare.
pub const ANSWER_BYTES_MAX: usize = 128 * 1024;

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
    include!(concat!(env!("OUT_DIR"), "/tombolo.enrollment.v1.rs"));
}
