//! Watches a file for changes of any kind: a write in place, a rename, or Kubernetes' swap of the link
//! `..data` beside it.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};
use tracing::debug;

/// The interval of polling without an event: the file may be a link to an unwatched directory, or on a
/// network.
const POLL_EVERY: Duration = Duration::from_secs(10);

/// The wait after an event, for further writes of the same editor or script.
const SETTLE: Duration = Duration::from_millis(100);

/// The link that Kubernetes swaps when a ConfigMap or a Secret changes.
const KUBERNETES_DATA: &str = "..data";

/// Signals when files should be read again. The reader decides whether it has changed.
#[derive(Debug)]
pub struct FileWatch {
    /// Watches until it is dropped; `None` if the system has no watch left.
    _watcher: Option<RecommendedWatcher>,
    events: mpsc::Receiver<()>,
    polls: Interval,
}

impl FileWatch {
    /// Watches the directory of `path`, and so the file when it is created, removed or replaced.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self::of(&[path])
    }

    /// Watches several files, which are to be read together.
    #[must_use]
    pub fn of(paths: &[&Path]) -> Self {
        // A capacity of one: several changes are one notice.
        let (sender, events) = mpsc::channel(1);
        let names: Vec<OsString> =
            paths.iter().filter_map(|path| path.file_name()).map(OsStr::to_owned).collect();
        let on_event = move |event: notify::Result<Event>| {
            // An error may hide a change, so it counts as one.
            if event.as_ref().map_or(true, |event| may_change(event, &names)) {
                let _ = sender.try_send(());
            }
        };
        let folders: BTreeSet<&Path> = paths.iter().map(|path| folder(path)).collect();
        let watcher = notify::recommended_watcher(on_event)
            .inspect_err(|error| debug!(%error, "cannot watch files, polling instead"))
            .ok()
            .map(|mut watcher| {
                for folder in folders {
                    if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                        debug!(%error, folder = %folder.display(), "cannot watch the directory, polling instead");
                    }
                }
                watcher
            });
        let mut polls = interval(POLL_EVERY);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        polls.reset();
        Self { _watcher: watcher, events, polls }
    }

    /// Waits until the files should be read again. Cancel-safe.
    pub async fn changed(&mut self) {
        // Cancel-safe: a lost notice is made up by the next poll.
        tokio::select! {
            Some(()) = self.events.recv() => {
                sleep(SETTLE).await;
                while self.events.try_recv().is_ok() {}
            }
            _ = self.polls.tick() => {}
        }
    }
}

/// The directory of the file at `path`.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// Returns true if an event may mean a new content of a file with one of these names. Reading it, as we do
/// ourselves, does not.
fn may_change(event: &Event, files: &[OsString]) -> bool {
    let is_read = matches!(event.kind, EventKind::Access(_));
    let mut names = event.paths.iter().map(|path| path.file_name());
    !is_read
        && (event.paths.is_empty()
            || names.any(|name| {
                name.is_some_and(|name| name == KUBERNETES_DATA || files.iter().any(|file| file == name))
            }))
}

#[cfg(test)]
mod tests;
