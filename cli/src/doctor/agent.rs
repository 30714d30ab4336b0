//! Checks an agent's way to its servers and to its API server.

use std::env;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use daemon::Scope;
use proto::spiffe::AgentId;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use transport::tls::{ExpectedServers, Material};
use transport::{DialTls, Proxies, ProxiesError};
use x509_parser::extensions::GeneralName;

use super::access_review;
use super::agent_identity::{self, EnrolledState};
use super::carriers::Dialer;
use super::certificate;
use super::check::Check;
use super::configuration::{self, RawAgentConfig, RawApiServer, RawEnrollment};
use super::enrollment::EnrollmentCheck;
use super::https::HttpsTarget;
use super::kubeconfig::{self, Destination};
use super::report::Report;
use crate::args::DoctorAgent;
use crate::pem;
use crate::tls::ClientIdentity;

/// The default directory of the agent's state.
const STATE_DEFAULT: &str = "/var/lib/tombolo/agent";

/// The finding if neither a flag nor the file names a kubeconfig, outside of a pod.
const NO_API_SERVER: &str = "no kubeconfig is named, and this is no pod";

/// The directory in which Kubernetes mounts a pod's credential.
const IN_CLUSTER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The configuration of an agent, and the paths and the proxy that follow from it.
struct AgentSetup<'a> {
    config: &'a RawAgentConfig,
    /// The directory at which relative paths start.
    base: &'a Path,
    state_dir: PathBuf,
    proxies: Proxies,
}

pub(super) async fn check_all(args: &DoctorAgent, scope: &Scope, report: &mut Report) {
    let Some((config, base)) =
        configuration::read::<RawAgentConfig>(report, &args.config, "AgentConfig", None)
    else {
        return;
    };
    let state_dir = config.state_dir.as_ref().map_or_else(|| STATE_DEFAULT.into(), |state| base.join(state));
    if let Some(proxies) = proxies(&config, report) {
        let setup = AgentSetup { config: &config, base, state_dir, proxies };
        match &config.enrollment {
            // The agent enrolls and renews its certificate by itself.
            Some(raw) => setup.check_enrolling(raw, scope, report).await,
            None => setup.check_issued(scope, report).await,
        }
    }
    check_api_server(args, &config, base, scope, report).await;
}

/// The proxy to servers, by the environment of this process, which should be the agent's. `None` if it cannot be used.
fn proxies(config: &RawAgentConfig, report: &mut Report) -> Option<Proxies> {
    let environment = |name: &str| env::var(name).ok();
    match Proxies::by_environment(config.proxy.url.clone(), config.proxy.no_proxy.clone(), &environment) {
        Ok(proxies) => Some(proxies),
        // The value is not shown, because it may contain a password.
        Err(ProxiesError { key, reason }) => {
            report.fail(Check::Proxy, format!("{key} is no proxy"), reason.to_string());
            None
        }
    }
}

impl AgentSetup<'_> {
    /// Checks a certificate that was issued by hand, and dials each server with it.
    async fn check_issued(&self, scope: &Scope, report: &mut Report) {
        let (now, tls, base) = (SystemTime::now(), &self.config.tls, self.base);
        let identity =
            certificate::identity(report, &base.join(&tls.certificate_file), &base.join(&tls.key_file), now);
        let roots = certificate::roots(report, Check::ServerCa, &base.join(&tls.server_ca_file), now);
        if let (Some(identity), Some(roots)) = (identity, roots) {
            check_name(self.config, &identity, report);
            self.dial(identity, self.trusted_roots(roots), true, scope, report).await;
        }
    }

    /// Checks the enrollment, and dials each server: with the agent's certificate, or before it has one to see whether they answer.
    async fn check_enrolling(&self, raw: &RawEnrollment, scope: &Scope, report: &mut Report) {
        let Some(state) = agent_identity::read(report, &self.state_dir, SystemTime::now()) else { return };
        let state = EnrolledState { roots: self.trusted_roots(state.roots), ..state };
        let Self { config, base, proxies, .. } = self;
        EnrollmentCheck { config, raw, base, proxies, state: &state }.check_all(scope, report).await;
        let EnrolledState { identity, roots, .. } = state;
        match identity {
            Some(identity) => {
                check_name(config, &identity, report);
                self.dial(identity, roots, true, scope, report).await;
            }
            None => match identity_of_nobody() {
                Ok(identity) => {
                    // It is its own root, so nobody is trusted.
                    let roots = identity.chain.clone();
                    self.dial(identity, roots, false, scope, report).await;
                }
                Err(error) => report.fail_by(Check::Certificate, &error),
            },
        }
    }

    async fn dial(
        &self,
        identity: ClientIdentity,
        roots: Vec<CertificateDer<'static>>,
        has_certificate: bool,
        scope: &Scope,
        report: &mut Report,
    ) {
        let Self { config, proxies, .. } = self;
        let ClientIdentity { chain, key } = identity;
        let expected = ExpectedServers {
            trust_domain: config.trust_domain().to_owned(),
            ids: config.server_ids.clone(),
        };
        match DialTls::new(Material { chain, key, peer_roots: roots }, expected) {
            Ok(tls) => Dialer { config, proxies, tls, has_certificate }.check_servers(scope, report).await,
            Err(error) => report.fail_by(Check::Tls, &error),
        }
    }

    /// The roots by which the agent verifies servers if it began with `roots`.
    fn trusted_roots(&self, roots: Vec<CertificateDer<'static>>) -> Vec<CertificateDer<'static>> {
        agent_identity::trusted_roots(&self.state_dir, self.config.trust_domain(), roots)
    }
}

