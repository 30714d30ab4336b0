//! The fault matrix: the faults on the path to a cluster, what each kind of request must then see, and what
//! it saw.
//!
//! [`table`] is data; [`run`] tries each of its cells; [`page`] writes down what was expected and observed.

pub mod code;
pub mod fault;
pub mod gateway;
pub mod inject;
pub mod judge;
mod namespace;
pub mod page;
pub mod phases;
pub mod report;
pub mod report_log;
pub mod requests;
pub mod run;
pub mod servers;
pub mod setup;
pub mod table;
