//! Real pods on real nodes, and what people do with them through the tunnel.

mod alone;
mod around;
mod clients;
mod copy;
mod exec;
mod fallback;
mod forward;
mod hands;
mod logs;
mod top;
mod whole;
