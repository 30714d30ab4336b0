//! Congestion control for edge links, on which packet loss is mostly noise and no sign of congestion.
//!
//! The decisions are pure: [`CongestionControl`](control::CongestionControl) takes events and times, and
//! returns a window. [`LossTolerant`](loss_tolerant::LossTolerant) is the controller that ships, behind an adapter
//! to quinn's trait. Its goals, and the share that it leaves to another flow, are claims of a simulation
//! whose sender is paced and detects loss as quinn's does.

mod adapter;
mod aggregation;
mod bandwidth;
mod bandwidth_drop;
mod control;
mod delivery;
mod loss_tolerant;
mod min_send_rate;
mod probing;
mod rng;
mod round_trip;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;

pub use adapter::LossTolerantFactory;
