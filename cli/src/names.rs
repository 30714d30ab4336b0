//! Types of command-line values, which are parsed and checked before a command runs.

mod admin_url;
mod bootstrap_token;
mod ca_hash;
mod gateway_url;
mod host_port;
mod kubernetes_version;
mod node_name;
mod port_block;
mod rotation_step;
mod validity;
mod wait_time;

pub(crate) use admin_url::AdminUrl;
pub(crate) use bootstrap_token::{BootstrapToken, NoRandomBytes};
pub(crate) use ca_hash::ca_hash;
pub(crate) use gateway_url::{GatewayUrl, NotAGatewayUrl};
pub(crate) use host_port::{host_and_port, is_host_and_port};
pub(crate) use kubernetes_version::{KubernetesVersion, NotAnUpgrade};
pub(crate) use node_name::node_name;
pub(crate) use port_block::PortBlock;
pub(crate) use rotation_step::RotationStep;
pub(crate) use trust::names::{
    Group, HostSuffix, Label, NoRandomness, NotAHost, NotATrustDomain, ServerName, TrustDomain, User,
};
pub(crate) use validity::Validity;
pub(crate) use wait_time::WaitTime;
