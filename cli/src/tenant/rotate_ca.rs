//! `tombolo tenant certificates rotate-ca`: exchanges all CAs and the ServiceAccount key of a tenant in steps, in which both are valid.

use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::time::{Instant, sleep};
use trust::Pin;

use super::agent_access::{self, AgentAccessError};
use super::bootstrap::{self, BootstrapError};
use super::created::{CreatedTenant, TenantError};
use super::host::HostError;
use super::inside::{InsideError, TenantApi};
use super::leftovers;
use super::objects::ROOT_CA;
use super::parts::{self, Part};
use super::pki::{PkiError, TenantAuthority, TenantRoots};
use super::renew::{self, RenewError};
use super::roots::{self, RootsError, StoredRoots};
use super::rotation::{Admitted, NotYet, Rotation, admit};
use crate::args::TenantRotateCa;
use crate::confirm::{self, ConfirmError};
use crate::names::RotationStep;
use crate::print;
use crate::runtime::{self, RuntimeError};

/// The longest wait until the controllers have published the CAs in every namespace.
const PUBLISHED_MAX: Duration = Duration::from_secs(120);
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Most lines about what a step would cut off.
const LINES_MAX: usize = 20;

/// A step was not taken, or is not complete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RotateCaError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Tenant(#[from] TenantError),
    #[error(transparent)]
    Roots(#[from] RootsError),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    NotYet(#[from] NotYet),
    #[error(transparent)]
    Renew(#[from] RenewError),
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    #[error(transparent)]
    Inside(#[from] InsideError),
    #[error(transparent)]
    Agents(#[from] AgentAccessError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("{0} of the tenant are not ready, and a step needs all parts; see `tombolo tenant status`")]
    NotReady(String),
    #[error(
        "nothing was changed. The step {step} would cut off:\n{lines}\nRun it again after that, or with --leave-behind to go on without them"
    )]
    LeftBehind {
        /// The step that was refused.
        step: RotationStep,
        /// A line for each of them.
        lines: String,
    },
    #[error("nothing was changed: --yes names {0}, and the tenant is {1}")]
    OtherName(String, String),
    #[error("nothing was changed: there is no terminal on which to ask. Give --yes {0} if you are sure")]
    NoTerminal(String),
    #[error(transparent)]
    Confirm(ConfirmError),
    #[error(
        "the namespace {0} of the tenant does not have the CAs in {ROOT_CA} within {limit:?}; see `tombolo tenant status`, and run the \
         command again to go on",
        limit = PUBLISHED_MAX
    )]
    NotPublished(String),
    #[error("cannot print")]
    Print(#[from] std::io::Error),
}

/// Takes a step, or goes on with it. Returns the lines that say what comes next.
///
/// # Errors
/// [`RotateCaError`]
pub(crate) fn rotate_ca(args: &TenantRotateCa) -> Result<Vec<String>, RotateCaError> {
    let (name, step) = (args.tenant.name.as_str(), args.step);
    if let Some(other) = args.yes.as_ref().filter(|other| **other != args.tenant.name) {
        return Err(RotateCaError::OtherName(other.to_string(), name.to_owned()));
    }
    let mut tenant = CreatedTenant::find(&args.tenant.host, name)?;
    let stored = roots::read_stored(&tenant.host, name)?;
    match admit(step, stored.rotation())? {
        Admitted::IsComplete => return Ok(vec![format!("the step {step} is complete already")]),
        Admitted::GoesOn => print::note(&format!("going on with the step {step}"))?,
        Admitted::Begins => {
            renew::check_installed(&tenant)?;
            check_ready(&tenant)?;
            check_left_behind(args, &tenant, &stored)?;
            confirm(args)?;
            begin(args, &tenant)?;
        }
    }
    // With the CAs of the step that has begun.
    tenant.roots = roots::read(&tenant.host, name)?;
    renew::reissue(&tenant, args.chart.as_deref(), args.timeout)?;
    let server = args.tenant.server.as_deref();
    bootstrap::make(&tenant, server)?;
    publish(&tenant, server, step)?;
    agent_access::exchange(&tenant, server, step, args.timeout)?;
    roots::change(&tenant.host, name, |stored| Ok::<_, RootsError>(completed(stored, step)))?;
    Ok(next_lines(name, step))
}

fn check_ready(tenant: &CreatedTenant) -> Result<(), RotateCaError> {
    let parts = parts::read(&tenant.host)?;
    let missing: Vec<&str> =
        parts.iter().filter(|part| !Part::is_done(part)).map(|part| part.name.as_str()).collect();
    if missing.is_empty() { Ok(()) } else { Err(RotateCaError::NotReady(missing.join(", "))) }
}

/// Refuses a step that would cut off what can be found, unless the person goes on without it.
fn check_left_behind(
    args: &TenantRotateCa,
    tenant: &CreatedTenant,
    stored: &StoredRoots,
) -> Result<(), RotateCaError> {
    let Some((next, rotation)) = &stored.next else { return Ok(()) };
    let pin = pin(&next.cluster);
    // A step that was never complete is refused before.
    let Some(since) = rotation.completed_at() else { return Ok(()) };
    let found = runtime::run(async |scope| {
        let mut api = tenant.connect(args.tenant.server.as_deref(), scope).await?;
        let found = match args.step {
            RotationStep::Trust => Vec::new(),
            RotationStep::Issue => leftovers::before_issue(&mut api, &pin, since).await?,
            RotationStep::Finish => {
                let now = OffsetDateTime::now_utc();
                leftovers::before_finish(&mut api, &pin, &next.accounts, since, now).await?
            }
        };
        Ok::<_, RotateCaError>(found)
    })??;
    if found.is_empty() {
        return Ok(());
    }
    let mut lines: Vec<String> = found.iter().take(LINES_MAX).map(|line| format!("* {line}")).collect();
    if found.len() > LINES_MAX {
        lines.push(format!("* and {} more", found.len() - LINES_MAX));
    }
    let lines = lines.join("\n");
    if args.leave_behind {
        print::note(&format!("going on without:\n{lines}"))?;
        return Ok(());
    }
    Err(RotateCaError::LeftBehind { step: args.step, lines })
}

