//! Units of systemd: of node-lb and of kubelet.

use super::programs::{ProgramError, run};

/// The unit of node-lb, and its text as it is shipped.
pub(super) const NODE_LB_UNIT: &str = "node-lb.service";
pub(super) const NODE_LB_UNIT_TEXT: &str = include_str!("../../../deploy/systemd/node-lb.service");

/// The name of kubelet's unit.
pub(super) const KUBELET_UNIT: &str = "kubelet.service";

/// The folder of the units that an administrator adds.
pub(super) const UNITS: &str = "etc/systemd/system";

/// Runs `systemctl` with these arguments.
pub(super) fn systemctl(words: &[&str]) -> Result<(), ProgramError> {
    run("systemctl", words).map(drop)
}
