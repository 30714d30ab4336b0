//! Checks an agent's enrollment: the listener and its pin, and whether the agent's tokens would be accepted. No token is used up.

mod listener;
mod pod_token;

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use daemon::Scope;
use daemon::config::{self, KeyError};
use proto::ClusterId;
use proto::enrollment::{CheckPodRequest, CheckTokenRequest, audience};
use rustls::CertificateError;
use transport::tls::PinnedVerifier;
use transport::{DialPath, Proxies};
use trust::{OutsideValidity, Pin};

use super::agent_identity::EnrolledState;
use super::certificate;
use super::check::Check;
use super::configuration::{ADDRESS, RawAgentConfig, RawEnrollment, split_address};
use super::https;
use super::report::Report;
use crate::files;
use listener::{Checked, EnrollmentListener, OpenError};

/// Stands for standard input in place of a token file.
const STANDARD_INPUT: &str = "-";

/// The enrollment of one agent.
pub(super) struct EnrollmentCheck<'a> {
    pub(super) config: &'a RawAgentConfig,
    pub(super) raw: &'a RawEnrollment,
    /// The directory at which relative paths start.
    pub(super) base: &'a Path,
    pub(super) proxies: &'a Proxies,
    pub(super) state: &'a EnrolledState,
}

/// The tokens that the agent would show, each of which has passed the checks that need no server.
struct Tokens {
    pod: Option<String>,
    enrollment: Option<(String, PathBuf)>,
}

