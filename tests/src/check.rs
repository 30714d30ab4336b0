//! Checkers for faults that a reader would overlook: each reports its findings, and a trial decides which are
//! allowed.

pub mod bounds;
pub mod bystanders;
pub mod reflector;
pub mod stream;
pub mod watch_report;
pub mod writes;
