//! Checks a kubeconfig and the files that it names, and derives the API server that it leads to.

use std::env;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use daemon::config;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::certificate;
use super::check::Check;
use super::https::HttpsTarget;
use super::report::Report;
use crate::files;
use crate::kubeconfig::reader::{self, ClusterEntry, HttpsServer, Kubeconfig, UserEntry};
use crate::tls::ClientIdentity;

/// The API server that a context leads to.
pub(super) struct Destination {
    pub(super) target: HttpsTarget,
    /// The path before every request path, without a slash at its end.
    pub(super) prefix: String,
}

/// The kubeconfig names no API server, and the report says why.
pub(super) struct KubeconfigUnusable;

/// A client certificate, a bearer token, or neither.
#[derive(Default)]
struct Credential {
    identity: Option<ClientIdentity>,
    token: Option<String>,
}

/// The kubeconfig that kubectl would use: the first of `KUBECONFIG`, else `~/.kube/config`.
pub(super) fn default_path() -> Option<PathBuf> {
    let paths = env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
    let first = paths.and_then(|paths| env::split_paths(&paths).find(|path| !path.as_os_str().is_empty()));
    first.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".kube/config")))
}

/// Checks the file and the files that it names. `None` if no API server can be asked; the report says why.
///
/// # Errors
/// The file, or the context in it, cannot be used at all.
pub(super) fn check(
    report: &mut Report,
    path: &Path,
    context: Option<&str>,
    whose: &'static str,
    now: SystemTime,
) -> Result<Option<Destination>, KubeconfigUnusable> {
    const CHECK: Check = Check::Kubeconfig;
    let shown = path.display();
    let text = match files::read(path) {
        Ok(text) => text,
        Err(error) => {
            report.fail_by(CHECK, &error);
            return Err(KubeconfigUnusable);
        }
    };
    let kubeconfig = match Kubeconfig::parse(&text) {
        Ok(kubeconfig) => kubeconfig,
        Err(error) => {
            let found = format!("{shown} is no kubeconfig (line {}, column {})", error.line, error.column);
            report.fail(CHECK, found, "write one with: tombolo kubeconfig");
            return Err(KubeconfigUnusable);
        }
    };
    let selected = match kubeconfig.select(context) {
        Ok(selected) => selected,
        Err(reader::SelectContextError::NoCurrentContext) => {
            report.fail(CHECK, format!("{shown} has no current-context"), "name one with --context");
            return Err(KubeconfigUnusable);
        }
        Err(reader::SelectContextError::UnknownContext(name)) => {
            let known = kubeconfig.context_names().join(", ");
            let advice = format!("name one of its contexts with --context: {known}");
            report.fail(CHECK, format!("{shown} has no context {name}"), advice);
            return Err(KubeconfigUnusable);
        }
    };
    let name = selected.name;
    let (Some(cluster), Some(user)) = (selected.cluster, selected.user) else {
        let found = format!("the context {name} of {shown} names a cluster or a user that is not there");
        report.fail(CHECK, found, "write the file again with: tombolo kubeconfig");
        return Err(KubeconfigUnusable);
    };
    report.ok(CHECK, format!("{shown}, context {name}: {}", config::redact(&cluster.server)));
    certificate::private_file(report, CHECK, path);
    let directory = path.parent().unwrap_or_else(|| Path::new(""));
    Ok(destination(report, directory, cluster, user, whose, now))
}

fn destination(
    report: &mut Report,
    directory: &Path,
    cluster: &ClusterEntry,
    user: &UserEntry,
    whose: &'static str,
    now: SystemTime,
) -> Option<Destination> {
    let Some(server) = HttpsServer::parse(&cluster.server) else {
        let found = format!("the server {:?} is no https URL", config::redact(&cluster.server));
        report.fail(Check::Kubeconfig, found, "correct `server`");
        return None;
    };
    if cluster.insecure_skip_tls_verify {
        let found =
            "insecure-skip-tls-verify is set: anybody on the network path can read and change everything";
        report.warn(Check::Ca, found, "remove it and name the CA; the checks below need one");
    }
    let roots = roots(report, directory, cluster, now)?;
    let Credential { identity, token } = credential(report, directory, user, now)?;
    let target = HttpsTarget {
        whose,
        host: server.bare_host().to_owned(),
        port: server.port(),
        server_name: cluster.tls_server_name.clone(),
        roots,
        identity,
        token,
    };
    Some(Destination { target, prefix: server.path().to_owned() })
}

