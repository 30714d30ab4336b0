//! The files of the agent's identity, taken up again whenever they change: its certificate, its key, and the roots of
//! its servers.

use std::time::Duration;

use daemon::{FileWatch, error_chain};
use proto::ClusterId;
use proto::spiffe::AgentId;
use rustls_pki_types::CertificateDer;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::config::TlsFiles;
use crate::identity::{Identity, IdentityError};
use crate::metrics;
use crate::server_trust::ServerTrust;

/// The wait until files that do not fit are read again: a program may have written only one of them.
const FILES_SETTLE: Duration = Duration::from_secs(1);

/// The files that the configuration names, and the conditions that their content must meet.
#[derive(Debug, Clone)]
pub(super) struct IdentityFiles {
    files: TlsFiles,
    cluster: ClusterId,
    trust_domain: String,
}

impl IdentityFiles {
    pub(super) fn new(files: &TlsFiles, cluster: &ClusterId, trust_domain: &str) -> Self {
        Self { files: files.clone(), cluster: cluster.clone(), trust_domain: trust_domain.to_owned() }
    }

    /// Reads and checks the files. Blocks.
    pub(super) fn load(&self) -> Result<Identity, IdentityError> {
        Identity::load(&self.files, &self.cluster, &self.trust_domain)
    }

    /// Takes up changed files as long as it is polled. Files that cannot be used change nothing. The `agent` shows the
    /// certificate `shown` now.
    pub(super) async fn follow(
        self,
        agent: AgentId,
        mut shown: Vec<CertificateDer<'static>>,
        trust: ServerTrust,
    ) {
        metrics::describe_identity_files();
        let TlsFiles { certificate, key, server_ca } = &self.files;
        let [mut certificate, mut key, mut roots] =
            [certificate, key, server_ca].map(|path| FileWatch::new(path));
        let mut refused = None;
        loop {
            // All arms are cancel-safe: whichever file has changed, all are read.
            tokio::select! {
                () = certificate.changed() => {}
                () = key.changed() => {}
                () = roots.changed() => {}
            }
            let Some(mut found) = self.read().await else { return };
            if found.is_err() {
                sleep(FILES_SETTLE).await;
                let Some(again) = self.read().await else { return };
                found = again;
            }
            match found.and_then(|identity| take(&agent, &trust, identity, &mut shown)) {
                Ok(is_new) => {
                    if is_new || refused.take().is_some() {
                        metrics::identity_files_read(true);
                    }
                    if is_new {
                        info!("the files of this agent's identity have changed, and the next dials use them");
                    }
                    refused = None;
                }
                // The same fault as before.
                Err(error) if refused.as_ref() == Some(&error) => {}
                Err(error) => {
                    metrics::identity_files_read(false);
                    warn!(
                        error,
                        "the files of this agent's identity have changed and were not taken, the last valid ones stay in force"
                    );
                    refused = Some(error);
                }
            }
        }
    }

    /// The identity that the files have now; `None` if the process ends.
    async fn read(&self) -> Option<Result<Identity, String>> {
        let files = self.clone();
        let read = spawn_blocking(move || files.load()).await.ok()?;
        Some(read.map_err(|error| error_chain(&error).to_string()))
    }
}

/// Uses another identity from the next dial on. Returns true if it differs from the one that is `shown`.
fn take(
    agent: &AgentId,
    trust: &ServerTrust,
    identity: Identity,
    shown: &mut Vec<CertificateDer<'static>>,
) -> Result<bool, String> {
    let Identity { agent: named, chain, key, server_roots } = identity;
    if named != *agent {
        return Err(format!("the certificate is for {named} and this process is {agent}: restart it"));
    }
    let has_new_roots =
        trust.replace_roots(&server_roots).map_err(|error| error_chain(&error).to_string())?;
    if has_new_roots {
        metrics::certificates("server_ca", &trust.roots());
    }
    if *shown == chain {
        return Ok(has_new_roots);
    }
    trust.replace_certificate(chain.clone(), key).map_err(|error| error_chain(&error).to_string())?;
    metrics::certificates("agent", chain.get(..1).unwrap_or_default());
    *shown = chain;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;
    use std::time::SystemTime;

    use daemon::StateDir;
    use rcgen::{CertificateParams, KeyPair, SanType, date_time_ymd};
    use rustls::time_provider::DefaultTimeProvider;
    use tempfile::TempDir;
    use transport::tls::ExpectedServers;
    use trust::OutsideValidity;

    use super::*;

    /// An operator may renew the certificate of a site whose clock is right.
    #[test]
    fn a_replaced_certificate_is_shown_while_the_first_is_invalid() {
        let site = SiteFiles::with_certificate_until(2001);
        let (files, trust) = (site.files(), site.trust());
        let Identity { agent, chain: mut shown, .. } = files.load().unwrap();
        let now = SystemTime::now();
        assert!(matches!(trust.outside_validity(now), Some(OutsideValidity::Expired(_))));
        assert_eq!(
            take(&agent, &trust, files.load().unwrap(), &mut shown),
            Ok(false),
            "it is shown as it is"
        );

        fs::write(site.home.path().join("agent.crt"), "nothing of the kind").unwrap();
        assert!(error_chain(&files.load().unwrap_err()).to_string().contains("agent.crt"));
        site.write_until(3000);

        assert_eq!(take(&agent, &trust, files.load().unwrap(), &mut shown), Ok(true));
        assert_eq!(trust.outside_validity(now), None);
        assert!(matches!(trust.outside_validity(SystemTime::UNIX_EPOCH), Some(OutsideValidity::NotYet(_))));
    }

    struct SiteFiles {
        home: TempDir,
    }

    impl SiteFiles {
        fn with_certificate_until(year: i32) -> Self {
            let site = Self { home: tempfile::tempdir().unwrap() };
            site.write_until(year);
            site
        }

        /// Writes a certificate that is valid from the year 2000 to this one.
        fn write_until(&self, year: i32) {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            let uri = "spiffe://tombolo/cluster/edge-a/agent/0f3c";
            params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
            (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(year, 1, 1));
            let certificate = params.self_signed(&key).unwrap().pem();
            let write = |name: &str, text: &str| fs::write(self.home.path().join(name), text).unwrap();
            write("agent.crt", &certificate);
            write("server-ca.crt", &certificate);
            write("agent.key", &key.serialize_pem());
        }

        fn files(&self) -> IdentityFiles {
            let path = |name: &str| self.home.path().join(name);
            let files = TlsFiles {
                certificate: path("agent.crt"),
                key: path("agent.key"),
                server_ca: path("server-ca.crt"),
            };
            IdentityFiles::new(&files, &"edge-a".parse().unwrap(), "tombolo")
        }

        fn trust(&self) -> ServerTrust {
            let Identity { chain, key, server_roots, .. } = self.files().load().unwrap();
            let expected = ExpectedServers { trust_domain: "tombolo".to_owned(), ids: Vec::new() };
            let state = StateDir::open(&self.home.path().join("state")).unwrap();
            let clock = Arc::new(DefaultTimeProvider);
            ServerTrust::new((chain, key), &server_roots, expected, state, clock).unwrap()
        }
    }
}