impl EnrollmentCheck<'_> {
    /// Checks the settings, the listener, and the tokens if the agent still needs one.
    pub(super) async fn check_all(&self, scope: &Scope, report: &mut Report) {
        let Ok(cluster) = self.config.cluster.parse::<ClusterId>() else {
            let allowed = "the cluster's name: 1 to 63 lower-case letters, digits and '-'";
            report.fail_by(Check::Enrollment, &KeyError::new("cluster", &self.config.cluster, allowed));
            return;
        };
        let is_enrolled = self.state.identity.is_some();
        let tokens = if is_enrolled {
            report.ok(Check::EnrollmentToken, "the agent is enrolled already and needs no token");
            None
        } else {
            Some(self.tokens(&cluster, report))
        };
        let Some(mut listener) = self.open(scope, report).await else { return };
        if let Some(tokens) = tokens {
            self.check_tokens(&cluster, tokens, &mut listener, report).await;
        }
    }

    /// Reads the tokens, and checks what needs no server.
    fn tokens(&self, cluster: &ClusterId, report: &mut Report) -> Tokens {
        let RawEnrollment { token_file, service_account_token_file, .. } = self.raw;
        let pod = service_account_token_file.as_ref().and_then(|file| self.pod_token(file, cluster, report));
        let is_pod = service_account_token_file.is_some();
        let enrollment = match token_file {
            Some(file) if file == Path::new(STANDARD_INPUT) => {
                let found = "the agent reads its token from standard input, so it cannot be checked here";
                report.warn(Check::EnrollmentToken, found, "write it into a file for this check");
                None
            }
            Some(file) => self.enrollment_token(file, is_pod, report),
            None if is_pod => None,
            None => {
                let found = "neither enrollment.tokenFile nor enrollment.serviceAccountTokenFile is set";
                let advice = format!("make a token: tombolo token create --cluster {cluster}");
                report.fail(Check::EnrollmentToken, found, advice);
                None
            }
        };
        if !is_pod && self.config.api_server.kubeconfig.is_none() {
            report.warn(
                Check::Enrollment,
                "the agent enrolls with a token, and further pods of its cluster need one each",
                "in a pod, name a projected token of its ServiceAccount in enrollment.serviceAccountTokenFile",
            );
        }
        Tokens { pod, enrollment }
    }

    fn enrollment_token(&self, file: &Path, is_pod: bool, report: &mut Report) -> Option<(String, PathBuf)> {
        const CHECK: Check = Check::EnrollmentToken;
        let path = self.base.join(file);
        let advice = format!("make one: tombolo token create --cluster {}", self.config.cluster);
        match files::read(&path) {
            Ok(token) if !token.trim().is_empty() => {
                certificate::private_file(report, CHECK, &path);
                Some((token.trim().to_owned(), path))
            }
            // A further pod of a cluster needs no token, so its Secret may be empty or absent.
            Ok(_) | Err(_) if is_pod => None,
            Ok(_) => {
                report.fail(CHECK, format!("{} is empty", path.display()), advice);
                None
            }
            Err(error) => {
                report.fail(CHECK, daemon::error_chain(&error).to_string(), advice);
                None
            }
        }
    }

    fn pod_token(&self, file: &Path, cluster: &ClusterId, report: &mut Report) -> Option<String> {
        const CHECK: Check = Check::PodToken;
        let token = match files::read(&self.base.join(file)) {
            Ok(token) => token.trim().to_owned(),
            Err(error) => {
                let advice = "mount a projected volume with a serviceAccountToken there";
                report.fail(CHECK, daemon::error_chain(&error).to_string(), advice);
                return None;
            }
        };
        let domain = self.config.trust_domain();
        let audience = audience(domain, cluster);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        match pod_token::fault(&token, &audience, now) {
            None => {
                report
                    .ok(CHECK, format!("the ServiceAccount's token is bound to this pod and for {audience}"));
                Some(token)
            }
            Some((found, advice)) => {
                report.fail(CHECK, found, advice);
                None
            }
        }
    }

    /// Connects to the listener as the agent does. `None` if that fails; the report says why.
    async fn open(&self, scope: &Scope, report: &mut Report) -> Option<EnrollmentListener> {
        const CHECK: Check = Check::EnrollmentListener;
        let shown = config::redact(&self.raw.server);
        let Some((host, port)) = split_address(&self.raw.server) else {
            report.fail_by(Check::Enrollment, &KeyError::new("enrollment.server", &self.raw.server, ADDRESS));
            return None;
        };
        let Ok(pin) = self.raw.pin.parse::<Pin>() else {
            let allowed = "the pin that `tombolo token create` prints: sha256: and 64 digits";
            report.fail_by(Check::Enrollment, &KeyError::new("enrollment.pin", &self.raw.pin, allowed));
            return None;
        };
        let path = match self.proxies.to(host, port) {
            Some(proxy) => DialPath::Proxied { proxy: proxy.clone(), host: host.to_owned(), port },
            None => DialPath::Direct(https::resolve(report, host, port).await?.first().copied()?),
        };
        let name = self.config.server_name.as_deref().unwrap_or(host);
        let roots = self.state.roots.clone();
        let domain = self.config.trust_domain();
        let (trust_domain, provider) = (domain.to_owned(), transport::tls::provider());
        let has_roots = !roots.is_empty();
        let verifier = PinnedVerifier { pin, roots, trust_domain, provider };
        match EnrollmentListener::open(&path, name, verifier, scope).await {
            Ok(listener) => {
                let by = if has_roots {
                    "a root that the agent trusts"
                } else {
                    "the root with the configured pin"
                };
                report.ok(CHECK, format!("{shown} answers with a certificate of {by}"));
                Some(listener)
            }
            Err(error) => {
                let (found, advice) = not_opened(&error, &shown, name, has_roots);
                report.fail(CHECK, found, advice);
                None
            }
        }
    }

    /// Asks the server about the tokens in the order in which the agent shows them.
    async fn check_tokens(
        &self,
        cluster: &ClusterId,
        tokens: Tokens,
        listener: &mut EnrollmentListener,
        report: &mut Report,
    ) {
        let Tokens { pod, enrollment } = tokens;
        if let Some(service_account_token) = pod {
            let request = CheckPodRequest { cluster: cluster.to_string(), service_account_token };
            match (listener.check_pod(request).await, &enrollment) {
                (Checked::Good, _) => {
                    let found = "the server knows this pod's ServiceAccount: the pod enrolls by itself, without another token";
                    report.ok(Check::PodToken, found);
                    return;
                }
                // The first pod of a cluster enrolls with the other token.
                (Checked::NotSetUp(_), Some(_)) => {}
                (Checked::NotSetUp(message), None) => {
                    let found =
                        format!("the server does not accept it yet, and there is no other token ({message})");
                    let advice =
                        format!("make a token for the first pod: tombolo token create --cluster {cluster}");
                    report.fail(Check::PodToken, found, advice);
                    return;
                }
                (checked, _) => {
                    let advice = "see the server's log, and `tombolo cluster attestation show` there";
                    checked.report(Check::PodToken, advice.to_owned(), report);
                    return;
                }
            }
        }
        let Some((token, path)) = enrollment else { return };
        let public_key = self.state.public_key.clone();
        let request = CheckTokenRequest { token, cluster: cluster.to_string(), public_key };
        let advice = format!(
            "it was used, has expired, was revoked, or is for another cluster or server: make another one with `tombolo token create \
             --cluster {cluster}`, and put it into {}",
            path.display()
        );
        listener.check_token(request).await.report(Check::EnrollmentToken, advice, report);
    }
}