/// A certificate that no server accepts, for an agent that has none yet.
fn identity_of_nobody() -> Result<ClientIdentity, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let chain = vec![params.self_signed(&key)?.der().clone()];
    Ok(ClientIdentity { chain, key: PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der())) })
}

/// Checks that the certificate names an agent of the configured cluster.
fn check_name(config: &RawAgentConfig, identity: &ClientIdentity, report: &mut Report) {
    const CHECK: Check = Check::Identity;
    let domain = config.trust_domain();
    let advice = format!("have one issued: tombolo ca issue agent --cluster {}", config.cluster);
    match identity.chain.first().and_then(first_uri).map(|uri| (AgentId::parse(&uri, domain), uri)) {
        Some((Ok(agent), _)) if agent.cluster().as_str() == config.cluster => {
            report.ok(
                CHECK,
                format!("the certificate is of agent {} of cluster {}", agent.instance(), config.cluster),
            );
        }
        Some((Ok(agent), _)) => {
            let found = format!(
                "the certificate is for cluster {}, the file for {}",
                agent.cluster(),
                config.cluster
            );
            report.fail(CHECK, found, format!("correct `cluster`, or {advice}"));
        }
        Some((Err(error), uri)) => {
            let found = format!("{uri} in the certificate is no agent of trust domain {domain} ({error})");
            report.fail(CHECK, found, format!("correct `trustDomain`, or {advice}"));
        }
        None => report.fail(CHECK, "the certificate names no agent", advice),
    }
}

fn first_uri(leaf: &CertificateDer<'static>) -> Option<String> {
    let leaf = pem::parse_x509(leaf)?;
    let names = leaf.subject_alternative_name().ok()??;
    names.value.general_names.iter().find_map(|name| match name {
        GeneralName::URI(uri) => Some((*uri).to_owned()),
        GeneralName::OtherName(..)
        | GeneralName::RFC822Name(_)
        | GeneralName::DNSName(_)
        | GeneralName::X400Address(_)
        | GeneralName::DirectoryName(_)
        | GeneralName::EDIPartyName(_)
        | GeneralName::IPAddress(_)
        | GeneralName::RegisteredID(_)
        | GeneralName::Invalid(..) => None,
    })
}

async fn check_api_server(
    args: &DoctorAgent,
    config: &RawAgentConfig,
    base: &Path,
    scope: &Scope,
    report: &mut Report,
) {
    const WHOSE: &str = "the API server";
    let now = SystemTime::now();
    let destination = match named_kubeconfig(args, config, base) {
        Some((path, context)) => kubeconfig::check(report, &path, context, WHOSE, now).ok().flatten(),
        None => in_cluster(config, base, WHOSE, report, now),
    };
    let Some(Destination { target, prefix }) = destination else { return };
    let Some(mut connection) = target.reach(report, scope).await else { return };
    access_review::check_all(config, &mut connection, &prefix, report).await;
}

