//! Shared parts of the daemons: configuration, telemetry, readiness, probes, fair limits, structured
//! shutdown.
//!
//! A daemon's `main` parses flags, enters the sandbox, reads the file, installs telemetry, and passes one
//! future to [`runtime::run`]:
//!
//! ```no_run
//! # #[derive(clap::Parser)] struct Flags { #[command(flatten)] shared: daemon::args::SharedFlags }
//! use daemon::{Failure, Outcome, Plan, Product, telemetry};
//!
//! const PRODUCT: Product =
//!     Product { name: "tunnel-server", metrics_prefix: "tombolo_server", version: env!("CARGO_PKG_VERSION") };
//!
//! fn main() -> std::process::ExitCode {
//!     daemon::conclude(start())
//! }
//!
//! fn start() -> Result<Outcome, Failure> {
//!     let flags: Flags = daemon::args::parse("TOMBOLO_SERVER");
//!     daemon::enter_sandbox()?;
//!     telemetry::install_logs(&flags.shared.logs())?;
//!     let metrics = daemon::Metrics::install(&PRODUCT)?;
//!     let layout = daemon::Layout::Shared { workers: 2 };
//!     let plan = Plan { layout, grace: daemon::args::DRAIN_GRACE, low_priority: false };
//!     Ok(daemon::run(plan, |scope| async move {
//!         // let bound = App::bind(config, metrics).await?; bound.run(scope).await
//!         scope.draining().await;
//!         Ok(())
//!     }))
//! }
//! ```

pub mod args;
mod bounded_file;
mod cancel;
pub mod config;
mod error_chain;
pub mod exit_code;
#[cfg(target_os = "linux")]
mod file_watch;
#[cfg(target_os = "linux")]
mod follow_files;
pub mod kubeconfig;
pub mod listen;
pub mod metrics;
mod peer_reset;
pub mod probes;
pub mod rate;
pub mod readiness;
pub mod runtime;
#[cfg(target_os = "linux")]
mod sandbox;
pub mod scope;
pub mod seats;
pub mod socks5;
pub mod state_dir;
mod state_file;
mod task_budget;
pub mod telemetry;

pub use bounded_file::read_bounded;
pub use cancel::run_until;
pub use error_chain::error_chain;
pub use exit_code::{Failure, Outcome, conclude};
#[cfg(target_os = "linux")]
pub use file_watch::FileWatch;
#[cfg(target_os = "linux")]
pub use follow_files::{FollowedFiles, follow_files};
pub use listen::BindError;
pub use metrics::Metrics;
pub use peer_reset::{peer_closed, peer_reset};
pub use probes::{BoundProbes, Probes};
pub use rate::{Rate, TokenBucket};
pub use readiness::{Degraded, NotReady, Readiness};
pub use runtime::{Layout, Plan, run};
#[cfg(target_os = "linux")]
pub use sandbox::{SandboxError, enter_sandbox};
pub use scope::{BackgroundExecutor, DrainHold, GraceExceeded, Home, Scope};
pub use seats::{NoSeat, Seat, SeatFigures, SeatLimits, Seats};
pub use state_dir::{StateDir, StateError, StateLock};
pub use state_file::StateFile;
pub use task_budget::poll_read_within_budget;
pub use telemetry::{LogFormat, LogOptions, Product};
