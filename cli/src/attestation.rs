//! `tombolo cluster attestation`: by what further pods of a cluster's agents prove themselves.

use proto::admin::change_attestation_request::Change;
use proto::admin::{ChangeAttestationRequest, Forget, GetAttestationResponse, Reopen, Workload};
use serde::Deserialize;

use crate::admin::{Admin, AdminError};
use crate::args::{Attestation, AttestationOf, AttestationSetKeys};
use crate::files::{self, ReadError};
use crate::print;
use crate::runtime::{self, NoRuntime};

/// Why nothing was shown or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttestationError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Runtime(#[from] NoRuntime),
    #[error(transparent)]
    Admin(#[from] AdminError),
}

/// Shows it, or changes it.
pub(crate) fn run(order: Attestation) -> Result<Vec<String>, AttestationError> {
    match order {
        Attestation::Show(of) => show(&of),
        Attestation::SetKeys(AttestationSetKeys { cluster, keys, server }) => {
            let keys = files::read(&keys)?;
            change(&AttestationOf { cluster, server }, Change::SetIssuerKeys(keys), "has these keys recorded")
        }
        Attestation::Forget(of) => {
            change(&of, Change::Forget(Forget {}), "has nothing recorded of its agents' account")
        }
        Attestation::Reopen(of) => {
            change(&of, Change::Reopen(Reopen {}), "is open to pods that prove themselves")
        }
    }
}

fn show(of: &AttestationOf) -> Result<Vec<String>, AttestationError> {
    let name = of.cluster.to_string();
    let found =
        runtime::run(async |scope| Admin::connect(of.server.place(), scope).await?.attestation(name).await)??;
    let GetAttestationResponse { workload, closed } = found;
    let mut lines = match workload {
        None => vec![
            format!("Account:    {}", print::none()),
            format!(
                "# An agent in a pod that enrolls with a token records it: tombolo token create --cluster {}",
                of.cluster
            ),
        ],
        Some(workload) => told(&workload),
    };
    lines.push(match closed {
        None => "Closed:     no".to_owned(),
        Some(closed) => format!(
            "Closed:     since {closed}; to reopen: tombolo cluster attestation reopen {}",
            of.cluster
        ),
    });
    Ok(lines)
}

fn told(workload: &Workload) -> Vec<String> {
    let Workload { namespace, service_account, service_account_uid, issuer, issuer_keys, recorded } =
        workload;
    let recorded = recorded.map_or_else(print::none, |recorded| recorded.to_string());
    vec![
        format!("Account:    {namespace}/{service_account}"),
        format!("UID:        {service_account_uid}"),
        format!("Issuer:     {issuer}"),
        format!("Keys:       {}", names(issuer_keys).join(", ")),
        format!("Recorded:   {recorded}"),
    ]
}

/// The names of keys.
fn names(keys: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct Keys {
        keys: Vec<Key>,
    }
    #[derive(Deserialize)]
    struct Key {
        kid: Option<String>,
    }
    let keys = serde_json::from_str::<Keys>(keys).map_or_else(|_| Vec::new(), |Keys { keys }| keys);
    keys.into_iter().map(|key| key.kid.unwrap_or_else(|| "<unnamed>".to_owned())).collect()
}

fn change(of: &AttestationOf, change: Change, told: &str) -> Result<Vec<String>, AttestationError> {
    let request = ChangeAttestationRequest { cluster: of.cluster.to_string(), change: Some(change) };
    runtime::run(async |scope| {
        Admin::connect(of.server.place(), scope).await?.change_attestation(request).await
    })??;
    Ok(vec![format!("cluster {} {told}", of.cluster)])
}
