//! Whether a token is of a pod of the cluster's own agents. Pure.

use std::time::SystemTime;

use proto::enrollment as sent;

use crate::directory::{Attestation, Workload};
use crate::identity::oidc::pod::{AddKeysError, IssuerKeys, IssuerKeysError, Pod, PodTokenError, Verifier};

/// Longest name of an issuer, in bytes. It is shown to people.
const ISSUER_BYTES_MAX: usize = 2_048;

/// What a token is verified for: by whom, for which audience, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct PodVerification<'a> {
    pub(super) verifier: Verifier,
    pub(super) audience: &'a str,
    pub(super) now: SystemTime,
}

/// Why a pod is none of the cluster's agents.
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
    /// Those that were sent, or a record of ours that is damaged.
    #[error(transparent)]
    Keys(#[from] IssuerKeysError),
}

/// Why keys of an issuer are not recorded.
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
    /// The pod of which `token` is, by the account and the keys that are recorded.
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

    /// What to record of a cluster's agents, if the token that came along is signed by one of the keys that came along.
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
    /// Whether the issuer's key has signed what is refused.
    pub(super) fn is_signed(&self) -> bool {
        match self {
            Self::Pod(fault) => fault.is_signed(),
            Self::Account { .. } => true,
            Self::Issuer | Self::Keys(_) => false,
        }
    }
}

/// By what further pods are verified, if any may come.
pub(super) fn open(attestation: &Attestation) -> Option<&Workload> {
    attestation.workload.as_ref().filter(|_| attestation.closed.is_none())
}

/// What is to be recorded once these keys of a cluster's issuer were `shown`, and the names of all; `None` where nothing is new.
pub(super) fn add_keys(
    attestation: &Attestation,
    shown: &[u8],
) -> Result<Option<(Attestation, String)>, AddKeysRefused> {
    let Some(workload) = &attestation.workload else { return Ok(None) };
    let known = IssuerKeys::parse(workload.issuer_keys.as_bytes())?;
    let Some(keys) = known.with(&IssuerKeys::parse(shown)?)? else { return Ok(None) };
    if attestation.closed.is_some() {
        return Err(AddKeysRefused::Closed);
    }
    let names = keys.names().collect::<Vec<_>>().join(", ");
    let workload = Workload { issuer_keys: keys.to_json(), ..workload.clone() };
    Ok(Some((Attestation { workload: Some(workload), ..attestation.clone() }, names)))
}

#[cfg(test)]
mod tests;
