//! What the agent's API-server side does against servers that behave, misbehave, change their certificates and die.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod balancing;
mod bearing;
mod cancelling;
mod discovering;
mod dying;
mod fake;
mod forwarding;
mod pooling;
mod rotating;
mod sharing;
mod upgrading;
