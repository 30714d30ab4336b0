//! Metrics of the Services that the server maintains in a host cluster.

use metrics::{counter, describe_counter, describe_gauge, gauge};

const SERVICES: &str = "tombolo_server_vip_services";
const FOREIGN: &str = "tombolo_server_vip_services_foreign";
const FAILURES: &str = "tombolo_server_vip_publishing_failures_total";

pub(super) fn describe() {
    describe_gauge!(SERVICES, "Clusters with an assigned address that are Services of the host cluster.");
    describe_gauge!(FOREIGN, "Foreign objects of the host cluster whose names this server needs.");
    describe_counter!(FAILURES, "Synchronizations with the host cluster that did not complete.");
    published(0, 0);
    counter!(FAILURES).increment(0);
}

/// Records how many clusters have a Service, and how many foreign objects prevent one.
pub fn published(services: usize, foreign: usize) {
    gauge!(SERVICES).set(number(services));
    gauge!(FOREIGN).set(number(foreign));
}

/// Counts a synchronization that did not complete.
pub fn publishing_failed() {
    counter!(FAILURES).increment(1);
}

fn number(count: usize) -> f64 {
    u32::try_from(count).unwrap_or(u32::MAX).into()
}
