//! Where each file belongs: the one room that knows how the daemons' configurations speak of certificates.

use super::Role;

/// Who trusts the root of this role, and where it is told to.
pub(super) fn of_root(role: Role) -> &'static str {
    match role {
        Role::Server => "tls.serverCAFile in agent.yaml, and `tombolo kubeconfig --ca`",
        Role::Agent => "tunnel.agentCAFile in server.yaml",
        Role::Caller => "gateway.authentication.clientCertificate.caFile in server.yaml",
    }
}

/// Where a certificate of this role is presented.
pub(super) fn of_certificate(role: Role) -> &'static str {
    match role {
        Role::Server => "tls.certificateFile in server.yaml",
        Role::Agent => "tls.certificateFile in agent.yaml",
        Role::Caller => "`tombolo kubeconfig --cert`",
    }
}

/// Where the key of such a certificate is used.
pub(super) fn of_key(role: Role) -> &'static str {
    match role {
        Role::Server => "tls.keyFile in server.yaml",
        Role::Agent => "tls.keyFile in agent.yaml",
        Role::Caller => "`tombolo kubeconfig --key`",
    }
}
