//! `tombolo tenant certificates renew`: issues all certificates of a control plane anew.

use std::path::Path;
use std::time::SystemTime;

use serde_json::{Value, json};

use super::chart::{self, ChartError, ChartFolder, ServiceAddresses};
use super::create::secret_objects;
use super::created::{CreatedTenant, TenantError};
use super::facts;
use super::host::HostError;
use super::parts::{self, PartsError};
use super::pki::PkiError;
use crate::args::TenantRenew;
use crate::names::WaitTime;
use crate::print;

/// The certificates were not renewed, or not all pods have them.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RenewError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Tenant(#[from] TenantError),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    Chart(#[from] ChartError),
    #[error(transparent)]
    Parts(#[from] PartsError),
    #[error("helm has not installed the tenant {0}; run `tombolo tenant create {0}` without --output first")]
    NotByHelm(String),
    #[error("cannot print")]
    Print(#[from] std::io::Error),
}

/// Issues everything by the same CAs, and restarts the pods one after the other.
///
/// # Errors
/// [`RenewError`]
pub(crate) fn renew(args: &TenantRenew) -> Result<Vec<String>, RenewError> {
    let name = args.name.as_str();
    reissue(&CreatedTenant::find(&args.host, name)?, args.chart.as_deref(), args.timeout)?;
    Ok(vec![format!("the certificates of the tenant {name} are renewed; see `tombolo tenant status {name}`")])
}

/// Refuses a tenant that helm has not installed.
///
/// # Errors
/// [`RenewError`]
pub(super) fn check_installed(tenant: &CreatedTenant) -> Result<Value, RenewError> {
    let values = tenant.host.values()?;
    if values.is_null() {
        return Err(RenewError::NotByHelm(tenant.record.name.clone()));
    }
    Ok(values)
}

/// Issues everything by the CAs that are in force, and returns once all pods have it.
///
/// # Errors
/// [`RenewError`]
pub(super) fn reissue(
    tenant: &CreatedTenant,
    chart: Option<&Path>,
    limit: WaitTime,
) -> Result<(), RenewError> {
    let mut values = check_installed(tenant)?;
    let chart = ChartFolder::new(chart)?;
    let CreatedTenant { host, record, roots } = tenant;
    let services = ServiceAddresses::read(host, record)?;
    let nodes = facts::control_plane_nodes(host)?.into_iter().map(|node| node.address).collect();
    let addresses = services.in_certificates(record, nodes);
    let secrets = roots.secrets(&addresses, &services.url(record), SystemTime::now())?;
    host.apply(&secret_objects(&record.name, &secrets))?;
    print::note("the Secrets have new certificates; restarting the pods one after the other")?;
    chart::merge(&mut values, &json!({ "secretsChecksum": chart::checksum(&secrets) }));
    host.install(chart.chart(), &[chart.values(&values)?])?;
    Ok(parts::wait(host, limit.duration())?)
}
