//! The table of faults that the doctor finds: each with the check that finds it, its exit code, and words that help.

/// The program, or the person, whose file a fault is planted in.
#[derive(Debug, Clone, Copy)]
pub(super) enum DoctorSubject {
    /// An agent whose certificate was issued by hand.
    Agent,
    /// An agent that enrolls, and has not yet.
    Enrolling,
    /// A server, which runs with the file as it was before.
    Server,
    /// A caller with a kubeconfig for the gateway.
    Caller,
}

/// A fault that is planted in a file, and the doctor's answer to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct DoctorFault {
    pub(super) subject: DoctorSubject,
    pub(super) name: &'static str,
    /// Texts of the file and the texts in their place. `{NAME}` is one of the site's places; the text `{file}` stands for the
    /// whole file, whose place another one takes.
    pub(super) edits: &'static [(&'static str, &'static str)],
    pub(super) code: i32,
    /// The check's result in the JSON: `ok`, `warning` or `failed`.
    pub(super) result: &'static str,
    pub(super) check: &'static str,
    /// Words of the message and of the advice.
    pub(super) words: &'static [&'static str],
}

type Edits = &'static [(&'static str, &'static str)];
type Words = &'static [&'static str];

use DoctorSubject::{Agent, Caller, Enrolling, Server};

const NO_CREDENTIAL: &str = "client-certificate: pki/alice-caller.crt, client-key: pki/alice-caller.key";
const ALICE: &str = "pki/alice-caller";

