//! `tombolo user dial-token kubeconfig`: a copy of a cluster's own kubeconfig that dials through the server's proxy listener.
//! It works on machines without `tombolo`.

use std::path::{Path, PathBuf};

use crate::args::{ClusterKubeconfig, CopyOutput, DialTokenKubeconfig};
use crate::files::{self, ReadError, WriteError};
use crate::kubeconfig::rewrite::{self, ProxiedKubeconfig, ProxyTrust, RewriteError};
use crate::pem::{self, PemError};

/// The error if no kubeconfig was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialKubeconfigError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Pem(#[from] PemError),
    #[error("{0} does not hold one dial token, as `tombolo user dial-token create` writes it")]
    NotAToken(PathBuf),
    #[error(
        "{0} may sign for more than a proxy, and in the kubeconfig it could impersonate the API server too: use a proxy-ca.crt of \
         `tombolo ca issue proxy`"
    )]
    Unconstrained(PathBuf),
    #[error("{ca} may sign for {names}, and not for the proxy {proxy}")]
    OtherProxy { ca: PathBuf, names: String, proxy: String },
    #[error(transparent)]
    Kubeconfig(#[from] RewriteError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Writes the copy to a file of mode 0600.
pub(crate) fn write(args: &DialTokenKubeconfig) -> Result<Vec<String>, DialKubeconfigError> {
    let DialTokenKubeconfig { proxy, ca, user, dial_token_file, own, copy } = args;
    let (ClusterKubeconfig { kubeconfig, context }, CopyOutput { output, force }) = (own, copy);
    let token = files::read(dial_token_file)?;
    let token = token.trim();
    if !token.starts_with(policy::DIAL_TOKEN_PREFIX) || token.contains(char::is_whitespace) {
        return Err(DialKubeconfigError::NotAToken(dial_token_file.clone()));
    }
    let proxy_ca = ca.as_deref().map(|ca| read_proxy_ca(ca, proxy.host())).transpose()?;
    let text = files::read(kubeconfig)?;
    let directory = kubeconfig.parent().unwrap_or_else(|| Path::new(""));
    let url = proxy.with_login(user.as_str(), token);
    let trust = proxy_ca.map_or(ProxyTrust::System, ProxyTrust::Constrained);
    let ProxiedKubeconfig { text, .. } =
        rewrite::with_proxy(&text, directory, context.as_deref(), &url, Some(&trust))?;
    files::write_private(output, &text, *force)?;
    Ok(vec![
        format!("wrote {} (private: it holds the token)", output.display()),
        format!("next: kubectl --kubeconfig {} get namespaces", output.display()),
    ])
}

/// Reads the CA of the proxy. Refuses one that may sign for anything but DNS names, or not for this proxy.
fn read_proxy_ca(path: &Path, proxy: &str) -> Result<rewrite::ConstrainedCa, DialKubeconfigError> {
    let pem::CertificateFile { text, ders } = pem::read_certificates(path)?;
    let names: Option<Vec<Vec<String>>> = ders.iter().map(pem::constrained_dns_names).collect();
    let names = names.ok_or_else(|| DialKubeconfigError::Unconstrained(path.to_owned()))?.concat();
    if !names.iter().any(|name| rewrite::is_within(proxy, name)) {
        let (ca, names, proxy) = (path.to_owned(), names.join(", "), proxy.to_owned());
        return Err(DialKubeconfigError::OtherProxy { ca, names, proxy });
    }
    Ok(rewrite::ConstrainedCa { pem: text, names })
}
