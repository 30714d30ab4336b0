//! The paths of a certificate authority's files, and the configuration keys of the daemons that take them.

use std::path::{Path, PathBuf};

use trust::Role;

/// `ROLE-ca.crt`: the certificate of a root.
pub(super) fn root_certificate(directory: &Path, role: Role) -> PathBuf {
    directory.join(format!("{role}-ca.crt"))
}

/// `ROLE-ca.key`: the key of a root.
pub(super) fn root_key(directory: &Path, role: Role) -> PathBuf {
    directory.join(format!("{role}-ca.key"))
}

/// `ROLE-ca.old.key`: the key of the previous root during a rotation.
pub(super) fn old_root_key(directory: &Path, role: Role) -> PathBuf {
    directory.join(format!("{role}-ca.old.key"))
}

/// `trust.bundle`: the roots of every role, signed.
pub(super) fn bundle(directory: &Path) -> PathBuf {
    directory.join("trust.bundle")
}

/// `ROLE-intermediate.sealed`: an intermediate, encrypted with the sealing key.
pub(super) fn intermediate(directory: &Path, role: Role) -> PathBuf {
    directory.join(format!("{role}-intermediate.sealed"))
}

/// `sealing.key`: the key that decrypts the intermediates.
pub(super) fn sealing_key(directory: &Path) -> PathBuf {
    directory.join("sealing.key")
}

/// The configuration key or flag that takes the root of this role.
pub(super) fn root_use(role: Role) -> &'static str {
    match role {
        Role::Server => "tls.serverCAFile in agent.yaml, and `tombolo kubeconfig --ca`",
        Role::Agent => "tunnel.agentCAFile in server.yaml",
        Role::Caller => "gateway.authentication.clientCertificate.caFile in server.yaml",
        Role::Admin => "admin.tcp.adminCAFile in server.yaml",
        Role::Peer => "peering.peerCAFile in server.yaml",
    }
}

/// The configuration key or flag that takes a certificate of this role.
pub(super) fn certificate_use(role: Role) -> &'static str {
    match role {
        Role::Server => "tls.certificateFile in server.yaml",
        Role::Agent => "tls.certificateFile in agent.yaml",
        Role::Caller => "`tombolo kubeconfig --cert`",
        Role::Admin => "`tombolo cluster list --server --cert`",
        Role::Peer => "peering.certificateFile in server.yaml",
    }
}

/// The configuration key or flag that takes the key of such a certificate.
pub(super) fn key_use(role: Role) -> &'static str {
    match role {
        Role::Server => "tls.keyFile in server.yaml",
        Role::Agent => "tls.keyFile in agent.yaml",
        Role::Caller => "`tombolo kubeconfig --key`",
        Role::Admin => "the administrator alone",
        Role::Peer => "peering.keyFile in server.yaml",
    }
}
