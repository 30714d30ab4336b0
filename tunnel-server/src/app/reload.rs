//! Reloads files when they may have changed. An invalid file changes nothing, and the last valid one stays in
//! force.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use daemon::config::KeyError;
use daemon::{FileWatch, Scope, error_chain};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tracing::{info, warn};
use trust::Role;
use trust::bundle::{Anchors, BundleError, TrustBundle};

use crate::config::{self, AdminRules, ClusterSet, Config, ConfigError};
use crate::metrics::{ReloadStatus, ReloadedFile};

/// Calls `take` with the bytes of the file at `path` whenever they differ from `contents`, and then after
/// each change. An error of `take` is logged.
pub(super) async fn follow(
    file: ReloadedFile,
    path: PathBuf,
    contents: Vec<u8>,
    read: impl Fn(&Path) -> Result<Vec<u8>, KeyError> + Clone + Send + 'static,
    mut take: impl FnMut(Vec<u8>) -> Result<(), String> + Send,
) {
    let mut status = ReloadStatus::new(file);
    let mut watch = FileWatch::new(&path);
    let mut found = Ok(contents);
    loop {
        watch.changed().await;
        let (read, path_again) = (read.clone(), path.clone());
        let Ok(now) = spawn_blocking(move || read(&path_again)).await else {
            return; // The process ends.
        };
        let now = now.map_err(|error| error.to_string());
        if now == found {
            continue;
        }
        found = now.clone();
        let taken = now.and_then(&mut take);
        status.read(taken.is_ok());
        match taken {
            Ok(()) => info!(file = %path.display(), "the file has changed, and its new content is in force"),
            Err(error) => {
                warn!(file = %path.display(), error, "the file has changed and was not taken, the last valid content stays in force");
            }
        }
    }
}

/// Reloads the trust bundle for agents. A new bundle must be acceptable to agents that have the current one,
/// so that none is left behind.
pub(super) async fn follow_bundle(
    path: PathBuf,
    domain: String,
    contents: Vec<u8>,
    given: watch::Sender<Arc<[u8]>>,
) {
    let mut current = contents.clone();
    let (read_in, taken_in) = (domain.clone(), domain);
    let read = move |path: &Path| config::trust_bundle(path, &read_in);
    let take = move |bytes: Vec<u8>| {
        succeeds(&current, &bytes, &taken_in).map_err(|error| error_chain(&error).to_string())?;
        current.clone_from(&bytes);
        given.send_replace(bytes.into());
        Ok(())
    };
    follow(ReloadedFile::TrustBundle, path, contents, read, take).await;
}

/// Reloads the administrators from the configuration file.
pub(super) async fn follow_admins(path: PathBuf, given: watch::Sender<Arc<AdminRules>>) {
    let take = move |rules| drop(given.send_replace(Arc::new(rules)));
    follow_config(ReloadedFile::Admins, path, config::admin_rules, take).await;
}

/// The cluster sets of the configuration file, which is read again when it changes.
pub(super) fn cluster_sets(config: &mut Config, scope: &Scope) -> watch::Receiver<Arc<[ClusterSet]>> {
    let (given, taken) = watch::channel(Arc::from(std::mem::take(&mut config.cluster_sets)));
    let take = move |sets: Vec<ClusterSet>| drop(given.send_replace(sets.into()));
    let path = config.file.clone();
    scope.spawn_background(follow_config(ReloadedFile::ClusterSets, path, config::cluster_sets_of, take));
    taken
}

/// Reloads a part of the configuration file, which `parse` reads. Most other parts need a restart.
async fn follow_config<T>(
    file: ReloadedFile,
    path: PathBuf,
    parse: impl Fn(&str, &Path) -> Result<T, ConfigError> + Send,
    take: impl Fn(T) + Send,
) {
    let (contents, at) = (read_config(&path).unwrap_or_default(), path.clone());
    let take = move |bytes: Vec<u8>| {
        let text = String::from_utf8(bytes).map_err(|error| error.to_string())?;
        take(parse(&text, &at).map_err(|error| error_chain(&error).to_string())?);
        Ok(())
    };
    follow(file, path, contents, read_config, take).await;
}

fn read_config(path: &Path) -> Result<Vec<u8>, KeyError> {
    let text = daemon::config::read(path).map_err(|error| {
        KeyError::new(
            "--config",
            path.display(),
            format!("in a file that can be read ({})", error_chain(&error)),
        )
    })?;
    Ok(text.into_bytes())
}

/// Checks that an agent that has the bundle `current` accepts `next`.
fn succeeds(current: &[u8], next: &[u8], domain: &str) -> Result<(), BundleError> {
    let current = TrustBundle::decode_unverified(current)?;
    let domain = domain.parse().unwrap_or_else(|_| current.domain().clone());
    let anchors = Anchors::new(domain).and_roots(current.roots(Role::Server));
    anchors.accept(next, Some(&current)).map(drop)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use trust::Root;

    use super::*;

    #[test]
    fn a_bundle_is_replaced_only_by_one_that_its_own_roots_have_signed() {
        let domain: trust::names::TrustDomain = "tombolo".parse().unwrap();
        let now = SystemTime::now();
        let root = || Root::generate(Role::Server, domain.clone(), now).unwrap();
        let (old, new, other) = (root(), root(), root());
        let bundle = |version, roots: &[&Root], by: &[&Root]| {
            let roots = roots.iter().map(|root| (Role::Server, root.certificate().clone()));
            TrustBundle::new(version, domain.clone(), now, roots).unwrap().sign(by).unwrap()
        };
        let first = bundle(1, &[&old], &[&old]);
        let both = bundle(2, &[&old, &new], &[&old]);
        assert!(succeeds(&first, &both, "tombolo").is_ok());
        assert!(succeeds(&both, &bundle(3, &[&new], &[&new]), "tombolo").is_ok());
        assert!(succeeds(&first, &first, "tombolo").is_ok());
        for (what, next) in [
            ("without overlap", bundle(3, &[&new], &[&new])),
            ("of a foreign root", bundle(2, &[&old, &other], &[&other])),
            ("noise", b"noise".to_vec()),
        ] {
            assert!(succeeds(&first, &next, "tombolo").is_err(), "{what}");
        }
        assert!(matches!(succeeds(&both, &first, "tombolo"), Err(BundleError::Outdated { .. })));
    }
}
