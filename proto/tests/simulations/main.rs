//! Simulates sessions and the requests on their tunnels over bad links, in virtual time.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test needs one instant to begin virtual time from, and its unwraps are claims"
)]

mod path;
mod requests_once;
mod rng;
mod session;
