//! node-lb on a worker, with three real API servers on masters of their own.

mod faults;
mod handover;
mod host_cluster;
mod joining;
mod pods;
mod restarts;
mod workers;
