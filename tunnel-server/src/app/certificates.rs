//! The certificates that listeners show, taken up again whenever their files change.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use daemon::{Failure, FollowedFiles, Scope, error_chain, follow_files};
use tracing::{info, warn};
use transport::tls::SharedCertificate;

use crate::config::{CertifiedPair, PairFiles};
use crate::metrics::{self, ReloadStatus, ReloadedFile};

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
    scope.spawn_background(follow_pair(file, used_for, files, Arc::clone(&shared)));
    Ok(shared)
}

/// Follows the two files of one certificate as long as it is polled.
async fn follow_pair(
    file: ReloadedFile,
    used_for: &'static str,
    files: PairFiles,
    shared: Arc<SharedCertificate>,
) {
    let mut status = ReloadStatus::new(file);
    let [certificate, key] = files.paths().map(Path::to_owned);
    let shown = Arc::clone(&shared);
    let read = move || read(&files, &shown);
    let take = move |pair| take(pair, used_for, &shared);
    let path = certificate.display().to_string();
    let report = |outcome: FollowedFiles<'_>| match outcome {
        FollowedFiles::Taken => {
            status.read(true);
            info!(file = path, "the certificate has changed, and new connections see the new one");
        }
        FollowedFiles::Restored => status.read(true),
        FollowedFiles::Refused(error) => {
            status.read(false);
            warn!(
                file = path,
                error, "the certificate has changed and was not taken, the last valid one stays in force"
            );
        }
    };
    follow_files(&[&certificate, &key], read, take, report).await;
}

/// Reads the pair. One that is shown already may have expired meanwhile, which is no change. Blocks.
fn read(files: &PairFiles, shown: &SharedCertificate) -> Result<CertifiedPair, String> {
    let pair = files.read().map_err(|error| error.to_string())?;
    if pair.chain != shown.current().cert {
        files.check_validity(&pair, SystemTime::now()).map_err(|error| error.to_string())?;
    }
    Ok(pair)
}

/// Shows the pair from now on. Returns false if it is shown already.
fn take(pair: CertifiedPair, used_for: &'static str, shared: &SharedCertificate) -> Result<bool, String> {
    let CertifiedPair { chain, key, .. } = pair;
    if chain == shared.current().cert {
        return Ok(false);
    }
    let leaf = chain.get(..1).unwrap_or_default().to_vec();
    shared.replace(chain, key).map_err(|error| error_chain(&error).to_string())?;
    metrics::certificates(used_for, &leaf);
    Ok(true)
}
