//! Names in certificates, validated when they are parsed.

mod host;
mod label;
mod user;

pub use host::{HostSuffix, NotAHost, ServerName};
pub use label::{Label, NoRandomness, NotALabel, NotATrustDomain, TrustDomain};
pub use user::{GROUPS_MAX, Group, NotAName, User};