/// The kubeconfig and its context, chosen as the agent does: its flags first, then its file. `None` if neither names one, so that the
/// pod's own credential is used.
fn named_kubeconfig<'a>(
    args: &'a DoctorAgent,
    config: &'a RawAgentConfig,
    base: &Path,
) -> Option<(PathBuf, Option<&'a str>)> {
    if let Some(path) = &args.kubeconfig {
        return Some((path.clone(), args.context.as_deref()));
    }
    let RawApiServer { kubeconfig, context, in_cluster: _ } = &config.api_server;
    kubeconfig.as_ref().map(|path| (base.join(path), context.as_deref()))
}

fn in_cluster(
    config: &RawAgentConfig,
    base: &Path,
    whose: &'static str,
    report: &mut Report,
    now: SystemTime,
) -> Option<Destination> {
    let raw = config.api_server.in_cluster.as_ref();
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let host = raw.and_then(|raw| raw.host.clone()).or_else(|| variable("KUBERNETES_SERVICE_HOST"));
    let Some(host) = host else {
        let found = format!("{NO_API_SERVER}: KUBERNETES_SERVICE_HOST is not set");
        report.fail(Check::ApiServer, found, advice_outside_a_pod(config));
        return None;
    };
    let port = raw.and_then(|raw| raw.port);
    let port = port.or_else(|| variable("KUBERNETES_SERVICE_PORT").and_then(|port| port.parse().ok()));
    let directory = raw.and_then(|raw| raw.directory.as_ref());
    let directory = directory.map_or_else(|| PathBuf::from(IN_CLUSTER), |directory| base.join(directory));
    let roots = certificate::roots(report, Check::Ca, &directory.join("ca.crt"), now)?;
    let token = kubeconfig::token(report, &directory.join("token"))?;
    let target = HttpsTarget {
        whose,
        host,
        port: port.unwrap_or(443),
        server_name: None,
        roots,
        identity: None,
        token: Some(token),
    };
    Some(Destination { target, prefix: String::new() })
}

/// An agent whose file has something of a pod runs in one. Every other agent was started with a kubeconfig.
fn advice_outside_a_pod(config: &RawAgentConfig) -> &'static str {
    let has_pod_token =
        config.enrollment.as_ref().is_some_and(|raw| raw.service_account_token_file.is_some());
    if has_pod_token || config.api_server.in_cluster.is_some() {
        "run this in the agent's pod"
    } else {
        "pass --kubeconfig FILE, as the agent is started with it"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(yaml: &str) -> RawAgentConfig {
        let text = format!("kind: AgentConfig\n{yaml}");
        daemon::config::parse_without_head(&text, Path::new("agent.yaml")).unwrap()
    }

    /// As in the agent's own configuration: its flag is relative to the working directory, a path of its file to the file.
    #[test]
    fn the_doctor_takes_the_kubeconfig_that_the_agent_would_take() {
        let by_flag = |kubeconfig: Option<&str>, context: Option<&str>| DoctorAgent {
            config: "agent.yaml".into(),
            kubeconfig: kubeconfig.map(PathBuf::from),
            context: context.map(str::to_owned),
        };
        let (bare, named) = (config(""), config("apiServer: { kubeconfig: in-file, context: in-file }\n"));
        for (args, config, expected) in [
            (by_flag(None, None), &bare, None),
            (by_flag(None, None), &named, Some(("/etc/tombolo/in-file", Some("in-file")))),
            (by_flag(Some("flag"), None), &bare, Some(("flag", None))),
            (by_flag(Some("flag"), None), &named, Some(("flag", None))),
            (by_flag(Some("flag"), Some("here")), &named, Some(("flag", Some("here")))),
        ] {
            let found = named_kubeconfig(&args, config, Path::new("/etc/tombolo"));

            assert_eq!(found, expected.map(|(path, context)| (PathBuf::from(path), context)));
        }
    }

    #[test]
    fn outside_a_pod_the_advice_fits_how_the_agent_runs() {
        for (yaml, words) in [
            ("", "--kubeconfig"),
            ("enrollment: { tokenFile: token }\n", "--kubeconfig"),
            ("enrollment: { serviceAccountTokenFile: /var/run/token }\n", "pod"),
            ("apiServer: { inCluster: {} }\n", "pod"),
        ] {
            let advice = advice_outside_a_pod(&config(yaml));
            assert!(advice.contains(words), "{yaml}: {advice}");
        }
    }
}
