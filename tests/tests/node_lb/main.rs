//! node-lb on a worker, with three real API servers on masters of their own.

mod command;
mod faults;
mod host_cluster;
mod joining;
mod kubeadm;
mod pods;
mod restarts;
mod workers;
