//! Notices that a file may have changed, however it was replaced: in place, by a rename, or by Kubernetes, which swaps the
//! link `..data` beside it.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};
use tracing::debug;

/// How often a file is looked at although nothing was said: it may be a link to where nobody listens, or on a network.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How long to wait for the rest of what an editor or a script does to a file.
const SETTLE: Duration = Duration::from_millis(100);

/// The link that Kubernetes swaps when a ConfigMap or a Secret changes.
const KUBERNETES_DATA: &str = "..data";

/// Tells when a file should be read again. Whether it has changed is for the reader to say.
#[derive(Debug)]
pub struct FileWatch {
    /// Listens until it is dropped; `None` where the system has no place left for one.
    _watcher: Option<RecommendedWatcher>,
    told: mpsc::Receiver<()>,
    looks: Interval,
}

impl FileWatch {
    /// Watches the folder of `path`, and so the file too when it comes, goes or is replaced.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        // One place: that something has changed is said once.
        let (tell, told) = mpsc::channel(1);
        let name = path.file_name().map(OsStr::to_owned);
        let folder =
            path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        let on_event = move |event: notify::Result<Event>| {
            // What cannot be told from a change is one.
            if event.as_ref().map_or(true, |event| is_about(event, name.as_deref())) {
                let _ = tell.try_send(());
            }
        };
        let watcher = notify::recommended_watcher(on_event).and_then(|mut watcher| {
            watcher.watch(folder, RecursiveMode::NonRecursive)?;
            Ok(watcher)
        });
        let watcher = watcher
            .inspect_err(|error| debug!(%error, folder = %folder.display(), "only looking now and then"))
            .ok();
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        looks.reset();
        Self { _watcher: watcher, told, looks }
    }

    /// Waits until the file should be read again.
    pub async fn changed(&mut self) {
        // Cancel-safe: what is lost of a notice is found by the next look.
        tokio::select! {
            Some(()) = self.told.recv() => {
                sleep(SETTLE).await;
                while self.told.try_recv().is_ok() {}
            }
            _ = self.looks.tick() => {}
        }
    }
}

/// Whether an event may mean another content of the file called `name`. Reading it, as we do ourselves, does not.
fn is_about(event: &Event, name: Option<&OsStr>) -> bool {
    let is_read = matches!(event.kind, EventKind::Access(_));
    let mut names = event.paths.iter().map(|path| path.file_name());
    !is_read
        && (event.paths.is_empty()
            || names.any(|some| some == name || some == Some(OsStr::new(KUBERNETES_DATA))))
}

#[cfg(test)]
mod tests;
