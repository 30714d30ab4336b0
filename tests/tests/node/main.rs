//! Real pods on real nodes, and what people do with them through the tunnel.

mod life;
