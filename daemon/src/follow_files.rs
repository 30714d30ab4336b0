//! Reads files again whenever they may have changed, and takes what is new.

use std::path::Path;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::file_watch::FileWatch;

/// The wait until files that do not fit are read again: a program may have written only one of them.
const FILES_SETTLE: Duration = Duration::from_secs(1);

/// The result of a change of followed files.
#[derive(Debug, PartialEq, Eq)]
pub enum FollowedFiles<'a> {
    /// Their new content is in force.
    Taken,
    /// They are again as they were, after content that was not taken.
    Restored,
    /// Their content was not taken, for this reason. It is reported once.
    Refused(&'a str),
}

/// Follows the files at `paths` as long as it is polled, or until the process ends. `read` reads all of them;
/// `take` puts their content into force, and returns true if it is new. Both block, and run on threads for
/// that. `report` learns of each change.
pub async fn follow_files<T: Send + 'static>(
    paths: &[&Path],
    read: impl Fn() -> Result<T, String> + Clone + Send + 'static,
    take: impl Fn(T) -> Result<bool, String> + Clone + Send + 'static,
    mut report: impl FnMut(FollowedFiles<'_>) + Send,
) {
    let mut watch = FileWatch::of(paths);
    let mut refused = None;
    loop {
        watch.changed().await;
        let Ok(mut found) = spawn_blocking(read.clone()).await else { return };
        if found.is_err() {
            sleep(FILES_SETTLE).await;
            let Ok(again) = spawn_blocking(read.clone()).await else { return };
            found = again;
        }
        let take = take.clone();
        let Ok(taken) = spawn_blocking(move || found.and_then(take)).await else { return };
        match taken {
            Ok(true) => {
                refused = None;
                report(FollowedFiles::Taken);
            }
            Ok(false) if refused.take().is_some() => report(FollowedFiles::Restored),
            Ok(false) => {}
            // The same fault as before.
            Err(error) if refused.as_ref() == Some(&error) => {}
            Err(error) => {
                report(FollowedFiles::Refused(&error));
                refused = Some(error);
            }
        }
    }
}
