//! The message for the caller when an agent has aborted a stream.

use proto::{AbortCode, ClusterId};

/// The message for `code`, with the cluster's name and advice on what to check.
pub(crate) fn abort_message(cluster: &ClusterId, code: AbortCode) -> String {
    let untrusted = |reason: &str| untrusted(cluster, reason);
    match code {
        AbortCode::ApiServerUnreachable => format!(
            "cluster {cluster} is connected, but its agent cannot reach its API server: check that the API server runs, \
             and the agent's apiServer configuration"
        ),
        AbortCode::ApiServerSilent => format!(
            "cluster {cluster} is connected, but its API server did not answer in time: check that API server; the outcome \
             of this request is not known"
        ),
        AbortCode::TunnelLost => format!(
            "the tunnel to cluster {cluster}, which another server has, was lost; the outcome of this request is not known"
        ),
        AbortCode::ApiServerUntrusted => untrusted("check the CA in the agent's apiServer configuration"),
        AbortCode::ApiServerUnknownIssuer => untrusted(
            "it is not signed by the agent's CA; check the CA in the agent's apiServer configuration",
        ),
        AbortCode::ApiServerWrongName => untrusted(
            "it is for other names than the one that the agent asks for; check the server and the tls-server-name in \
             the agent's apiServer configuration",
        ),
        AbortCode::ApiServerCertificateExpired => untrusted(
            "the certificate or its CA has expired, or is not valid yet; renew it, and check the clock of the \
             agent's host",
        ),
        AbortCode::ApiServerWeakCertificate => untrusted(
            "a key or a signature in its chain is too weak; use RSA of 2048 bits or more, ECDSA or Ed25519",
        ),
        AbortCode::ApiServerNotProcessed => format!(
            "the API server of cluster {cluster} did not process this request, whenever the agent sent it, so nothing was \
             done: try again"
        ),
        AbortCode::NoCredential => format!(
            "cluster {cluster} is connected, but its agent has no credential that its API server accepts: check the \
             agent's apiServer configuration and its ServiceAccount token"
        ),
        AbortCode::GuardRefused => format!(
            "the agent of cluster {cluster} may not impersonate this user with these groups: add them to impersonation in the \
             agent's configuration"
        ),
        AbortCode::NoPassThrough => format!(
            "this server has callers' own credentials pass through to cluster {cluster}, and its agent does not: set \
             passThrough in the configurations of both, or of neither"
        ),
        AbortCode::NoBearer => format!(
            "cluster {cluster} takes its callers' own tokens: send one, beside your client certificate for this gateway, \
             as Authorization: Bearer TOKEN"
        ),
        AbortCode::ApiServerLost => format!(
            "the API server of cluster {cluster} broke the connection off: the outcome of this request is not known"
        ),
        AbortCode::TargetLost => format!("the connection to a target in cluster {cluster} broke"),
        AbortCode::ApiServerProtocolError => {
            format!("the API server of cluster {cluster} answered what is not HTTP")
        }
        AbortCode::BadRequest => format!("the agent of cluster {cluster} refused the request's head"),
        AbortCode::Busy => format!(
            "the agent of cluster {cluster} asks its API server as much as it may, and too many requests wait: try again in a \
             second"
        ),
        AbortCode::Fenced => format!(
            "the link to cluster {cluster} broke before its agent had received all of this request, and it was not carried \
             out: send it again"
        ),
        AbortCode::Draining => format!("the agent of cluster {cluster} is stopping: try again"),
        AbortCode::Abandoned | AbortCode::SlowReader | AbortCode::BadOpen | AbortCode::Unknown(_) => {
            format!("the agent of cluster {cluster} gave up: {code}")
        }
    }
}

/// The message where the agent does not trust its API server's certificate.
fn untrusted(cluster: &ClusterId, reason: &str) -> String {
    format!(
        "cluster {cluster} is connected, but its agent does not trust its API server's certificate: {reason}"
    )
}
