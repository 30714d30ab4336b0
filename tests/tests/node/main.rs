//! Real pods on real nodes, and what people do with them through the tunnel.

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
