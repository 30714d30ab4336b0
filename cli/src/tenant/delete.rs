//! `tombolo tenant delete`: removes a control plane, and with --purge all that it has stored.

use super::host::{Host, HostError};
use super::pki::SECRETS;
use super::record::{RecordError, TenantRecord};
use super::roots::ROOTS;
use crate::args::TenantDelete;
use crate::confirm::{self, ConfirmError};

/// A tenant was not deleted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeleteError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("nothing was changed: --yes names {0}, and the tenant is {1}")]
    OtherName(String, String),
    #[error("nothing was changed: there is no terminal on which to ask. Give --yes {0} if you are sure")]
    NoTerminal(String),
    #[error(transparent)]
    Confirm(ConfirmError),
}

/// Deletes a tenant once its name was typed again.
///
/// # Errors
/// [`DeleteError`]
pub(crate) fn delete(args: &TenantDelete) -> Result<Vec<String>, DeleteError> {
    let name = args.name.as_str();
    if let Some(other) = args.yes.as_ref().filter(|other| **other != args.name) {
        return Err(DeleteError::OtherName(other.to_string(), name.to_owned()));
    }
    let host = Host::find(&args.host, name)?;
    TenantRecord::read(&host, name)?;
    let warning = if args.purge {
        format!(
            "The tenant {name} loses its control plane, its CAs and everything that it has stored, for ever."
        )
    } else {
        format!("The tenant {name} loses its control plane. Its volumes and CAs stay.")
    };
    confirm::by_name(&warning, name, args.yes.is_some()).map_err(|error| match error {
        ConfirmError::NoTerminal => DeleteError::NoTerminal(name.to_owned()),
        other @ (ConfirmError::OtherAnswer { .. } | ConfirmError::Terminal(_)) => DeleteError::Confirm(other),
    })?;
    host.uninstall()?;
    if args.purge {
        host.kubectl(&["delete", "namespace", name], None)?;
        return Ok(vec![format!(
            "the tenant {name} is gone, with its volumes unless their StorageClass retains them"
        )]);
    }
    let words: Vec<&str> = ["delete", "secrets", "--ignore-not-found"].into_iter().chain(SECRETS).collect();
    host.kubectl(&words, None)?;
    Ok(vec![
        format!(
            "the control plane of the tenant {name} is removed; its volumes and its Secret {ROOTS} are kept"
        ),
        format!("to bring it back: tombolo tenant create {name}"),
        format!("to delete everything: tombolo tenant delete {name} --purge"),
    ])
}
