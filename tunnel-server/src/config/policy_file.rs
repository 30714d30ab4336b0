//! The section `policy`: the policy file, and the cluster whose RBAC can forbid what the policy allows.

use std::path::{Path, PathBuf};

use daemon::config::KeyError;
use serde::Deserialize;

use super::host_cluster::{HostCluster, RawHostCluster, host_cluster};
use super::value::file;

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawPolicy {
    /// Path of the policy, a file of kind Policy. The server reads it again when it changes.
    #[cfg_attr(test, schemars(required))]
    file: Option<PathBuf>,
    /// A cluster whose RBAC may forbid what the policy allows. The server asks it by SubjectAccessReviews.
    delegation: Option<RawHostCluster>,
}

/// The path of the policy file, which is not read yet, and the cluster that is asked beside it, if any.
pub(super) fn policy(raw: RawPolicy, directory: &Path) -> Result<(PathBuf, Option<HostCluster>), KeyError> {
    let RawPolicy { file: path, delegation } = raw;
    let path = file("policy.file", path, directory)?;
    let delegation = delegation.map(|host| host_cluster("policy.delegation", host, directory)).transpose()?;
    Ok((path, delegation))
}
