//! What makes a process a good daemon: configuration, telemetry, readiness, probes, fair limits, structured shutdown.
//!
//! A daemon's `main` reads flags, confines itself, reads the file, installs telemetry, and hands one future to [`runtime::run`]:
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
//!     daemon::confine()?;
//!     telemetry::install_logs(&flags.shared.logs())?;
//!     let metrics = daemon::Metrics::install(&PRODUCT)?;
//!     let layout = daemon::Layout::Shared { workers: 2 };
//!     let plan = Plan { layout, grace: daemon::args::DRAIN_GRACE, aside: false };
//!     Ok(daemon::run(plan, |scope| async move {
//!         // let bound = App::bind(config, metrics).await?; bound.run(scope).await
//!         scope.draining().await;
//!         Ok(())
//!     }))
//! }
//! ```

pub mod args;
mod chain;
pub mod config;
mod confinement;
mod file_watch;
mod gone;
pub mod listen;
pub mod metrics;
pub mod outcome;
pub mod probes;
pub mod rate;
pub mod readiness;
pub mod runtime;
pub mod scope;
pub mod seats;
pub mod socks5;
pub mod state_dir;
pub mod telemetry;
mod until;
mod whole_file;

pub use chain::chain;
pub use confinement::{NotConfined, confine};
pub use file_watch::FileWatch;
pub use gone::{gone, reset};
pub use listen::BindError;
pub use metrics::Metrics;
pub use outcome::{Failure, Outcome, conclude};
pub use probes::{BoundProbes, Probes};
pub use rate::{Bucket, Rate};
pub use readiness::{Degraded, NotReady, Readiness};
pub use runtime::{Layout, Plan, run};
pub use scope::{Attendants, GraceExceeded, Home, Scope};
pub use seats::{NoSeat, Seat, SeatFigures, SeatLimits, Seats};
pub use state_dir::{StateDir, StateError};
pub use telemetry::{LogFormat, LogOptions, Product};
pub use until::until;
pub use whole_file::whole_file;