/// Every fault, beside four files without one.
#[rustfmt::skip]
pub(super) const FAULTS: &[DoctorFault] = &[
    // An agent with a certificate of its own.
    well(Agent, "nothing is wrong with an agent", "tunnel-http2", &["accepts the agent's certificate"]),
    warned(Agent, "UDP is blocked", &[("{gateway}", "{tcp-only}")], "tunnel-quic", &["UDP", "no answer", "carrier: http2"]),
    warned(Agent, "TCP is blocked", &[("{gateway}", "{udp-only}")], "tunnel-http2", &["TCP", "carrier: quic"]),
    failed(Agent, "UDP and TCP are blocked, by QUIC", &[("{gateway}", "{silent}")], "tunnel-quic", &["no answer", "allow UDP"]),
    failed(Agent, "UDP and TCP are blocked, by HTTP/2", &[("{gateway}", "{silent}")], "tunnel-http2", &["no TCP connection", "allow TCP"]),
    failed(Agent, "UDP is blocked for an agent that uses nothing else", &[("{gateway}", "{tcp-only}"), ("cluster: edge-a", "cluster: edge-a\ncarrier: quic")], "tunnel-quic", &["no answer"]),
    failed(Agent, "the carrier is misspelt", &[("cluster: edge-a", "cluster: edge-a\ncarrier: tcp")], "configuration", &["carrier", "auto, quic or http2"]),
    failed(Agent, "the servers' CA is another one", &[("server-ca.crt", "caller-ca.crt")], "tunnel-quic", &["cannot be trusted", "tls.serverCAFile"]),
    failed(Agent, "the server's name is not in its certificate", &[("cluster: edge-a", "cluster: edge-a\nserverName: elsewhere.test")], "tunnel-http2", &["elsewhere.test", "serverName"]),
    failed(Agent, "the server's name has no address", &[("{gateway}", "nobody.invalid:8443")], "dns", &["nobody.invalid", "your DNS"]),
    failed(Agent, "a server's address has no port", &[("{gateway}", "gateway.test")], "servers", &["gateway.test", "host:port"]),
    warned(Agent, "only the proxy reaches the server", &[("{gateway}", "{named-gateway}"), ("cluster: edge-a", "cluster: edge-a\nproxy: { url: \"{proxy}\" }")], "tunnel-quic", &["UDP", "carrier: http2"]),
    failed(Agent, "the proxy is not there", &[("{gateway}", "{named-gateway}"), ("cluster: edge-a", "cluster: edge-a\nproxy: { url: \"http://{free}\" }")], "tunnel-http2", &["the proxy http://{free}", "cannot be reached"]),
    failed(Agent, "the proxy wants a password", &[("{gateway}", "{named-gateway}"), ("cluster: edge-a", "cluster: edge-a\nproxy: { url: \"http://{proxy-address}\" }")], "tunnel-http2", &["user name and password"]),
    failed(Agent, "the proxy is of another kind", &[("cluster: edge-a", "cluster: edge-a\nproxy: { url: \"socks5://p:1\" }")], "proxy", &["proxy.url", "plain HTTP"]),
    failed(Agent, "the certificate is of a caller", &[("pki/edge-a-agent", "pki/alice-caller")], "identity", &["no agent of trust domain tombolo", "tombolo ca issue agent --cluster edge-a"]),
    failed(Agent, "the certificate is of another authority", &[("pki/edge-a-agent", "other/edge-a-agent")], "tunnel-http2", &["refuses the handshake"]),
    failed(Agent, "the certificate is of another cluster", &[("cluster: edge-a", "cluster: edge-b")], "identity", &["for cluster edge-a, the file for edge-b"]),
    failed(Agent, "the certificate has expired", &[("pki/edge-a-agent", "expired")], "certificate", &["has expired on 2001", "clock"]),
    failed(Agent, "the certificate is missing", &[("pki/edge-a-agent.crt", "missing.crt")], "certificate", &["cannot read", "missing.crt"]),
    failed(Agent, "the key is of another certificate", &[("pki/edge-a-agent.key", "expired.key")], "key", &["do not belong together"]),
    warned(Agent, "others may read the key", &[("pki/edge-a-agent", "open-agent")], "key", &["others may read", "chmod 600"]),
    failed(Agent, "the kubeconfig is missing", &[("{good-api}", "missing.kubeconfig")], "kubeconfig", &["cannot read", "missing.kubeconfig"]),
    failed(Agent, "the API server's CA is another one", &[("{good-api}", "{other-ca-api}")], "tls", &["not of the CA that is trusted here"]),
    failed(Agent, "the API server is away", &[("{good-api}", "{away-api}")], "tcp", &["the API server", "refused"]),
    failed(Agent, "the API server does not know the token", &[("{good-api}", "{unknown-api}")], "credential", &["does not accept it", "ServiceAccount"]),
    failed(Agent, "the agent may not impersonate", &[("{good-api}", "{powerless-api}")], "rights", &["may not impersonate users", "tombolo rbac"]),
    failed(Agent, "the agent may not read a Service that it names", &[("{good-api}", "{powerless-api}"), ("cluster: edge-a", "cluster: edge-a\ntargets: [\"hook.shop.svc:443\"]")], "rights", &["nor list services \"hook\"", "where the Services lead"]),
    warned(Agent, "the agent's credential is cluster-admin's", &[("{good-api}", "{mighty-api}")], "excess-rights", &["do everything, as cluster-admin may", "tombolo rbac"]),
    warned(Agent, "the agent's credential reads every Secret", &[("{good-api}", "{reading-api}")], "excess-rights", &["read Secrets", "tombolo rbac"]),
    failed(Agent, "the clock is wrong", &[("{good-api}", "{late-api}")], "clock", &["ahead of the API server's", "NTP"]),
    unusable(Agent, "the configuration is missing", &[("{file}", "missing.yaml")], "configuration", &["cannot read", "missing.yaml"]),
    unusable(Agent, "the configuration is a server's", &[("{file}", "server.yaml")], "configuration", &["is of kind ServerConfig", "--config"]),
    unusable(Agent, "the configuration is no YAML", &[("kind: AgentConfig", "kind: [AgentConfig")], "configuration", &["is not of kind AgentConfig", "--help"]),
    // An agent that enrolls.
    well(Enrolling, "nothing is wrong with an agent that enrolls", "enrollment-token", &["not used up"]),
    failed(Enrolling, "the pin is wrong", &[("{pin}", "{other-pin}")], "enrollment-listener", &["no root with the pin", "tombolo token create"]),
    failed(Enrolling, "the pin is cut", &[("{pin}", "sha256:12")], "enrollment", &["enrollment.pin", "64 digits"]),
    failed(Enrolling, "the token was used", &[("good.token", "used.token")], "enrollment-token", &["refuses it", "was used", "tombolo token create --cluster edge-a"]),
    failed(Enrolling, "the token was never made", &[("good.token", "invented.token")], "enrollment-token", &["refuses it", "tombolo token create"]),
    failed(Enrolling, "the token is of another cluster", &[("good.token", "other.token")], "enrollment-token", &["refuses it", "another cluster"]),
    failed(Enrolling, "the token is missing", &[("good.token", "missing.token")], "enrollment-token", &["missing.token", "tombolo token create"]),
    failed(Enrolling, "the token's file is empty", &[("good.token", "empty.token")], "enrollment-token", &["is empty", "tombolo token create"]),
    failed(Enrolling, "no token is configured", &[(", tokenFile: good.token", "")], "enrollment-token", &["enrollment.tokenFile", "tombolo token create"]),
    warned(Enrolling, "others may read the token", &[("good.token", "open.token")], "enrollment-token", &["others may read", "chmod 600"]),
    failed(Enrolling, "the enrollment port is closed", &[("{listener}", "{free}")], "enrollment-listener", &["cannot be reached", "enrollment.listen"]),
    failed(Enrolling, "the enrollment port is the gateway's", &[("server: \"{listener}\"", "server: \"{gateway}\"")], "enrollment-listener", &["no root with the pin", "enrollment.listen"]),
    failed(Enrolling, "the enrollment server's name is not in its certificate", &[("cluster: edge-a", "cluster: edge-a\nserverName: elsewhere.test")], "enrollment-listener", &["does not name elsewhere.test", "serverName"]),
    failed(Enrolling, "the pod's token is for the API server", &[("tokenFile: good.token", "serviceAccountTokenFile: pod.token")], "pod-token", &["not for the enrollment listener", "audience: tombolo:tombolo:edge-a"]),
    failed(Enrolling, "the stored identity is damaged", &[("enrolling.state", "damaged.state")], "state-dir", &["identity.json is damaged", "new token"]),
    warned(Enrolling, "UDP is blocked before the enrollment", &[("servers: [\"{gateway}\"]", "servers: [\"{tcp-only}\"]")], "tunnel-quic", &["no answer", "carrier: http2"]),
    // A server.
    warned(Server, "others may read the token file, and nothing else is wrong", &[], "token-file", &["others may read", "chmod 600"]),
    failed(Server, "the sealing key is another one", &[("pki/sealing.key", "other/sealing.key")], "enrollment-signer", &["does not open it", "sealing key"]),
    failed(Server, "the intermediate is of another authority", &[("pki/sealing.key", "other/sealing.key"), ("pki/agent-intermediate", "other/agent-intermediate")], "enrollment-signer", &["would be refused", "tunnel.agentCAFile"]),
    failed(Server, "the intermediate is of another role", &[("agent-intermediate", "caller-intermediate")], "enrollment-signer", &["role caller", "role agent"]),
    failed(Server, "the intermediate is missing", &[("agent-intermediate", "missing-intermediate")], "enrollment-signer", &["cannot read", "missing-intermediate"]),
    failed(Server, "others may read the sealing key", &[("pki/sealing.key", "open-sealing.key")], "enrollment-signer", &["others may use", "chmod 600"]),
    failed(Server, "the trust bundle is not named", &[("trust: { bundleFile: pki/trust.bundle }", "")], "trust-bundle", &["trust.bundleFile", "tombolo ca init"]),
    failed(Server, "the trust bundle is another file", &[("pki/trust.bundle", "policy.yaml")], "trust-bundle", &["cannot be used", "tombolo ca"]),
    failed(Server, "the certificate is an agent's", &[("pki/server.", "pki/edge-a-agent.")], "identity", &["no certificate of a server", "tombolo ca issue server"]),
    failed(Server, "the server's certificate has expired", &[("pki/server.", "expired.")], "certificate", &["has expired on 2001", "tombolo ca issue"]),
    failed(Server, "the server's key is another one's", &[("pki/server.key", "expired.key")], "key", &["do not belong together"]),
    failed(Server, "the agents' CA is missing", &[("agent-ca.crt", "missing-ca.crt")], "agent-ca", &["cannot read", "missing-ca.crt"]),
    failed(Server, "the policy is no policy", &[("file: policy.yaml", "file: tokens.csv")], "policy-file", &["tokens.csv", "tombolo policy check"]),
    failed(Server, "others may enter the state directory", &[("server.state", "open.state")], "state-dir", &["others may enter", "chmod 700"]),
    failed(Server, "others may enter the folder of the admin socket", &[("admin/admin.sock", "open.state/admin.sock")], "admin-socket", &["others may enter", "(mode 755)", "chmod 700"]),
    failed(Server, "another process has the gateway's port", &[("gateway:\n  listen: \"{gateway}\"", "gateway:\n  listen: \"{silent}\"")], "gateway-port", &["in use by another process", "ss -lpn"]),
    failed(Server, "the gateway's address is another machine's", &[("gateway:\n  listen: \"{gateway}\"", "gateway:\n  listen: \"192.0.2.1:8443\"")], "gateway-port", &["cannot be bound", "address of this machine"]),
    unusable(Server, "the server's configuration is missing", &[("{file}", "missing.yaml")], "configuration", &["cannot read", "missing.yaml"]),
    // A caller.
    well(Caller, "nothing is wrong with a caller", "cluster", &["ready"]),
    failed(Caller, "the cluster is unknown", &[("clusters/edge-a", "clusters/edge-z")], "cluster", &["edge-z was never seen", "tombolo cluster list"]),
    failed(Caller, "the agent is offline", &[("clusters/edge-a", "clusters/edge-off")], "cluster", &["edge-off is not connected", "tombolo doctor agent"]),
    failed(Caller, "the policy denies", &[(ALICE, "pki/mallory-caller")], "gateway-policy", &["tombolo policy explain"]),
    failed(Caller, "the cluster refuses the agent's impersonation", &[("{file}", "impersonation-api.kubeconfig")], "agent-impersonation", &["cannot impersonate", "tombolo rbac"]),
    failed(Caller, "the cluster's RBAC refuses the caller", &[("{file}", "rbac-api.kubeconfig")], "cluster-rbac", &["cannot get path", "bind a role"]),
    failed(Caller, "the server is an API server", &[("{file}", "plain-api.kubeconfig")], "gateway", &["no Tombolo gateway", "a Kubernetes API server (v1.36.3)", "tombolo kubeconfig"]),
    failed(Caller, "the server is no gateway, and none of Kubernetes", &[("{file}", "no-version-api.kubeconfig")], "gateway", &["no Tombolo gateway", "answers GET /clusters with 404"]),
    failed(Caller, "nothing answers for 20 s", &[("{file}", "silent-api.kubeconfig")], "cluster", &["no answer within 20 s", "tombolo cluster list"]),
    failed(Caller, "the caller's clock is wrong", &[("{file}", "late-api.kubeconfig")], "clock", &["ahead of the gateway's", "NTP"]),
    failed(Caller, "the gateway's CA is another one", &[("pki/server-ca.crt", "pki/caller-ca.crt")], "tls", &["not of the CA that is trusted here", "CA certificate"]),
    failed(Caller, "the gateway is away", &[("{gateway}", "{free}")], "tcp", &["{free}", "refused", "firewalls"]),
    failed(Caller, "the gateway is silent", &[("{gateway}", "{silent}")], "tls", &["does not answer the TLS handshake", "firewalls"]),
    failed(Caller, "the gateway's name is not in its certificate", &[("{gateway}", "{localhost}")], "tls", &["does not name localhost", "--name localhost"]),
    failed(Caller, "the caller's certificate has expired", &[(ALICE, "expired")], "certificate", &["has expired on 2001", "tombolo ca issue"]),
    failed(Caller, "the caller's certificate is a server's", &[(ALICE, "pki/server")], "cluster", &["does not answer", "certificate"]),
    failed(Caller, "the caller's token is not known", &[(NO_CREDENTIAL, "token: nonsense")], "credential", &["does not accept it"]),
    unusable(Caller, "the kubeconfig of a caller is missing", &[("{file}", "missing.kubeconfig")], "kubeconfig", &["cannot read", "missing.kubeconfig"]),
    unusable(Caller, "the kubeconfig names a context that is not there", &[("current-context: c", "current-context: d")], "kubeconfig", &["has no context d", "--context"]),
];

const fn well(subject: DoctorSubject, name: &'static str, check: &'static str, words: Words) -> DoctorFault {
    DoctorFault { subject, name, edits: &[], code: 0, result: "ok", check, words }
}

const fn warned(
    subject: DoctorSubject,
    name: &'static str,
    edits: Edits,
    check: &'static str,
    words: Words,
) -> DoctorFault {
    DoctorFault { subject, name, edits, code: 0, result: "warning", check, words }
}

const fn failed(
    subject: DoctorSubject,
    name: &'static str,
    edits: Edits,
    check: &'static str,
    words: Words,
) -> DoctorFault {
    DoctorFault { subject, name, edits, code: 1, result: "failed", check, words }
}

const fn unusable(
    subject: DoctorSubject,
    name: &'static str,
    edits: Edits,
    check: &'static str,
    words: Words,
) -> DoctorFault {
    DoctorFault { subject, name, edits, code: 2, result: "failed", check, words }
}