fn roots(
    report: &mut Report,
    directory: &Path,
    cluster: &ClusterEntry,
    now: SystemTime,
) -> Option<Vec<CertificateDer<'static>>> {
    const CHECK: Check = Check::Ca;
    if let Some(data) = &cluster.certificate_authority_data {
        let text = reader::decode_data(data).unwrap_or_default();
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
        let Some(found) = found.ok().filter(|found| !found.is_empty()) else {
            let advice = "write the kubeconfig again with: tombolo kubeconfig";
            report.fail(CHECK, "certificate-authority-data holds no certificate", advice);
            return None;
        };
        certificate::dates(report, CHECK, "certificate-authority-data", &found, now);
        return Some(found);
    }
    let Some(path) = &cluster.certificate_authority else {
        let found = "neither certificate-authority nor certificate-authority-data is set";
        report.fail(CHECK, found, "name the CA of the server: tombolo kubeconfig --ca FILE");
        return None;
    };
    certificate::roots(report, CHECK, &directory.join(path), now)
}

fn credential(
    report: &mut Report,
    directory: &Path,
    user: &UserEntry,
    now: SystemTime,
) -> Option<Credential> {
    const CHECK: Check = Check::Credential;
    let by_certificate = |identity| Credential { identity: Some(identity), token: None };
    let by_token = |token| Credential { identity: None, token: Some(token) };
    if let (Some(certificate), Some(key)) = (&user.client_certificate_data, &user.client_key_data) {
        return embedded_identity(report, certificate, key, now).map(by_certificate);
    }
    if let (Some(certificate), Some(key)) = (&user.client_certificate, &user.client_key) {
        let (certificate, key) = (directory.join(certificate), directory.join(key));
        return certificate::identity(report, &certificate, &key, now).map(by_certificate);
    }
    if let Some(token) = &user.token {
        report.ok(CHECK, "a token in the file");
        return Some(by_token(token.clone()));
    }
    if let Some(path) = &user.token_file {
        return token(report, &directory.join(path)).map(by_token);
    }
    if user.exec || user.auth_provider {
        let found = "the credential comes from another program, which is not run here";
        report.warn(CHECK, found, "the checks below go without it; try it with kubectl");
    } else {
        let found = "the user has neither a certificate with its key nor a token";
        report.warn(CHECK, found, "write the kubeconfig again with: tombolo kubeconfig");
    }
    Some(Credential::default())
}

/// Reads a file with a bearer token. `None` if it has none; the report says why.
pub(super) fn token(report: &mut Report, path: &Path) -> Option<String> {
    const CHECK: Check = Check::Credential;
    match files::read(path) {
        Ok(token) if token.trim().is_empty() => {
            report.fail(CHECK, format!("{} is empty", path.display()), "put the token into it");
            None
        }
        Ok(token) => {
            report.ok(CHECK, format!("a token in {}", path.display()));
            Some(token.trim().to_owned())
        }
        Err(error) => {
            report.fail_by(CHECK, &error);
            None
        }
    }
}

fn embedded_identity(
    report: &mut Report,
    certificate: &str,
    key: &str,
    now: SystemTime,
) -> Option<ClientIdentity> {
    const WHAT: &str = "client-certificate-data";
    let certificate = reader::decode_data(certificate).unwrap_or_default();
    let key = reader::decode_data(key).unwrap_or_default();
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
    let (Ok(chain), Ok(key)) = (chain, PrivateKeyDer::from_pem_slice(&key)) else {
        let advice = "write the kubeconfig again with: tombolo kubeconfig";
        let found = "client-certificate-data holds no certificate, or client-key-data no key";
        report.fail(Check::Certificate, found, advice);
        return None;
    };
    certificate::dates(report, Check::Certificate, WHAT, &chain, now);
    match rcgen::KeyPair::try_from(&key) {
        Ok(pair) => {
            certificate::key_match(report, &chain, &pair, "client-certificate-data and client-key-data");
        }
        Err(error) => report.fail_by(Check::Key, &error),
    }
    Some(ClientIdentity { chain, key })
}
