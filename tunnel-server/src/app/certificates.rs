//! The certificates that listeners show, taken up again whenever their files change.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use daemon::{Failure, FileWatch, Scope, error_chain};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::{info, warn};
use transport::tls::SharedCertificate;

use crate::config::{CertifiedPair, PairFiles};
use crate::metrics::{self, ReloadedFile};

/// The wait until a pair that does not fit is read again: a program may have written only one of two files.
const PAIR_SETTLE: Duration = Duration::from_secs(1);

/// The certificate of `pair`. Within `scope` it is replaced when its files change. A pair that cannot be used
/// changes nothing, and the last valid one is shown. `used_for` names it in the metric of expiry.
///
/// # Errors
/// [`Failure`] if the certificate and its key cannot be used together.
pub(super) fn follow(
    file: ReloadedFile,
    used_for: &'static str,
    pair: CertifiedPair,
    scope: &Scope,
) -> Result<Arc<SharedCertificate>, Failure> {
    let CertifiedPair { chain, key, files } = pair;
    metrics::certificates(used_for, chain.get(..1).unwrap_or_default());
    let shared = SharedCertificate::new(chain, key).map_err(Failure::misconfigured)?;
    let follower = Follower { file, used_for, files, shared: Arc::clone(&shared), refused: None };
    scope.spawn_background(follower.run());
    Ok(shared)
}

/// Follows the two files of one certificate.
struct Follower {
    file: ReloadedFile,
    used_for: &'static str,
    files: PairFiles,
    shared: Arc<SharedCertificate>,
    /// The reason why the last change was not taken.
    refused: Option<String>,
}

impl Follower {
    async fn run(mut self) {
        metrics::describe_file(self.file);
        let [mut certificate, mut key] = self.files.paths().map(FileWatch::new);
        loop {
            // Both arms are cancel-safe: whichever file has changed, both are read.
            tokio::select! {
                () = certificate.changed() => {}
                () = key.changed() => {}
            }
            let Some(mut found) = self.read().await else { return };
            if found.is_err() {
                sleep(PAIR_SETTLE).await;
                let Some(again) = self.read().await else { return };
                found = again;
            }
            self.take(found);
        }
    }

    /// The pair that the files have now; `None` if the process ends.
    async fn read(&self) -> Option<Result<CertifiedPair, String>> {
        let files = self.files.clone();
        let read = spawn_blocking(move || files.read(SystemTime::now())).await.ok()?;
        Some(read.map_err(|error| error.to_string()))
    }

    fn take(&mut self, found: Result<CertifiedPair, String>) {
        let file = self.files.paths()[0].display().to_string();
        let taken = match found {
            Ok(pair) if pair.chain == self.shared.current().cert => {
                // The files are again as they were, or nothing has changed.
                if self.refused.take().is_some() {
                    metrics::file_read(self.file, true);
                }
                return;
            }
            Ok(CertifiedPair { chain, key, .. }) => {
                let leaf = chain.get(..1).unwrap_or_default().to_vec();
                self.shared
                    .replace(chain, key)
                    .map(|()| metrics::certificates(self.used_for, &leaf))
                    .map_err(|error| error_chain(&error).to_string())
            }
            Err(error) => Err(error),
        };
        match taken {
            Ok(()) => {
                self.refused = None;
                metrics::file_read(self.file, true);
                info!(file, "the certificate has changed, and new connections see the new one");
            }
            Err(error) if self.refused.as_ref() != Some(&error) => {
                metrics::file_read(self.file, false);
                warn!(
                    file,
                    error, "the certificate has changed and was not taken, the last valid one stays in force"
                );
                self.refused = Some(error);
            }
            // The same fault as before.
            Err(_) => {}
        }
    }
}
