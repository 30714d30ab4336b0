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

use std::path::PathBuf;
use std::time::SystemTime;

use check::Check;
use daemon::Scope;
use rustls_pki_types::CertificateDer;

use crate::args::{DoctorArgs, DoctorCommand};
use crate::https::HttpsConnection;
use crate::runtime::{self, RuntimeError};
pub(crate) use clock::{SKEW_MAX, skew};
pub(crate) use report::Report;

/// An API server that a kubeconfig leads to, with its credential.
pub(crate) struct ReachedCluster {
    pub(crate) connection: HttpsConnection,
    /// The path before every request path, without a slash at its end.
    pub(crate) prefix: String,
    /// The CAs that the kubeconfig trusts.
    pub(crate) roots: Vec<CertificateDer<'static>>,
}

/// Connects to the API server that a kubeconfig leads to; without a path to that of kubectl's own.
///
/// # Errors
/// The report, which says what is wrong and what to do.
pub(crate) async fn reach_cluster(
    path: Option<PathBuf>,
    context: Option<&str>,
    scope: &Scope,
) -> Result<ReachedCluster, Report> {
    let mut report = Report::default();
    let Some(path) = path.or_else(kubeconfig::default_path) else {
        report.fail(
            Check::Kubeconfig,
            "no kubeconfig is named, and there is no default one",
            "name one with --kubeconfig",
        );
        return Err(report);
    };
    let found = kubeconfig::check(&mut report, &path, context, "the API server", SystemTime::now());
    let Some(kubeconfig::Destination { target, prefix }) = found.ok().flatten() else { return Err(report) };
    let roots = target.roots.clone();
    match target.reach(&mut report, scope).await {
        Some(connection) => Ok(ReachedCluster { connection, prefix, roots }),
        None => Err(report),
    }
}

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
