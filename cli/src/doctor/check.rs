//! The names of the checks, by which programs, documents and alerts refer to them. They do not change.

use proto::text_enum;

text_enum! {
    /// One check of the doctor. The text is the name in the output of `tombolo doctor`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Check {
        // The files of any of them.
        Configuration = "configuration",
        Kubeconfig = "kubeconfig",
        Certificate = "certificate",
        Key = "key",
        Identity = "identity",
        Credential = "credential",
        Ca = "ca",
        StateDir = "state-dir",
        // The way to a server.
        Dns = "dns",
        Tcp = "tcp",
        Tls = "tls",
        Http = "http",
        Clock = "clock",
        Proxy = "proxy",
        // A caller, and the answer of its cluster.
        Gateway = "gateway",
        Cluster = "cluster",
        GatewayPolicy = "gateway-policy",
        AllowList = "allow-list",
        AgentImpersonation = "agent-impersonation",
        ClusterRbac = "cluster-rbac",
        // An agent.
        Servers = "servers",
        ServerCa = "server-ca",
        TunnelQuic = "tunnel-quic",
        TunnelHttp2 = "tunnel-http2",
        Enrollment = "enrollment",
        EnrollmentListener = "enrollment-listener",
        EnrollmentToken = "enrollment-token",
        PodToken = "pod-token",
        ApiServer = "api-server",
        Rights = "rights",
        ExcessRights = "excess-rights",
        // A worker.
        LoadBalancer = "load-balancer",
        // A server.
        AgentCa = "agent-ca",
        CallerCa = "caller-ca",
        AdminCa = "admin-ca",
        PeerCa = "peer-ca",
        IssuerCa = "issuer-ca",
        HostCa = "host-ca",
        HostServer = "host-server",
        EtcdCa = "etcd-ca",
        Etcd = "etcd",
        Peers = "peers",
        PeerClocks = "peer-clocks",
        PeerFiles = "peer-files",
        TokenFile = "token-file",
        PolicyFile = "policy-file",
        TrustBundle = "trust-bundle",
        EnrollmentSigner = "enrollment-signer",
        AdminSocket = "admin-socket",
        AdminApi = "admin-api",
        GatewayPort = "gateway-port",
        TunnelPort = "tunnel-port",
        ProbesPort = "probes-port",
        EnrollmentPort = "enrollment-port",
        ProxyPort = "proxy-port",
        SocksPort = "socks-port",
        PassthroughPort = "passthrough-port",
        EgressPort = "egress-port",
        AdminPort = "admin-port",
        Readiness = "readiness",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The report refers to the headings. Those that begin with a capital letter are causes of refusals.
    #[test]
    fn the_page_on_troubleshooting_has_a_heading_for_every_check() {
        let page = include_str!("../../../docs/operate/troubleshooting.md");
        let headings = page.lines().filter_map(|line| line.strip_prefix("### "));
        let headings: BTreeSet<&str> = headings
            .filter(|heading| heading.starts_with(|letter: char| letter.is_ascii_lowercase()))
            .collect();

        assert_eq!(headings, Check::VALUES.iter().copied().collect());
    }

    #[test]
    fn names_of_checks_are_kebab_case_and_different() {
        for (index, name) in Check::VALUES.iter().enumerate() {
            let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
            assert!(name.chars().all(fits) && !name.starts_with('-') && !name.ends_with('-'), "{name}");
            assert!(!Check::VALUES[..index].contains(name), "{name}");
        }
    }
}
