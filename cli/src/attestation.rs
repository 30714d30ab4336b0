//! `tombolo cluster attestation`: the ServiceAccount and issuer keys by which further pods of an agent enroll without a token.

use proto::admin::change_attestation_request::Change;
use proto::admin::{ChangeAttestationRequest, Forget, GetAttestationResponse, Reopen, Workload};
use serde::Deserialize;

use crate::admin::{Admin, AdminError};
use crate::args::{AttestationCommand, AttestationOf, AttestationSetKeys};
use crate::files::{self, ReadError};
use crate::print;
use crate::runtime::{self, RuntimeError};

/// The error if the attestation was not shown or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttestationError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Admin(#[from] AdminError),
}

/// Shows the attestation of a cluster, or changes it.
pub(crate) fn run(args: AttestationCommand) -> Result<Vec<String>, AttestationError> {
    match args {
        AttestationCommand::Show(of) => show(&of),
        AttestationCommand::SetKeys(AttestationSetKeys { cluster, keys, server }) => {
            let keys = files::read(&keys)?;
            change(
                &AttestationOf { cluster, server },
                Change::SetIssuerKeys(keys),
                "has these issuer keys recorded now",
            )
        }
        AttestationCommand::Forget(of) => {
            change(&of, Change::Forget(Forget {}), "has no ServiceAccount and no issuer keys recorded now")
        }
        AttestationCommand::Reopen(of) => {
            change(&of, Change::Reopen(Reopen {}), "lets pods enroll by their ServiceAccount again")
        }
    }
}

fn show(of: &AttestationOf) -> Result<Vec<String>, AttestationError> {
    let name = of.cluster.to_string();
    let found = runtime::run(async |scope| {
        Admin::connect(of.server.endpoint(), scope).await?.attestation(name).await
    })??;
    let GetAttestationResponse { workload, closed } = found;
    let mut lines = match workload {
        None => vec![
            format!("Account:    {}", print::none()),
            format!(
                "# The first agent that enrolls with a token in a pod records it: tombolo token create --cluster {}",
                of.cluster
            ),
        ],
        Some(workload) => describe(&workload),
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

fn describe(workload: &Workload) -> Vec<String> {
    let Workload { namespace, service_account, service_account_uid, issuer, issuer_keys, recorded } =
        workload;
    let recorded = recorded.map_or_else(print::none, |recorded| recorded.to_string());
    vec![
        format!("Account:    {namespace}/{service_account}"),
        format!("UID:        {service_account_uid}"),
        format!("Issuer:     {issuer}"),
        format!("Keys:       {}", key_ids(issuer_keys).join(", ")),
        format!("Recorded:   {recorded}"),
    ]
}

/// The key ids of a JSON Web Key Set (RFC 7517).
fn key_ids(keys: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct JwkSet {
        keys: Vec<Jwk>,
    }
    #[derive(Deserialize)]
    struct Jwk {
        kid: Option<String>,
    }
    let keys = serde_json::from_str::<JwkSet>(keys).map_or_else(|_| Vec::new(), |JwkSet { keys }| keys);
    keys.into_iter().map(|key| key.kid.unwrap_or_else(|| "<unnamed>".to_owned())).collect()
}

fn change(of: &AttestationOf, change: Change, result: &str) -> Result<Vec<String>, AttestationError> {
    let request = ChangeAttestationRequest { cluster: of.cluster.to_string(), change: Some(change) };
    runtime::run(async |scope| {
        Admin::connect(of.server.endpoint(), scope).await?.change_attestation(request).await
    })??;
    Ok(vec![format!("cluster {} {result}", of.cluster)])
}