/// Asks the person about what nobody can find: copies of kubeconfigs and tokens outside of the tenant.
fn confirm(args: &TenantRotateCa) -> Result<(), RotateCaError> {
    let name = args.tenant.name.as_str();
    let warning = match args.step {
        RotationStep::Trust => return Ok(()),
        RotationStep::Issue => format!(
            "Kubeconfigs of the tenant {name} that were written before the step trust lose the API servers. Write them again first: \
             tombolo tenant kubeconfig {name}."
        ),
        RotationStep::Finish => format!(
            "Kubeconfigs of the tenant {name} that were written before the step issue end, and so do all tokens from before it. Write \
             them again first: tombolo tenant kubeconfig {name}."
        ),
    };
    confirm::by_name(&warning, name, args.yes.is_some()).map_err(|error| match error {
        ConfirmError::NoTerminal => RotateCaError::NoTerminal(name.to_owned()),
        other @ (ConfirmError::OtherAnswer { .. } | ConfirmError::Terminal(_)) => {
            RotateCaError::Confirm(other)
        }
    })
}

/// Writes down that the step begins, before anything else is changed.
fn begin(args: &TenantRotateCa, tenant: &CreatedTenant) -> Result<(), RotateCaError> {
    let step = args.step;
    roots::change(&tenant.host, args.tenant.name.as_str(), |stored| {
        // Somebody else may have been faster.
        admit(step, stored.rotation())?;
        let next = match stored.next {
            Some((next, _)) => next,
            None => TenantRoots::generate_next(SystemTime::now())?,
        };
        Ok::<_, RotateCaError>(StoredRoots { next: Some((next, Rotation::begun(step))), ..stored })
    })
}

/// The stored CAs after a step: the last one leaves nothing but the new ones.
fn completed(stored: StoredRoots, step: RotationStep) -> StoredRoots {
    match (stored.next, step) {
        (Some((next, _)), RotationStep::Finish) => StoredRoots { present: next, next: None },
        (next, _) => {
            let next = next.map(|(next, rotation)| (next, rotation.complete(SystemTime::now())));
            StoredRoots { next, ..stored }
        }
    }
}

/// Waits until every namespace has the CAs, and removes old ones from the list of the API servers.
fn publish(tenant: &CreatedTenant, server: Option<&str>, step: RotationStep) -> Result<(), RotateCaError> {
    runtime::run(async |scope| {
        let mut api = tenant.connect(server, scope).await?;
        if step == RotationStep::Finish {
            // API servers add CAs to it and never remove one.
            api.apply(&request_headers(&tenant.roots)).await?;
        }
        let end = Instant::now() + PUBLISHED_MAX;
        loop {
            match unpublished(&mut api, &tenant.roots.cluster.trusted_pem()).await? {
                None => return Ok(()),
                Some(namespace) if Instant::now() >= end => {
                    return Err(RotateCaError::NotPublished(namespace));
                }
                Some(_) => sleep(ASK_EVERY).await,
            }
        }
    })?
}

/// The CAs by which extensions of the API know callers and the API servers.
fn request_headers(roots: &TenantRoots) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "extension-apiserver-authentication", "namespace": "kube-system" },
        "data": {
            "client-ca-file": roots.cluster.trusted_pem(),
            "requestheader-client-ca-file": roots.front_proxy.trusted_pem(),
        },
    })
}

/// A namespace whose pods would get other CAs than these.
async fn unpublished(api: &mut TenantApi, ca: &str) -> Result<Option<String>, InsideError> {
    let query = format!("fieldSelector=metadata.name={ROOT_CA}");
    let maps = api.list("/api/v1/configmaps", &query).await?;
    let other = maps.iter().find(|map| map["data"]["ca.crt"].as_str() != Some(ca));
    Ok(other.map(|map| map["metadata"]["namespace"].as_str().unwrap_or_default().to_owned()))
}

/// The hash of a CA's key, as workers write it into the annotations of their Nodes.
fn pin(authority: &TenantAuthority) -> String {
    let certificate = CertificateDer::from_pem_slice(authority.certificate_pem().as_bytes()).ok();
    certificate
        .and_then(|certificate| Pin::of_ca(&certificate))
        .map(|pin| pin.to_string())
        .unwrap_or_default()
}

fn next_lines(name: &str, step: RotationStep) -> Vec<String> {
    let workers = "next, on every worker: tombolo node rotate-ca".to_owned();
    let kubeconfigs = format!("next, for every administrator: tombolo tenant kubeconfig {name}");
    let next = |step| format!("next: tombolo tenant certificates rotate-ca {name} --step {step}");
    match step {
        RotationStep::Trust => vec![
            format!("all parts of the tenant {name} trust both CAs"),
            workers,
            kubeconfigs,
            next(RotationStep::Issue),
        ],
        RotationStep::Issue => vec![
            format!("the next CAs of the tenant {name} issue, and both are trusted"),
            workers,
            kubeconfigs,
            next(RotationStep::Finish),
        ],
        RotationStep::Finish => vec![
            format!(
                "the old CAs of the tenant {name} are gone, and nothing that they have issued is good any more"
            ),
            workers,
            format!("next: make a backup of the Secret {} again", roots::ROOTS),
        ],
    }
}
