//! The system calls that Tombolo needs and no safe crate offers, each behind a safe function.

#[cfg(target_os = "linux")]
mod no_programs;
#[cfg(target_os = "linux")]
mod rto_max;

#[cfg(target_os = "linux")]
pub use no_programs::refuse_programs;
#[cfg(target_os = "linux")]
pub use rto_max::{set_tcp_rto_max, tcp_rto_max};
