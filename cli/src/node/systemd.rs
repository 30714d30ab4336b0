//! Units of systemd: of node-lb and of kubelet.

use std::process::Command;

/// The unit of node-lb, and its text as it is shipped.
pub(super) const NODE_LB_UNIT: &str = "node-lb.service";
pub(super) const NODE_LB_UNIT_TEXT: &str = include_str!("../../../deploy/systemd/node-lb.service");

/// The name of kubelet's unit.
pub(super) const KUBELET_UNIT: &str = "kubelet.service";

/// The folder of the units that an administrator adds.
pub(super) const UNITS: &str = "etc/systemd/system";

/// The error of one run of `systemctl`.
#[derive(Debug, thiserror::Error)]
#[error("`systemctl {words}` failed: {output}")]
pub(crate) struct SystemctlError {
    words: String,
    output: String,
}

/// Runs `systemctl` with these arguments.
pub(super) fn systemctl(words: &[&str]) -> Result<(), SystemctlError> {
    let failed = |output: String| SystemctlError { words: words.join(" "), output };
    match Command::new("systemctl").args(words).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        Err(error) => Err(failed(error.to_string())),
    }
}
