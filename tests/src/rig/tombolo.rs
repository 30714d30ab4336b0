//! Runs `tombolo` for a server under test: certificates, kubeconfigs, and any other command of a trial.

use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::time::{Duration, SystemTime};

use super::{PKI, Rig};
use crate::binaries::binary;
use crate::pki::{Authority, Issued};
use crate::process::{Invocation, run};

/// The limit for one run of `tombolo`.
const TOMBOLO_MAX: Duration = Duration::from_secs(20);

impl Rig {
    /// Runs `tombolo` in the rig's folder.
    pub async fn tombolo(&self, words: &[&str]) -> String {
        let output = self.ended(words).await;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tombolo {words:?}: {stderr}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a `tombolo` that must end with 1, and returns its error.
    pub async fn tombolo_fails(&self, words: &[&str]) -> String {
        let output = self.ended(words).await;
        assert_eq!(output.status.code(), Some(1), "tombolo {words:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Runs `tombolo` and returns its stdout and stderr, with any exit code. It must not end by a signal.
    pub async fn tombolo_writes(&self, words: &[&str]) -> String {
        let output = self.ended(words).await;
        assert!(output.status.code().is_some(), "tombolo {words:?}: {output:?}");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Runs `tombolo` in the rig's folder to its end.
    async fn ended(&self, words: &[&str]) -> Output {
        let invocation = Invocation::of(binary("tombolo")).arguments(words.iter().copied());
        run(&invocation.in_directory(self.path()), TOMBOLO_MAX).await.expect("tombolo runs")
    }

    /// Issues a client certificate for a caller.
    pub async fn caller(&self, user: &str, groups: &[&str]) -> Issued {
        // As `tombolo` names its files.
        let stem = user.replace(':', "-");
        let name = format!("{stem}-caller");
        if !self.is_issued(&name) {
            let groups = groups.iter().flat_map(|group| ["--group", group]);
            let words: Vec<&str> =
                ["ca", "issue", "caller", "--dir", PKI, "--user", user].into_iter().chain(groups).collect();
            self.tombolo(&words).await;
        }
        self.issued(&name)
    }

    /// Issues a caller's certificate that holds no longer than this: `tombolo` issues none for less than a
    /// minute.
    pub fn caller_until(&self, user: &str, groups: &[&str], end: SystemTime) -> Issued {
        self.root_of("caller").issue_user_until(user, groups, end)
    }

    /// The root that certificates of this role chain to.
    pub fn root_of(&self, role: &str) -> Authority {
        let [certificate, key] = ["crt", "key"].map(|kind| self.read(&format!("{PKI}/{role}-ca.{kind}")));
        Authority::of(&certificate, &key)
    }

    /// Issues an administrator's certificate, `pki/NAME-admin.crt` with its key.
    pub async fn admin(&self, name: &str) -> Issued {
        let file = format!("{name}-admin");
        if !self.is_issued(&file) {
            self.tombolo(&["ca", "issue", "admin", "--dir", PKI, "--name", name]).await;
        }
        self.issued(&file)
    }

    /// Reads a certificate and its key that `tombolo ca issue` wrote, by the stem of both files' names, such as
    /// `edge-a-agent`.
    pub fn issued(&self, name: &str) -> Issued {
        let read = |end: &str| {
            let path = self.path().join(format!("{PKI}/{name}.{end}"));
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        Issued { certificate_pem: read("crt"), key_pem: read("key") }
    }

    fn is_issued(&self, name: &str) -> bool {
        self.path().join(format!("{PKI}/{name}.crt")).exists()
    }

    /// Writes a caller's kubeconfig for a cluster by path, and returns where it is.
    pub async fn kubeconfig(&self, user: &str, groups: &[&str], cluster: &str) -> PathBuf {
        self.write_kubeconfig(user, groups, &["--cluster", cluster], &format!("{user}-{cluster}.kubeconfig"))
            .await
    }

    /// The same for a cluster set.
    pub async fn kubeconfig_of_set(&self, user: &str, groups: &[&str], set: &str) -> PathBuf {
        self.write_kubeconfig(user, groups, &["--cluster-set", set], &format!("{user}-set-{set}.kubeconfig"))
            .await
    }

    /// The same by the cluster's host name under a suffix.
    pub async fn kubeconfig_by_host_name(
        &self,
        user: &str,
        groups: &[&str],
        cluster: &str,
        suffix: &str,
    ) -> PathBuf {
        let words = ["--cluster", cluster, "--host-names", suffix];
        self.write_kubeconfig(user, groups, &words, &format!("{user}-{cluster}-by-host.kubeconfig")).await
    }

    async fn write_kubeconfig(&self, user: &str, groups: &[&str], more: &[&str], output: &str) -> PathBuf {
        self.caller(user, groups).await;
        let (gateway, crt, key) = (
            format!("https://{}", self.gateway),
            format!("{PKI}/{user}-caller.crt"),
            format!("{PKI}/{user}-caller.key"),
        );
        let ca = format!("{PKI}/server-ca.crt");
        let words = ["kubeconfig", "--gateway", &gateway, "--ca", &ca, "--cert", &crt, "--key", &key];
        self.tombolo(&[words.as_slice(), more, &["--output", output]].concat()).await;
        self.path().join(output)
    }
}
