//! Simulates an impaired link between two network namespaces, reproducibly from a seed.

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
