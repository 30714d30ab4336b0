//! Checkers, which find what an eye would miss: each says what it found, and a trial says what may be found.

pub mod bounds;
pub mod bystanders;
pub mod reflector;
pub mod stream;
pub mod watch_report;
pub mod writes;
