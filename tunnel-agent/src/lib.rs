//! The cluster side: dials out, takes streams off the tunnel, hands them to its API server.

pub mod apiserver;
pub mod config;
pub mod discovery;
pub mod forward;
pub mod guard;
pub mod identity;
