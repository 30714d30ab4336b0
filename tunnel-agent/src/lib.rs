//! The cluster side: dials the servers, accepts streams of the tunnels, and forwards them to the cluster's
//! API server.

pub mod apiserver;
pub mod app;
pub mod clock;
pub mod config;
pub mod dialer;
pub mod discovery;
pub mod enrollment;
pub mod forward;
pub mod guard;
pub mod identity;
pub mod metrics;
pub mod pipe;
mod random;
pub mod relay;
pub mod server_trust;
pub mod streams;