impl Checked {
    /// Reports the answer about a token. `refused` is the advice for one that the server refuses.
    fn report(self, check: Check, refused: String, report: &mut Report) {
        match self {
            Self::Good => report.ok(check, "the server accepts it; it was only checked, and not used up"),
            Self::Refused(message) | Self::NotSetUp(message) => {
                report.fail(check, format!("the server refuses it ({message})"), refused);
            }
            Self::Throttled(message) => {
                report.warn(check, format!("the server does not check it now ({message})"), "try again in a minute");
            }
            Self::NotGrpc(message) => {
                let found = format!("enrollment.server is no enrollment listener ({message})");
                report.fail(Check::EnrollmentListener, found, "use the port of `enrollment.listen` in the server's configuration");
            }
            Self::Unknown => report.warn(
                check,
                "the server is older than this check, so only an enrollment would show whether the token is good",
                "update the server, or start the agent",
            ),
            Self::Failed(message) => {
                report.fail(check, format!("the server cannot check it ({message})"), "see the server's log");
            }
        }
    }
}

/// The finding and the advice if the listener was not reached, or was not trusted.
fn not_opened(error: &OpenError, shown: &str, name: &str, has_roots: bool) -> (String, String) {
    let text = daemon::error_chain(error);
    match error {
        OpenError::Unreachable(_) | OpenError::NoAnswer => (
            format!("the enrollment listener at {shown} cannot be reached ({text})"),
            "check enrollment.server, that the server's configuration has `enrollment.listen`, and firewalls on the way (TCP)"
                .to_owned(),
        ),
        OpenError::Tls(error) => untrusted(error, shown, name, has_roots),
        OpenError::NotHttp2(_) => (
            format!("{shown} is no enrollment listener ({text})"),
            "check the port of enrollment.server".to_owned(),
        ),
        OpenError::Name(_) | OpenError::Local(_) => {
            (format!("{shown}: {text}"), "correct enrollment.server or serverName".to_owned())
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "rustls' errors are foreign and non-exhaustive")]
fn untrusted(error: &io::Error, shown: &str, name: &str, has_roots: bool) -> (String, String) {
    let cause = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(reason)) = cause else {
        return (
            format!("the handshake with {shown} failed ({error})"),
            "check that the port of enrollment.server is that of `enrollment.listen`".to_owned(),
        );
    };
    let outside = match reason {
        CertificateError::ExpiredContext { time, not_after } => {
            OutsideValidity::at(time.as_secs(), 0, not_after.as_secs())
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            OutsideValidity::at(time.as_secs(), not_before.as_secs(), u64::MAX)
        }
        _ => None,
    };
    if let Some(outside) = outside {
        let found = format!("the certificate of the enrollment listener at {shown} {outside}");
        return (found, "correct the clock, or renew that certificate".to_owned());
    }
    match reason {
        CertificateError::UnknownIssuer | CertificateError::BadSignature if has_roots => (
            format!("the certificate of {shown} is of no root that this agent trusts since it enrolled"),
            "check enrollment.server; if it is right, another server answers there or something on the way opens TLS"
                .to_owned(),
        ),
        CertificateError::UnknownIssuer | CertificateError::BadSignature => (
            format!("{shown} shows no root with the pin in enrollment.pin"),
            "use the pin that `tombolo token create` prints at that server, and the port of its `enrollment.listen`; if both are \
             right, another server answers there or something on the way opens TLS"
                .to_owned(),
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
            format!("the certificate of {shown} does not name {name}"),
            "reach the server by a name in its certificate, or set serverName to one".to_owned(),
        ),
        other => (
            format!("the certificate of {shown} cannot be used: {other}"),
            "have it issued again: tombolo ca issue server".to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_pin_is_told_from_a_wrong_name_and_from_a_wrong_port() {
        let tls = |error: CertificateError| OpenError::Tls(io::Error::other(rustls::Error::from(error)));
        for (error, has_roots, words) in [
            (tls(CertificateError::UnknownIssuer), false, "no root with the pin"),
            (tls(CertificateError::UnknownIssuer), true, "since it enrolled"),
            (tls(CertificateError::NotValidForName), false, "does not name gateway.test"),
            (OpenError::Tls(io::ErrorKind::UnexpectedEof.into()), false, "handshake"),
            (OpenError::NoAnswer, false, "cannot be reached"),
        ] {
            let (found, _) = not_opened(&error, "gateway.test:9443", "gateway.test", has_roots);
            assert!(found.contains(words), "{words}: {found}");
        }
    }
}
