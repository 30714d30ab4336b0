//! `tombolo doctor`: checks what a person would check, and says what to do.

mod agent;
mod caller;
mod certificate;
mod clock;
mod configuration;
mod host;
mod kubeconfig;
mod reach;
mod report;
mod rights;
mod server;
mod workload;

use crate::args::{Doctor, DoctorPart};
use crate::runtime::{self, NoRuntime};
pub(crate) use report::Report;

/// Makes the checks that were asked for, and says what each has found.
pub(crate) fn examine(order: Doctor) -> Result<Report, NoRuntime> {
    runtime::run(async |scope| {
        let mut report = Report::default();
        match order.part {
            None => caller::examine(&order.caller, scope, &mut report).await,
            Some(DoctorPart::Server(order)) => server::examine(&order, scope, &mut report).await,
            Some(DoctorPart::Agent(order)) => agent::examine(&order, scope, &mut report).await,
        }
        report
    })
}
