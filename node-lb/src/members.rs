//! The API servers that are known: who named them, how healthy they are, and which one gets a new connection.
//!
//! It only decides: time and random numbers are arguments. [`crate::probing`] sends the probes.

mod choice;
mod grade;
mod health;
mod named_by;
mod sources;
mod state;
mod traffic;

pub use grade::{Grade, ProbeOutcome};
pub use named_by::{NamedBefore, Source};
pub use state::{API_SERVERS_MAX, Changes, LAST_RESORT_FOR, Member, Members};
pub use traffic::{ConnectionResult, OpenConnection, Traffic};

#[cfg(test)]
mod tests;
