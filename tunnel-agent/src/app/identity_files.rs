//! The files of the agent's identity, taken up again whenever they change: its certificate, its key, and the roots of
//! its servers.

use daemon::{FollowedFiles, error_chain, follow_files};
use proto::ClusterId;
use proto::spiffe::AgentId;
use tracing::{info, warn};

use crate::config::TlsFiles;
use crate::identity::{Identity, IdentityError};
use crate::metrics;
use crate::server_trust::ServerTrust;

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

    /// Takes up changed files as long as it is polled. Files that cannot be used change nothing. The process
    /// is `agent`.
    pub(super) async fn follow(self, agent: AgentId, trust: ServerTrust) {
        metrics::describe_identity_files();
        let TlsFiles { certificate, key, server_ca } = self.files.clone();
        let read = move || self.load().map_err(|error| error_chain(&error).to_string());
        let take = move |identity| take(&agent, &trust, identity);
        let report = |outcome: FollowedFiles<'_>| match outcome {
            FollowedFiles::Taken => {
                metrics::identity_files_read(true);
                info!("the files of this agent's identity have changed, and the next dials use them");
            }
            FollowedFiles::Restored => metrics::identity_files_read(true),
            FollowedFiles::Refused(error) => {
                metrics::identity_files_read(false);
                warn!(
                    error,
                    "the files of this agent's identity have changed and were not taken, the last valid ones stay in force"
                );
            }
        };
        follow_files(&[&certificate, &key, &server_ca], read, take, report).await;
    }
}

/// Uses another identity from the next dial on. Returns true if it differs from the one before. Blocks.
fn take(agent: &AgentId, trust: &ServerTrust, identity: Identity) -> Result<bool, String> {
    let Identity { agent: named, chain, key, server_roots } = identity;
    if named != *agent {
        return Err(format!("the certificate is for {named} and this process is {agent}: restart it"));
    }
    let has_new_roots =
        trust.replace_roots(&server_roots).map_err(|error| error_chain(&error).to_string())?;
    if has_new_roots {
        metrics::certificates("server_ca", &trust.roots());
    }
    if trust.shows(&chain) {
        return Ok(has_new_roots);
    }
    let leaf = chain.get(..1).unwrap_or_default().to_vec();
    trust.replace_certificate(chain, key).map_err(|error| error_chain(&error).to_string())?;
    metrics::certificates("agent", &leaf);
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
        let agent = files.load().unwrap().agent;
        let now = SystemTime::now();
        assert!(matches!(trust.outside_validity(now), Some(OutsideValidity::Expired(_))));
        assert_eq!(take(&agent, &trust, files.load().unwrap()), Ok(false), "it is shown as it is");

        fs::write(site.home.path().join("agent.crt"), "nothing of the kind").unwrap();
        assert!(error_chain(&files.load().unwrap_err()).to_string().contains("agent.crt"));
        site.write_until(3000);

        assert_eq!(take(&agent, &trust, files.load().unwrap()), Ok(true));
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
