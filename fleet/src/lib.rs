//! The fleet-controller: tells a host cluster about the clusters that a gateway reaches, as an ordinary caller of that gateway.
//!
//! It publishes a ClusterProfile (`multicluster.x-k8s.io/v1alpha1`) for each cluster. Programs of the host cluster find clusters by these, and
//! reach them through the gateway.

pub mod app;
pub mod config;
pub mod gateway;
mod help;
pub mod host;
pub mod leadership;
pub mod metrics;
pub mod profiles;
