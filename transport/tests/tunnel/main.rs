//! Tests a tunnel between two real ends on loopback, over each carrier.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test's unwraps are claims, and it owns its tasks"
)]

mod http2;
mod pair;
mod peers;
mod priority;
mod quic;
mod suite;
mod valve;
