//! The cloud side: listeners for callers and for agents, and the forwarding of requests between them.

pub mod admin;
pub mod agents;
pub mod app;
pub mod authz;
pub mod clocks;
pub mod config;
pub mod dialing;
pub mod directory;
pub mod enrollment;
pub mod exchanges;
pub mod forwarding;
pub mod gateway;
pub mod identity;
pub mod impersonation;
pub mod limits;
pub mod listener;
pub mod metrics;
pub mod passthrough;
pub mod peering;
pub mod proxy;
pub mod registry;
pub mod vip;
