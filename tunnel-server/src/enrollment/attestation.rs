//! Decides whether a token belongs to a pod of the cluster's own agents. Pure.

use std::time::SystemTime;

use proto::enrollment as sent;

use crate::directory::{Attestation, Workload};
use crate::identity::oidc::pod::{AddKeysError, IssuerKeys, IssuerKeysError, Pod, PodTokenError, Verifier};

/// Longest name of an issuer, in bytes. Administrators see it.
const ISSUER_BYTES_MAX: usize = 2_048;

/// The conditions for a pod's token: the verifier, the audience and the time.
#[derive(Debug, Clone, Copy)]
pub(super) struct PodVerification<'a> {
    pub(super) verifier: Verifier,
    pub(super) audience: &'a str,
    pub(super) now: SystemTime,
}

/// The reason why a pod is not one of the cluster's agents.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotOurPod {
    #[error(transparent)]
    Pod(#[from] PodTokenError),
    #[error(
        "it is of the ServiceAccount {found}, and the cluster's agents are of {recorded}: if the account was made anew, have an \
         administrator forget it (tombolo cluster attestation forget) and enroll with a new token"
    )]
    Account { found: String, recorded: String },
    #[error("its issuer is no text of 1 to {ISSUER_BYTES_MAX} printable characters of ASCII")]
    Issuer,
    /// The keys that were sent are unusable, or a record in the store is damaged.
    #[error(transparent)]
    Keys(#[from] IssuerKeysError),
}

/// The reason why keys of an issuer are not added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum AddKeysRefused {
    #[error("the cluster is closed to further pods")]
    Closed,
    #[error(transparent)]
    Keys(#[from] IssuerKeysError),
    #[error(transparent)]
    Unusable(#[from] AddKeysError),
}

impl PodVerification<'_> {
    /// The pod of `token`, verified against the recorded account and keys.
    pub(super) fn pod(self, workload: &Workload, token: &str) -> Result<Pod, NotOurPod> {
        let keys = IssuerKeys::parse(workload.issuer_keys.as_bytes())?;
        let pod = self.verifier.pod(token, (&workload.issuer, &keys), self.audience, self.now)?;
        let is_ours = pod.namespace == workload.namespace
            && pod.account == workload.account
            && pod.account_uid == workload.account_uid;
        if is_ours {
            return Ok(pod);
        }
        let found = format!("{}/{} (UID {})", pod.namespace, pod.account, pod.account_uid);
        let Workload { namespace, account, account_uid, .. } = workload;
        Err(NotOurPod::Account { found, recorded: format!("{namespace}/{account} (UID {account_uid})") })
    }

    /// The workload to record for a cluster without one, if one of the sent keys has signed the sent token.
    pub(super) fn first(self, sent: &sent::Workload) -> Result<(Workload, Pod), NotOurPod> {
        let is_text = sent.issuer.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_text || !(1..=ISSUER_BYTES_MAX).contains(&sent.issuer.len()) {
            return Err(NotOurPod::Issuer);
        }
        let keys = IssuerKeys::parse(&sent.issuer_keys)?;
        let token = &sent.service_account_token;
        let pod = self.verifier.pod(token, (&sent.issuer, &keys), self.audience, self.now)?;
        let workload = Workload {
            namespace: pod.namespace.clone(),
            account: pod.account.clone(),
            account_uid: pod.account_uid.clone(),
            issuer: sent.issuer.clone(),
            issuer_keys: keys.to_json(),
            recorded: self.now.into(),
        };
        Ok((workload, pod))
    }
}

impl NotOurPod {
    /// Returns true if the issuer's key has signed the token that is refused.
    pub(super) fn is_signed(&self) -> bool {
        match self {
            Self::Pod(fault) => fault.is_signed(),
            Self::Account { .. } => true,
            Self::Issuer | Self::Keys(_) => false,
        }
    }
}

/// The workload against which further pods are verified; `None` if none is recorded or the cluster is closed
/// to pods.
pub(super) fn open(attestation: &Attestation) -> Option<&Workload> {
    attestation.workload.as_ref().filter(|_| attestation.closed.is_none())
}

/// The attestation with the new keys among those that were `shown`, and the names of all keys; `None` if no
/// key is new.
pub(super) fn add_keys(
    attestation: &Attestation,
    shown: &[u8],
) -> Result<Option<(Attestation, String)>, AddKeysRefused> {
    let Some(workload) = &attestation.workload else { return Ok(None) };
    let recorded = IssuerKeys::parse(workload.issuer_keys.as_bytes())?;
    let Some(keys) = recorded.with(&IssuerKeys::parse(shown)?)? else { return Ok(None) };
    if attestation.closed.is_some() {
        return Err(AddKeysRefused::Closed);
    }
    let names = keys.names().collect::<Vec<_>>().join(", ");
    let workload = Workload { issuer_keys: keys.to_json(), ..workload.clone() };
    Ok(Some((Attestation { workload: Some(workload), ..attestation.clone() }, names)))
}

#[cfg(test)]
mod tests;
