//! `tombolo user dial-token kubeconfig`: a cluster's own kubeconfig for machines without `tombolo`, through the proxy listener.

use std::path::{Path, PathBuf};

use crate::args::{CopyPlace, DialTokenKubeconfig, OwnKubeconfig};
use crate::files::{self, ReadError, WriteError};
use crate::pem::{self, PemError};
use crate::proxy::rewritten::{self, NotRewritten, Rewritten, Vouching};

/// Why no kubeconfig was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialKubeconfigError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Pem(#[from] PemError),
    #[error("{0} does not hold one dial token, as `tombolo user dial-token create` writes it")]
    NotAToken(PathBuf),
    #[error(
        "{0} vouches for more than a proxy, and in the kubeconfig it could speak for the API server too: use a proxy-ca.crt of \
         `tombolo ca issue proxy`"
    )]
    Unconstrained(PathBuf),
    #[error("{ca} vouches for {names}, and not for the proxy {proxy}")]
    OtherProxy { ca: PathBuf, names: String, proxy: String },
    #[error(transparent)]
    Kubeconfig(#[from] NotRewritten),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Writes it where only this user reads it.
pub(crate) fn write(order: &DialTokenKubeconfig) -> Result<Vec<String>, DialKubeconfigError> {
    let DialTokenKubeconfig { proxy, ca, user, dial_token_file, own, copy } = order;
    let (OwnKubeconfig { kubeconfig, context }, CopyPlace { output, force }) = (own, copy);
    let token = files::read(dial_token_file)?;
    let token = token.trim();
    if !token.starts_with(policy::DIAL_TOKEN_PREFIX) || token.contains(char::is_whitespace) {
        return Err(DialKubeconfigError::NotAToken(dial_token_file.clone()));
    }
    let vouching = ca.as_deref().map(|ca| vouching(ca, proxy.host())).transpose()?;
    let text = files::read(kubeconfig)?;
    let directory = kubeconfig.parent().unwrap_or_else(|| Path::new(""));
    let url = proxy.with_login(user.as_str(), token);
    let vouching = vouching.map_or(Vouching::Public, Vouching::Constrained);
    let Rewritten { text, .. } =
        rewritten::with_proxy(&text, directory, context.as_deref(), &url, Some(&vouching))?;
    files::write_private(output, &text, *force)?;
    Ok(vec![
        format!("wrote {} (private: the token is in it)", output.display()),
        format!("next: kubectl --kubeconfig {} get namespaces", output.display()),
    ])
}

/// What is in the file, if it vouches for this proxy and for nothing that an API server could be called.
fn vouching(path: &Path, proxy: &str) -> Result<rewritten::Constrained, DialKubeconfigError> {
    let pem::Certificates { text, ders } = pem::certificates(path)?;
    let names: Option<Vec<Vec<String>>> = ders.iter().map(pem::proxy_names).collect();
    let names = names.ok_or_else(|| DialKubeconfigError::Unconstrained(path.to_owned()))?.concat();
    if !names.iter().any(|name| rewritten::is_within(proxy, name)) {
        let (ca, names, proxy) = (path.to_owned(), names.join(", "), proxy.to_owned());
        return Err(DialKubeconfigError::OtherProxy { ca, names, proxy });
    }
    Ok(rewritten::Constrained { text, names })
}
