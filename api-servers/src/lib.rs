//! Tells which API servers a cluster has, and which of them may be asked: by EndpointSlices, the
//! certificates that they show, and their readiness.
//!
//! It parses and verifies. Its users connect and send.

pub mod list;
pub mod readiness;
pub mod server_certificate;
pub mod slices;

pub use readiness::is_ready;
pub use server_certificate::{BundleError, ServerCertificateError, ServerCertificateVerifier};
