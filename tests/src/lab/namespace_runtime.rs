//! A thread in a site's network namespace for code of the test itself.

use tokio::runtime::Runtime;

use crate::network::NetworkNamespace;

/// A runtime in a network namespace; what it runs is dropped with it.
#[derive(Debug)]
#[must_use = "what runs in it is dropped with it"]
pub struct NamespaceRuntime(Option<Runtime>);

impl NamespaceRuntime {
    /// A thread in this namespace.
    pub fn new(namespace: &NetworkNamespace) -> Self {
        Self(Some(super::runtime(namespace, 1)))
    }

    /// Runs a future there to its end: its sockets are of that namespace, and so are those of the tasks that
    /// it spawns, which live on.
    ///
    /// # Panics
    /// Where the future does.
    pub async fn run<F>(&self, future: F) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let runtime = self.0.as_ref().expect("it is taken in `drop` alone");
        match runtime.spawn(future).await {
            Ok(output) => output,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

impl Drop for NamespaceRuntime {
    fn drop(&mut self) {
        // A runtime that waits for its threads must not be dropped within another one.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
