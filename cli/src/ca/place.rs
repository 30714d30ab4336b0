//! Where each file belongs: the one room that knows how the daemons' configurations speak of certificates.

use super::Role;

/// Who trusts the root of this role, and where it is told to.
pub(super) fn of_root(role: Role) -> &'static str {
    match role {
        Role::Server => "agent.yaml, as the root of servers; `tombolo kubeconfig --ca`",
        Role::Agent => "server.yaml, as the root of agents",
        Role::Caller => "server.yaml, as the root of callers",
    }
}

/// Where a certificate of this role is presented.
pub(super) fn of_certificate(role: Role) -> &'static str {
    match role {
        Role::Server => "server.yaml, as the server's certificate",
        Role::Agent => "agent.yaml, as the agent's certificate",
        Role::Caller => "`tombolo kubeconfig --cert`",
    }
}

/// Where the key of such a certificate is used.
pub(super) fn of_key(role: Role) -> &'static str {
    match role {
        Role::Server => "server.yaml, as the server's key",
        Role::Agent => "agent.yaml, as the agent's key",
        Role::Caller => "`tombolo kubeconfig --key`",
    }
}
