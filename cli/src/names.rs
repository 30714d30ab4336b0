//! The words a person gives on the command line, checked at the door.

mod gateway;
mod server;
mod validity;

pub(crate) use gateway::{GatewayUrl, NotAGatewayUrl};
pub(crate) use server::ServerUrl;
pub(crate) use trust::names::{
    Group, HostSuffix, Label, NoRandomness, NotAHost, NotATrustDomain, ServerName, TrustDomain, User,
};
pub(crate) use validity::Validity;
