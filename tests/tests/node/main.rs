//! Real pods on real nodes, and what people do with them through the tunnel.

mod around;
mod copy;
mod exec;
mod forward;
mod hands;
mod life;
mod logs;
mod whole;
