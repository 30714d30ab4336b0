//! The schema of `proto/tombolo/trust/v1`, as generated types. The crate `trust` verifies them.

#[allow(missing_docs, unused_qualifications, clippy::allow_attributes_without_reason, reason = "generated")]
mod trust_v1 {
    include!(concat!(env!("OUT_DIR"), "/tombolo.trust.v1.rs"));
}

pub use trust_v1::{Bundle, Signature, SignedBundle};
