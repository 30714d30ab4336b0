//! A temporary directory for each test, in which the command is run.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use assert_cmd::Command;
use assert_cmd::assert::Assert;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tempfile::TempDir;
use trust::names::TrustDomain;
use trust::{Role, Root, TrustBundle};

/// Longest run of the command. Each takes less than a second.
const RUN_MAX: Duration = Duration::from_secs(60);

/// A temporary directory. Commands in it see no setting of the user who runs the tests.
pub(crate) struct WorkDir(TempDir);

impl WorkDir {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// With the roots in `pki`.
    pub(crate) fn with_authority() -> Self {
        let workdir = Self::new();
        workdir.succeeds("ca init --dir pki");
        workdir
    }

    /// With the roots in `pki`, as versions made them that knew no peers.
    pub(crate) fn with_authority_of_an_earlier_version(domain: &str) -> Self {
        let workdir = Self::new();
        workdir.succeeds(&format!("ca init --dir pki --trust-domain {domain}"));
        for name in ["peer-ca.crt", "peer-ca.key", "peer-intermediate.sealed"] {
            std::fs::remove_file(workdir.path(&format!("pki/{name}"))).unwrap();
        }
        let root = |role: Role| {
            CertificateDer::from_pem_slice(workdir.text(&format!("pki/{role}-ca.crt")).as_bytes()).unwrap()
        };
        let roles = Role::ALL.into_iter().filter(|role| *role != Role::Peer);
        let roots: Vec<_> = roles.map(|role| (role, root(role))).collect();
        let domain: TrustDomain = domain.parse().unwrap();
        let key = rcgen::KeyPair::from_pem(&workdir.text("pki/server-ca.key")).unwrap();
        let signer = Root::load(Role::Server, domain.clone(), root(Role::Server), key).unwrap();
        let bundle = TrustBundle::new(1, domain, SystemTime::now(), roots).unwrap();
        workdir.write("pki/trust.bundle", bundle.sign(&[&signer]).unwrap());
        workdir
    }

    /// With the roots in `pki` and a certificate for the user `alice`.
    pub(crate) fn with_caller() -> Self {
        let workdir = Self::with_authority();
        workdir.succeeds("ca issue caller --dir pki --user alice --group dev");
        workdir
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn mode(&self, name: &str) -> u32 {
        std::fs::metadata(self.path(name)).unwrap().permissions().mode() & 0o7777
    }

    /// The names in a directory, sorted.
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(name)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The command, not yet run, with these arguments.
    pub(crate) fn command<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        self.program(Path::new(env!("CARGO_BIN_EXE_tombolo")), arguments)
    }

    pub(crate) fn program<'a>(
        &self,
        program: &Path,
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", self.0.path())
            .current_dir(self.0.path())
            .args(arguments)
            .timeout(RUN_MAX);
        command
    }

    pub(crate) fn run(&self, line: &str) -> Assert {
        self.command(line.split_whitespace()).assert()
    }

    /// Runs the command, which must succeed, and returns its standard output.
    pub(crate) fn succeeds(&self, line: &str) -> String {
        stdout(self.run(line).success())
    }

    /// Runs the command, which must end with exit code 1, and returns its standard error.
    pub(crate) fn fails(&self, line: &str) -> String {
        stderr(self.run(line).code(1))
    }

    /// Runs the command, which must end with exit code 2, and returns its standard error.
    pub(crate) fn usage_error(&self, line: &str) -> String {
        stderr(self.run(line).code(2))
    }
}

pub(crate) fn stdout(assert: Assert) -> String {
    String::from_utf8(assert.get_output().stdout.clone()).unwrap()
}

pub(crate) fn stderr(assert: Assert) -> String {
    String::from_utf8(assert.get_output().stderr.clone()).unwrap()
}

/// Fails, naming both, unless `text` contains `part`.
#[track_caller]
pub(crate) fn assert_says(text: &str, part: &str) {
    // Usage errors are wrapped to the width of the terminal.
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(part), "{part:?} is not said in: {text}");
}
