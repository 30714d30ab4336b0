//! One thread that waits for the network, for the commands that use it.

use std::io;

use daemon::Scope;
use tokio::runtime::Builder;

/// The system gave none.
#[derive(Debug, thiserror::Error)]
#[error("the runtime for the network cannot be built")]
pub(crate) struct NoRuntime(#[from] io::Error);

/// Runs `command`; what it left in its scope ends with it.
pub(crate) fn run<T>(command: impl AsyncFnOnce(&Scope) -> T) -> Result<T, NoRuntime> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(async {
        let scope = Scope::here();
        let done = command(&scope).await;
        scope.abort();
        done
    }))
}
