//! The roots that verify clients and servers, each with the file from which they are read again.

use std::path::{Path, PathBuf};

use daemon::config::KeyError;
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;

use super::pem;

/// Most certificates in a system's trust store.
const AUTHORITIES_MAX: usize = 1_000;

/// The roots in a file, each usable as a trust anchor.
#[derive(Debug, Clone)]
pub struct TrustedRoots {
    /// The roots; at least one.
    pub certificates: Vec<CertificateDer<'static>>,
    /// The file from which they were read.
    pub file: RootsFile,
}

/// A file of roots, with its configuration key.
#[derive(Debug, Clone)]
pub struct RootsFile {
    key: String,
    path: PathBuf,
    certificates_max: usize,
}

impl RootsFile {
    /// Reads the file, in which each certificate must be usable as a root. Blocks.
    ///
    /// # Errors
    ///
    /// [`KeyError`], which says what is wrong with the file.
    pub fn read(&self) -> Result<Vec<CertificateDer<'static>>, KeyError> {
        let Self { key, path, certificates_max } = self;
        let roots = pem::certificates(key, path, *certificates_max)?;
        let mut store = RootCertStore::empty();
        for (index, root) in roots.iter().enumerate() {
            store.add(root.clone()).map_err(|error| {
                let allowed = format!("a PEM file of CA certificates (number {} in it: {error})", index + 1);
                KeyError::new(key, path.display(), allowed)
            })?;
        }
        Ok(roots)
    }

    /// The configuration key that names the file.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The roots of clients, whose file names few authorities.
pub(super) fn roots(key: &str, path: &Path) -> Result<TrustedRoots, KeyError> {
    read(key, path, pem::CERTIFICATES_MAX)
}

/// The roots for servers that are called by HTTPS. They can have any public authority, so a system's trust store is accepted.
pub(super) fn authorities(key: &str, path: &Path) -> Result<TrustedRoots, KeyError> {
    read(key, path, AUTHORITIES_MAX)
}

fn read(key: &str, path: &Path, certificates_max: usize) -> Result<TrustedRoots, KeyError> {
    let file = RootsFile { key: key.to_owned(), path: path.to_owned(), certificates_max };
    Ok(TrustedRoots { certificates: file.read()?, file })
}

/// The role that a certificate gives its client, by the listener whose roots it chains to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientRole {
    /// Agents, which arrive at `tunnel` and `enrollment`.
    Agent,
    /// Callers, who arrive at `gateway`.
    Caller,
    /// Administrators, who arrive at `admin.tcp`.
    Administrator,
    /// API servers, at entry points for their egress. One authority can be for several of them, because the name in a
    /// certificate distinguishes them.
    ApiServer,
    /// Other servers of the installation, which arrive at `peering`.
    Peer,
}

/// The roots of all clients, as they are in force. No root is there for two roles, because a certificate of one role would be
/// accepted at the listener of the other.
#[derive(Debug, Clone, Default)]
pub struct ClientRoots(Vec<RoleRoots>);

/// The roots of one file.
#[derive(Debug, Clone)]
struct RoleRoots {
    role: ClientRole,
    key: String,
    certificates: Vec<CertificateDer<'static>>,
}

impl ClientRoots {
    /// Adds the roots of a file for a role.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if one of them is there for another role.
    pub(super) fn with(mut self, role: ClientRole, roots: &TrustedRoots) -> Result<Self, KeyError> {
        let TrustedRoots { certificates, file } = roots;
        self.check(role, &file.key, certificates)?;
        self.0.push(RoleRoots { role, key: file.key.clone(), certificates: certificates.clone() });
        Ok(self)
    }

    /// Puts other roots of the file into force.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if one of them is there for another role. Nothing is changed then.
    pub fn replace(&mut self, file: &RootsFile, roots: &[CertificateDer<'static>]) -> Result<(), KeyError> {
        let Some(index) = self.0.iter().position(|entry| entry.key == file.key) else { return Ok(()) };
        self.check(self.0[index].role, &file.key, roots)?;
        self.0[index].certificates = roots.to_vec();
        Ok(())
    }

    fn check(&self, role: ClientRole, key: &str, roots: &[CertificateDer<'_>]) -> Result<(), KeyError> {
        for other in self.0.iter().filter(|other| other.role != role) {
            if let Some(index) = roots.iter().position(|root| other.certificates.contains(root)) {
                let found = format_args!("certificate {}, which is in {} too,", index + 1, other.key);
                let allowed =
                    "a CA of its own, else a certificate for one listener would be accepted at the other";
                return Err(KeyError::new(key, found, allowed));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_root_must_not_give_a_second_role() {
        let [agents, callers] = ["agents", "callers"].map(|key| file(key, &[key]));
        let servers = ["host-a", "host-b"].map(|key| file(key, &["servers"]));
        let mut roots = ClientRoots::default()
            .with(ClientRole::Agent, &agents)
            .and_then(|roots| roots.with(ClientRole::Caller, &callers))
            .and_then(|roots| roots.with(ClientRole::ApiServer, &servers[0]))
            .and_then(|roots| roots.with(ClientRole::ApiServer, &servers[1]))
            .expect("each has a role of its own");
        let [own, of_agents, new] = ["callers", "agents", "new"].map(certificate);

        let error = roots.replace(&callers.file, &[own.clone(), of_agents.clone()]).unwrap_err();
        assert_eq!(error.key, "callers");
        assert!(error.to_string().contains("certificate 2, which is in agents too"), "{error}");
        roots.replace(&callers.file, &[own.clone(), new.clone()]).expect("one root more");
        roots.replace(&agents.file, &[own]).expect_err("a caller's root still");
        roots.replace(&callers.file, &[new]).expect("one root less");
        roots.replace(&agents.file, &[certificate("callers")]).expect("no caller's root any more");
        roots.replace(&callers.file, &[of_agents]).expect("no agent's root any more");
        roots.replace(&servers[0].file, &servers[1].certificates).expect("their names distinguish them");
    }

    fn file(key: &str, names: &[&str]) -> TrustedRoots {
        let file = RootsFile { key: key.to_owned(), path: PathBuf::new(), certificates_max: 1 };
        TrustedRoots { certificates: names.iter().copied().map(certificate).collect(), file }
    }

    /// Something that is compared as a certificate is.
    fn certificate(name: &str) -> CertificateDer<'static> {
        CertificateDer::from(name.as_bytes().to_vec())
    }
}
