//! `tombolo doctor`: checks a caller's access, or what a daemon needs on its machine, and advises what to do.

mod access_review;
mod agent;
mod agent_identity;
mod caller;
mod carriers;
mod certificate;
mod check;
mod clock;
mod configuration;
mod enrollment;
mod enrollment_signer;
mod etcd;
mod excess_rights;
mod host_cluster;
mod https;
mod kubeconfig;
mod local;
mod node;
mod peers;
mod ports;
mod report;
mod server;

use crate::args::{DoctorArgs, DoctorCommand};
use crate::runtime::{self, RuntimeError};
pub(crate) use report::Report;

/// Runs the checks that the arguments select, and reports the result of each.
pub(crate) fn examine(args: DoctorArgs) -> Result<Report, RuntimeError> {
    runtime::run(async |scope| {
        let mut report = Report::default();
        match args.command {
            None => caller::check_all(&args.caller, scope, &mut report).await,
            Some(DoctorCommand::Server(args)) => server::check_all(&args, scope, &mut report).await,
            Some(DoctorCommand::Node(args)) => node::check_all(&args, scope, &mut report).await,
            Some(DoctorCommand::Agent(args)) => agent::check_all(&args, scope, &mut report).await,
        }
        report
    })
}
