//! Gives words to the refusals that the HTTP libraries send themselves.
//!
//! A request that hyper or h2 cannot read never reaches a service. hyper answers such a request of HTTP/1.1
//! without a body, and h2 resets its stream, which clients in Go take for a reason to send it again, for more
//! than a minute.

pub(super) mod http1;
pub(super) mod http2;
