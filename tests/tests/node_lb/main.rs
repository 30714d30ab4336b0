//! node-lb on a worker, with three real API servers on masters of their own.

use tokio::sync::Mutex;

mod busy;
mod faults;
mod handover;
mod host_cluster;
mod joining;
mod light_site;
mod pods;
mod restarts;
mod share;
mod workers;

/// Held by trials that need the machine for themselves, as long as they run.
static ALONE: Mutex<()> = Mutex::const_new(());
