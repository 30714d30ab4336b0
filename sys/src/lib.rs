//! The system calls that Tombolo needs and no safe crate offers, each behind a safe function.

#[cfg(target_os = "linux")]
mod forbid_exec;
#[cfg(target_os = "linux")]
mod min_rtt;
#[cfg(target_os = "linux")]
mod rto_max;

#[cfg(target_os = "linux")]
pub use forbid_exec::forbid_exec;
#[cfg(target_os = "linux")]
pub use min_rtt::tcp_min_rtt;
#[cfg(target_os = "linux")]
pub use rto_max::{set_tcp_rto_max, tcp_rto_max};
