//! The cluster side: dials out, takes streams off the tunnel, hands them to its API server.

pub mod apiserver;
pub mod app;
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
