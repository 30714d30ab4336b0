//! `tombolo node`: makes a machine a worker of a cluster, with a load balancer for its API servers, and takes that back.

mod cluster_info;
mod cri;
mod discovery;
mod facts;
mod join;
mod join_command;
mod journal;
mod kubelet;
mod load_balancer;
mod machine;
mod programs;
mod reset;
mod rotate_ca;
mod systemd;
mod traces;
mod waiting;

pub(crate) use facts::is_ready;
pub(crate) use join::join;
pub(crate) use join_command::{BY_NODE_LB, JOINING_GROUP, JoinCommandError};
pub(crate) use join_command::{command_of as join_command_of, print as print_join_command};
pub(crate) use reset::reset;
pub(crate) use rotate_ca::{KUBELET_CA, TRUSTED_CAS, rotate_ca};
