//! The client of the API server against servers that behave, misbehave, change their certificates and die.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod cancellation;
mod connection_limits;
mod credential_rotation;
mod discovery;
mod fair_queue;
mod fake;
mod forwarding;
mod load_balancing;
mod pool;
mod raw_http2;
mod reducing;
mod resend;
mod truncation;
mod trust;
mod upgrade;
