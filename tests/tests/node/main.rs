//! Real pods on real nodes, and people's commands for them through the tunnel.

mod alone;
mod clients;
mod complete_reads;
mod copy;
mod exec;
mod forward;
mod kubectls;
mod logs;
mod pod_access;
mod spdy_fallback;
mod top;
