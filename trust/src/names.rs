//! The words that stand in certificates, checked at the door.

mod host;
mod label;
mod person;

pub use host::{HostSuffix, NotAHost, ServerName};
pub use label::{Label, NoRandomness, NotALabel, NotATrustDomain, TrustDomain};
pub use person::{GROUPS_MAX, Group, NotAName, User};
