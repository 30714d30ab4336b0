//! How much may be in flight: a controller that takes loss for what it is on edge links, noise.
//!
//! What decides is pure: [`Control`] is told what happened and when, and answers with a window. [`LossTolerant`] is the
//! one that ships, behind an adapter to quinn's trait. Its goals, and what another flow beside it is left, are claims of
//! a simulation whose sender is paced and detects loss as quinn's does.

mod adapter;
mod aggregation;
mod bandwidth;
mod bandwidth_drop;
mod control;
mod delivery;
mod min_send_rate;
mod probing;
mod rng;
mod round_trip;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;
mod tolerant;

pub use adapter::LossTolerantFactory;
