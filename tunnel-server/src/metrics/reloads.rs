//! The metrics of files that are read at the start, and again when they change.

use std::sync::atomic::{AtomicUsize, Ordering};

use metrics::{counter, describe_counter, describe_gauge, gauge};
use proto::text_enum;

const FILE_FAILURES: &str = "tombolo_server_file_reload_failures_total";
const FILE_CURRENT: &str = "tombolo_server_file_reload_last_successful";

text_enum! {
    /// The kind of a file, besides the policy, that the server reloads when it changes. Some kinds have several files.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ReloadedFile {
        /// The file of static tokens.
        Tokens = "tokens",
        /// The trust bundle that is handed to agents.
        TrustBundle = "trust_bundle",
        /// The part of the configuration that lists administrators.
        Admins = "admins",
        /// The part of the configuration that lists cluster sets.
        ClusterSets = "cluster_sets",
        /// The certificate of the server and its key.
        ServerCertificate = "server_certificate",
        /// The certificate of the proxy for dial tokens and its key.
        ProxyCertificate = "proxy_certificate",
        /// The certificate of an entry point for egress and its key.
        EgressCertificate = "egress_certificate",
        /// The certificate that this server shows to other servers, and its key.
        PeerCertificate = "peer_certificate",
        /// The roots of other servers that dial this one.
        PeerCa = "peer_ca",
        /// The roots of servers that this one dials.
        ServerCa = "server_ca",
        /// The certificate that this server shows to etcd, and its key.
        EtcdCertificate = "etcd_certificate",
        /// The signer of agents' certificates and its sealing key.
        EnrollmentSigner = "enrollment_signer",
        /// The file with the roots of agents.
        AgentCa = "agent_ca",
        /// The file with the roots of callers.
        CallerCa = "caller_ca",
        /// The file with the roots of administrators.
        AdminCa = "admin_ca",
        /// The roots of an API server at an entry point for its egress.
        EgressCa = "egress_ca",
        /// The roots of etcd's members.
        EtcdCa = "etcd_ca",
        /// The roots of an issuer of tokens.
        OidcCa = "oidc_ca",
        /// The roots of the API server that reviews tokens.
        TokenReviewCa = "token_review_ca",
        /// The roots of the API server that can forbid what policy allows.
        DelegationCa = "delegation_ca",
        /// The roots of the API server in which clusters' addresses are published.
        PublishCa = "publish_ca",
    }
}

/// The number of files of each kind whose last change was not taken.
static STALE: [AtomicUsize; ReloadedFile::ALL.len()] =
    [const { AtomicUsize::new(0) }; ReloadedFile::ALL.len()];

/// The status of one followed file. A gauge shows its kind as current only if all files of that kind are.
#[derive(Debug)]
pub struct ReloadStatus {
    file: ReloadedFile,
    is_current: bool,
}

impl ReloadStatus {
    /// The status of a file that was read at the start. Describes the metrics.
    #[must_use]
    pub fn new(file: ReloadedFile) -> Self {
        describe_counter!(
            FILE_FAILURES,
            "Changes of a file that were not taken because they are unreadable or invalid."
        );
        counter!(FILE_FAILURES, "file" => file.as_str()).increment(0);
        describe_gauge!(
            FILE_CURRENT,
            "1 if the content of a file is in force, 0 if its last change was not taken."
        );
        let status = Self { file, is_current: true };
        status.show();
        status
    }

    /// Records that the file has changed, and whether the change was taken.
    pub fn read(&mut self, is_taken: bool) {
        counter!(FILE_FAILURES, "file" => self.file.as_str()).increment(u64::from(!is_taken));
        match (self.is_current, is_taken) {
            (true, false) => _ = self.stale().fetch_add(1, Ordering::Relaxed),
            (false, true) => _ = self.stale().fetch_sub(1, Ordering::Relaxed),
            (true, true) | (false, false) => {}
        }
        self.is_current = is_taken;
        self.show();
    }

    fn stale(&self) -> &'static AtomicUsize {
        &STALE[self.file as usize]
    }

    fn all_are_current(&self) -> bool {
        self.stale().load(Ordering::Relaxed) == 0
    }

    fn show(&self) {
        let is_current = self.all_are_current();
        gauge!(FILE_CURRENT, "file" => self.file.as_str()).set(if is_current { 1.0 } else { 0.0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two entry points for egress, for example, have a file each.
    #[test]
    fn a_good_file_does_not_hide_a_bad_one_of_its_kind() {
        let file = ReloadedFile::EgressCa;
        let (mut first, mut second) = (ReloadStatus::new(file), ReloadStatus::new(file));
        first.read(false);
        second.read(true);
        assert!(!first.all_are_current());
        second.read(false);
        first.read(false);
        first.read(true);
        assert!(!first.all_are_current());
        second.read(true);
        assert!(first.all_are_current());
    }
}
