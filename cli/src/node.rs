//! `tombolo node`: makes a machine a worker of a cluster, by a load balancer for its API servers, and takes that back.

mod cluster_info;
mod discovery;
mod join;
mod join_command;
mod journal;
mod reset;

pub(crate) use join::join;
pub(crate) use join_command::print as print_join_command;
pub(crate) use reset::reset;
