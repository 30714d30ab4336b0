//! A kubeconfig as far as it says where to go, whom to trust and who one is.

use std::env;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use daemon::config;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;
use url::Url;

use super::certificate;
use super::reach::Target;
use super::report::Report;
use crate::files;
use crate::tls::Identity;

/// What a context leads to.
pub(super) struct Destination {
    pub(super) target: Target,
    /// In front of every path, without a slash at its end.
    pub(super) prefix: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Written {
    current_context: Option<String>,
    #[serde(default)]
    contexts: Vec<Named>,
    #[serde(default)]
    clusters: Vec<Named>,
    #[serde(default)]
    users: Vec<Named>,
}

#[derive(Deserialize, Clone, Default)]
#[serde(default)]
struct Named {
    name: String,
    context: Context,
    cluster: Cluster,
    user: User,
}

#[derive(Deserialize, Clone, Default)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Deserialize, Clone, Default)]
#[serde(default, rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    tls_server_name: Option<String>,
    insecure_skip_tls_verify: bool,
}

#[derive(Deserialize, Clone, Default)]
#[serde(default, rename_all = "kebab-case")]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    exec: Option<serde_json::Value>,
    auth_provider: Option<serde_json::Value>,
}

/// Where kubectl would look: the first of `KUBECONFIG`, else `~/.kube/config`.
pub(super) fn default_path() -> Option<PathBuf> {
    let of_environment = env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
    let first =
        of_environment.and_then(|paths| env::split_paths(&paths).find(|path| !path.as_os_str().is_empty()));
    first.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".kube/config")))
}

/// Reads the file and what it names, and reports on each; `None` where nobody can be asked.
pub(super) fn read(
    report: &mut Report,
    path: &Path,
    context: Option<&str>,
    whose: &'static str,
    now: SystemTime,
) -> Option<Destination> {
    const CHECK: &str = "kubeconfig";
    let shown = path.display();
    let text = match files::read(path) {
        Ok(text) => text,
        Err(error) => {
            report.fail_by(CHECK, &error);
            return None;
        }
    };
    let written: Written = match serde_saphyr::from_str(&text) {
        Ok(written) => written,
        Err(error) => {
            // The parser's own words would quote the line, and a line may be a token.
            let place = error.location().map(|at| format!("line {}, column {}", at.line(), at.column()));
            let found = format!("{shown} is no kubeconfig ({})", place.as_deref().unwrap_or("anywhere"));
            report.fail(CHECK, found, "write one with: tombolo kubeconfig");
            return None;
        }
    };
    let Some(name) = context.map(str::to_owned).or(written.current_context).filter(|name| !name.is_empty())
    else {
        report.fail(CHECK, format!("{shown} has no current-context"), "name one with --context");
        return None;
    };
    let find = |list: &[Named], name: &str| list.iter().find(|named| named.name == name).cloned();
    let Some(context) = find(&written.contexts, &name).map(|named| named.context) else {
        let known: Vec<&str> = written.contexts.iter().map(|named| named.name.as_str()).collect();
        let advice = format!("name one of its contexts with --context: {}", known.join(", "));
        report.fail(CHECK, format!("{shown} has no context {name}"), advice);
        return None;
    };
    let (cluster, user) = (find(&written.clusters, &context.cluster), find(&written.users, &context.user));
    let (Some(cluster), Some(user)) = (cluster, user) else {
        let found = format!("the context {name} of {shown} names a cluster or a user that is not there");
        report.fail(CHECK, found, "write the file again with: tombolo kubeconfig");
        return None;
    };
    report.ok(CHECK, format!("{shown}, context {name}: {}", config::shown(&cluster.cluster.server)));
    certificate::private_file(report, CHECK, path);
    destination(
        report,
        path.parent().unwrap_or_else(|| Path::new("")),
        cluster.cluster,
        user.user,
        whose,
        now,
    )
}

