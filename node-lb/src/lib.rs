//! A load balancer on a worker for its cluster's API servers, which works without any other part.
//!
//! Callers of the worker connect to 127.0.0.1, and their TLS passes through to an API server that is healthy.

pub mod app;
pub mod balancer;
pub mod config;
mod copy;
pub mod discovery;
pub mod handover;
mod http_client;
pub mod members;
pub mod metrics;
mod netlink;
pub mod pods;
pub mod probing;
mod random;
pub mod relay;
mod systemd;
pub mod tls;
