//! Where each file of an authority is, and where it belongs: the one room that knows how the daemons' configurations speak of
//! certificates.

use std::path::{Path, PathBuf};

use trust::Role;

/// The certificate of a root.
pub(super) fn root_certificate(directory: &Path, role: Role) -> PathBuf {
    directory.join(format!("{role}-ca.crt"))
}

/// The key of a root.
pub(super) fn root_key(directory: &Path, role: Role) -> PathBuf {
    directory.join(format!("{role}-ca.key"))
}

/// The key of the root before the present one, while the two are exchanged.
pub(super) fn old_root_key(directory: &Path, role: Role) -> PathBuf {
    directory.join(format!("{role}-ca.old.key"))
}

/// Every role's roots, signed.
pub(super) fn bundle(directory: &Path) -> PathBuf {
    directory.join("trust.bundle")
}

/// An intermediate, sealed.
pub(super) fn intermediate(directory: &Path, role: Role) -> PathBuf {
    directory.join(format!("{role}-intermediate.sealed"))
}

/// What opens the intermediates.
pub(super) fn sealing_key(directory: &Path) -> PathBuf {
    directory.join("sealing.key")
}

/// Who trusts the root of this role, and where it is told to.
pub(super) fn of_root(role: Role) -> &'static str {
    match role {
        Role::Server => "tls.serverCAFile in agent.yaml, and `tombolo kubeconfig --ca`",
        Role::Agent => "tunnel.agentCAFile in server.yaml",
        Role::Caller => "gateway.authentication.clientCertificate.caFile in server.yaml",
        Role::Admin => "admin.tcp.adminCAFile in server.yaml",
    }
}

/// Where a certificate of this role is presented.
pub(super) fn of_certificate(role: Role) -> &'static str {
    match role {
        Role::Server => "tls.certificateFile in server.yaml",
        Role::Agent => "tls.certificateFile in agent.yaml",
        Role::Caller => "`tombolo kubeconfig --cert`",
        Role::Admin => "`tombolo clusters --server --cert`",
    }
}

/// Where the key of such a certificate is used.
pub(super) fn of_key(role: Role) -> &'static str {
    match role {
        Role::Server => "tls.keyFile in server.yaml",
        Role::Agent => "tls.keyFile in agent.yaml",
        Role::Caller => "`tombolo kubeconfig --key`",
        Role::Admin => "the administrator alone",
    }
}