fn destination(
    report: &mut Report,
    directory: &Path,
    cluster: Cluster,
    user: User,
    whose: &'static str,
    now: SystemTime,
) -> Option<Destination> {
    let url = Url::parse(&cluster.server).ok().filter(|url| url.scheme() == "https");
    let Some((url, host)) = url.and_then(|url| Some((url.clone(), url.host_str()?.to_owned()))) else {
        let found = format!("the server {:?} is no https URL", config::shown(&cluster.server));
        report.fail("kubeconfig", found, "correct `server`");
        return None;
    };
    if cluster.insecure_skip_tls_verify {
        let found =
            "insecure-skip-tls-verify is set: whoever stands in between can read and change everything";
        report.warn("CA", found, "remove it and name the CA; the checks below need one");
    }
    let roots = roots(report, directory, &cluster, now)?;
    let (identity, token) = credential(report, directory, user, now)?;
    let target = Target {
        whose,
        host: host.trim_matches(['[', ']']).to_owned(),
        port: url.port_or_known_default().unwrap_or(443),
        server_name: cluster.tls_server_name,
        roots,
        identity,
        token,
    };
    Some(Destination { target, prefix: url.path().trim_end_matches('/').to_owned() })
}

fn roots(
    report: &mut Report,
    directory: &Path,
    cluster: &Cluster,
    now: SystemTime,
) -> Option<Vec<CertificateDer<'static>>> {
    const CHECK: &str = "CA";
    if let Some(data) = &cluster.certificate_authority_data {
        let text = decoded(data).unwrap_or_default();
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

type Credential = (Option<Identity>, Option<String>);

fn credential(report: &mut Report, directory: &Path, user: User, now: SystemTime) -> Option<Credential> {
    const CHECK: &str = "credential";
    if let (Some(certificate), Some(key)) = (&user.client_certificate_data, &user.client_key_data) {
        return embedded(report, certificate, key, now).map(|identity| (Some(identity), None));
    }
    if let (Some(certificate), Some(key)) = (&user.client_certificate, &user.client_key) {
        let (certificate, key) = (directory.join(certificate), directory.join(key));
        return certificate::identity(report, &certificate, &key, now).map(|identity| (Some(identity), None));
    }
    if let Some(token) = user.token {
        report.ok(CHECK, "a token in the file");
        return Some((None, Some(token)));
    }
    if let Some(path) = user.token_file.map(|path| directory.join(path)) {
        return token(report, &path).map(|token| (None, Some(token)));
    }
    if user.exec.is_some() || user.auth_provider.is_some() {
        let found = "the credential comes from another program, which is not run here";
        report.warn(CHECK, found, "the checks below go without it; try it with kubectl");
    } else {
        let found = "the user has neither a certificate with its key nor a token";
        report.warn(CHECK, found, "write the kubeconfig again with: tombolo kubeconfig");
    }
    Some((None, None))
}

/// Reads a token.
pub(super) fn token(report: &mut Report, path: &Path) -> Option<String> {
    const CHECK: &str = "credential";
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

fn embedded(report: &mut Report, certificate: &str, key: &str, now: SystemTime) -> Option<Identity> {
    const WHAT: &str = "client-certificate-data";
    let (certificate, key) = (decoded(certificate).unwrap_or_default(), decoded(key).unwrap_or_default());
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
    let (Ok(chain), Ok(key)) = (chain, PrivateKeyDer::from_pem_slice(&key)) else {
        let advice = "write the kubeconfig again with: tombolo kubeconfig";
        report.fail("certificate", "client-certificate-data or client-key-data holds none", advice);
        return None;
    };
    certificate::dates(report, "certificate", WHAT, &chain, now);
    match rcgen::KeyPair::try_from(&key) {
        Ok(pair) => certificate::fit(report, &chain, &pair, "client-certificate-data and client-key-data"),
        Err(error) => report.fail_by("key", &error),
    }
    Some(Identity { chain, key })
}

fn decoded(data: &str) -> Option<Vec<u8>> {
    BASE64.decode(data.split_whitespace().collect::<String>()).ok()
}
