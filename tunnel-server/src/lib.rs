//! The cloud side: a door for callers, a door for agents, and the hall between.

pub mod admin;
pub mod app;
pub mod assertion;
pub mod config;
pub mod dialing;
pub mod directory;
pub mod enrollment;
pub mod exchanges;
pub mod gateway;
pub mod identity;
pub mod listener;
pub mod metrics;
pub mod passthrough;
pub mod permit;
pub mod proxy;
pub mod reception;
pub mod registry;
pub mod shares;
pub mod vip;
