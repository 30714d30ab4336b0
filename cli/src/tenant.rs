//! `tombolo tenant`: control planes of other clusters as pods of a host cluster.

mod agents;
mod bootstrap;
mod chart;
mod create;
mod created;
mod delete;
mod embedded;
mod facts;
mod host;
mod inside;
mod join_command;
mod kubeconfig;
mod kubeconfig_text;
mod objects;
mod parts;
mod pki;
mod plan;
mod program;
mod record;
mod register;
mod renew;
mod roots;
mod status;
mod upgrade;

pub(crate) use bootstrap::bootstrap;
pub(crate) use create::create;
pub(crate) use delete::delete;
pub(crate) use join_command::join_command;
pub(crate) use kubeconfig::kubeconfig;
pub(crate) use register::register;
pub(crate) use renew::renew;
pub(crate) use status::{list, status};
pub(crate) use upgrade::upgrade;
