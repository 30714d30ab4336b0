//! `tombolo tenant upgrade`: the API servers first, then the rest, as Kubernetes' version skew policy wants it.

use serde_json::{Value, json};

use super::bootstrap::{self, BootstrapError};
use super::chart::{self, ChartError, ChartFolder};
use super::created::{CreatedTenant, TenantError};
use super::host::HostError;
use super::parts::{self, PartsError};
use crate::args::TenantUpgrade;
use crate::names::{KubernetesVersion, NotAnUpgrade};
use crate::print;
use crate::runtime::{self, RuntimeError};

/// A tenant was not upgraded, or not completely.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpgradeError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Tenant(#[from] TenantError),
    #[error(transparent)]
    Chart(#[from] ChartError),
    #[error(transparent)]
    Parts(#[from] PartsError),
    #[error(transparent)]
    Refused(#[from] NotAnUpgrade),
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("the tenant's API server says that it is {0:?}, which is no release of Kubernetes")]
    NoRelease(String),
    #[error(
        "helm has not installed the tenant {0}; with GitOps set images.apiserver.tag first, and the other tags once the API servers run"
    )]
    NotByHelm(String),
    #[error(
        "the image {0} of the tenant is set by digest, which goes before a tag; give the new one with --values FILE"
    )]
    ByDigest(&'static str),
    #[error("cannot print")]
    Print(#[from] std::io::Error),
}

/// Upgrades a tenant in two steps.
///
/// # Errors
/// [`UpgradeError`]
pub(crate) fn upgrade(args: &TenantUpgrade) -> Result<Vec<String>, UpgradeError> {
    let (name, server) = (args.tenant.name.as_str(), args.tenant.server.as_deref());
    let next = args.kubernetes_version;
    let tenant = CreatedTenant::find(&args.tenant.host, name)?;
    let chart = ChartFolder::new(args.chart.as_deref())?;
    let present = tenant.host.values()?;
    if present.is_null() {
        return Err(UpgradeError::NotByHelm(name.to_owned()));
    }
    let mut over = json!({ "images": chart::tags(next) });
    chart::merge(&mut over, &chart::read_values(&args.values)?);
    check_digests(&present, &over)?;
    let now = version(&tenant, server)?;
    now.check_upgrade(next)?;

    let mut first = present.clone();
    chart::merge(&mut first, &json!({ "images": { "apiserver": over["images"]["apiserver"] } }));
    let mut whole = present;
    chart::merge(&mut whole, &over);
    for (step, values) in [("the API servers", &first), ("all other parts", &whole)] {
        print::note(&format!("upgrading {step} from {now} to {next}"))?;
        tenant.host.install(chart.chart(), &[chart.values(values)?])?;
        parts::wait(&tenant.host, args.timeout.duration())?;
    }
    // kubeadm-config names the release for machines that join.
    bootstrap::make(&tenant, server)?;
    Ok(vec![format!("the tenant {name} has Kubernetes {next}; upgrade kubelet on its workers next")])
}

/// Refuses an upgrade that would change nothing, because a digest goes before a tag.
fn check_digests(present: &Value, over: &Value) -> Result<(), UpgradeError> {
    for image in ["apiserver", "controllerManager", "scheduler"] {
        let digest = |values: &Value| values["images"][image]["digest"].as_str().map(str::to_owned);
        let is_set = digest(present).is_some_and(|digest| !digest.is_empty());
        if is_set && digest(over).is_none() {
            return Err(UpgradeError::ByDigest(image));
        }
    }
    Ok(())
}

/// The release of an API server of the tenant, as it says itself.
fn version(tenant: &CreatedTenant, server: Option<&str>) -> Result<KubernetesVersion, UpgradeError> {
    let version = runtime::run(async |scope| {
        Ok::<_, TenantError>(tenant.connect(server, scope).await?.get("/version").await?)
    })??;
    let text = version["gitVersion"].as_str().unwrap_or_default();
    text.parse().map_err(|_| UpgradeError::NoRelease(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_does_not_replace_a_digest() {
        let present =
            json!({ "images": { "scheduler": { "digest": "sha256:a" }, "apiserver": { "digest": "" } } });
        let by_tag = json!({ "images": { "scheduler": { "tag": "v1.37.0" } } });
        let by_digest = json!({ "images": { "scheduler": { "digest": "sha256:b" } } });

        assert!(matches!(check_digests(&present, &by_tag), Err(UpgradeError::ByDigest("scheduler"))));
        assert!(check_digests(&present, &by_digest).is_ok());
        assert!(check_digests(&json!({}), &by_tag).is_ok());
    }
}
