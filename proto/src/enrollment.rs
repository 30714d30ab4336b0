//! The enrollment API, by which agents get certificates, generated from
//! `proto/tombolo/enrollment/v1/enrollment.proto`.
//!
//! The gRPC service itself is there only with the feature `grpc`.

pub use generated::*;

use crate::ClusterId;

/// Most bytes of a request: a certificate signing request of any supported key, a ServiceAccount's token and
/// its issuer's keys, and to spare.
pub const REQUEST_BYTES_MAX: usize = 48 * 1024;

/// Most bytes of an issuer's JSON Web Key Set: 16 keys of RSA with 4,096 bits, and to spare.
pub const ISSUER_KEYS_BYTES_MAX: usize = 24 * 1024;

/// Most bytes of an answer: a chain and eight roots, and to spare.
pub const ANSWER_BYTES_MAX: usize = 128 * 1024;

/// The audience of the ServiceAccount token by which a pod proves itself: this cluster's agents at servers of
/// this trust domain, and nobody else, the API server included.
#[must_use]
pub fn audience(trust_domain: &str, cluster: &ClusterId) -> String {
    format!("tombolo:{trust_domain}:{cluster}")
}

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
