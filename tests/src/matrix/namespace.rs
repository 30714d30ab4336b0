//! Runs lines of shell in network namespaces, and defines the error about a fault that cannot be made.

use std::path::Path;
use std::time::Duration;

use crate::process::{Invocation, run};

/// The limit for one program that makes a fault.
pub(super) const TOOL_MAX: Duration = Duration::from_secs(20);

/// The fault cannot be made here.
#[derive(Debug, thiserror::Error)]
#[error("the fault could not be made: {0}")]
pub struct FaultUnavailable(pub String);

/// Runs a line of shell in a network namespace.
pub(super) async fn in_namespace(namespace: &Path, script: &str) -> Result<(), FaultUnavailable> {
    let shell =
        Invocation::of("sh").arguments(["-c", script]).in_network_namespace(Some(namespace.to_owned()));
    let output = run(&shell, TOOL_MAX).await.map_err(|error| FaultUnavailable(error.to_string()))?;
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(FaultUnavailable(format!("{script}: {message}"))) }
}
