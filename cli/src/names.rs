//! The words a person gives on the command line, checked at the door.

mod gateway;
mod host;
mod label;
mod person;
mod validity;

pub(crate) use gateway::{GatewayUrl, NotAGatewayUrl};
pub(crate) use host::{HostSuffix, NotAHost, ServerName};
pub(crate) use label::{Label, NoRandomness, NotATrustDomain, TrustDomain};
pub(crate) use person::{GROUPS_MAX, Group, User};
pub(crate) use validity::Validity;
