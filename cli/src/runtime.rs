//! A single-threaded Tokio runtime for the commands that use the network.

use std::io;

use daemon::Scope;
use tokio::runtime::Builder;

/// The operating system refused a runtime.
#[derive(Debug, thiserror::Error)]
#[error("the runtime for the network cannot be built")]
pub(crate) struct RuntimeError(#[from] io::Error);

/// Runs `command`. Tasks that it leaves in its scope are aborted.
pub(crate) fn run<T>(command: impl AsyncFnOnce(&Scope) -> T) -> Result<T, RuntimeError> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(async {
        let scope = Scope::here();
        let done = command(&scope).await;
        scope.abort();
        done
    }))
}
