//! A link between two network namespaces that is as bad as it is told to be, from a seed.

pub mod carry;
pub mod clock;
pub mod control;
pub mod device;
pub mod impairment;
pub mod link;
pub mod nat;
pub mod packet;
pub mod pipe;
pub mod report;
pub mod rng;
pub mod schedule;
pub mod units;
