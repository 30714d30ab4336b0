//! `tombolo tenant kubeconfig`: a kubeconfig of an administrator of a tenant.

use std::time::{Duration, SystemTime};

use super::created::{CreatedTenant, TenantError};
use super::host::HostError;
use super::kubeconfig_text;
use super::pki::PkiError;
use crate::args::TenantKubeconfig;
use crate::files::{self, WriteError};
use crate::kubeconfig::reader::HttpsServer;

/// The reason why no kubeconfig was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TenantKubeconfigError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Tenant(#[from] TenantError),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("{0:?} is no https URL; use one such as https://192.168.1.11:16440")]
    NoUrl(String),
    #[error("no node with the label of control planes has an address; name the API server with --server URL")]
    NoNode,
    #[error("the validity is at most ten years, which is that of the CA")]
    TooLong,
}

/// The longest validity of a certificate, which is that of its CA.
const VALIDITY_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Issues a certificate, and returns the kubeconfig with it, or the lines that name its file.
///
/// # Errors
/// [`TenantKubeconfigError`]
pub(crate) fn kubeconfig(args: &TenantKubeconfig) -> Result<String, TenantKubeconfigError> {
    let name = args.name.as_str();
    if let Some(url) = args.server.as_ref().filter(|url| HttpsServer::parse(url).is_none()) {
        return Err(TenantKubeconfigError::NoUrl(url.clone()));
    }
    let validity = Duration::try_from(args.validity.duration()).unwrap_or(VALIDITY_MAX);
    if validity > VALIDITY_MAX {
        return Err(TenantKubeconfigError::TooLong);
    }
    let tenant = CreatedTenant::find(&args.host, name)?;
    let servers: Vec<(String, String)> = match &args.server {
        Some(url) => vec![(name.to_owned(), url.clone())],
        None => (tenant.api_servers()?.into_iter().enumerate())
            .map(|(place, (node, address))| {
                let context = if place == 0 { name.to_owned() } else { format!("{name}@{node}") };
                (context, format!("https://{address}"))
            })
            .collect(),
    };
    if servers.is_empty() {
        return Err(TenantKubeconfigError::NoNode);
    }
    let servers: Vec<(&str, &str)> =
        servers.iter().map(|(context, url)| (context.as_str(), url.as_str())).collect();
    let pair = tenant.roots.administrator(args.user.as_str(), SystemTime::now(), validity)?;
    let ca = tenant.roots.cluster.trusted_pem();
    let user = format!("{}@{name}", args.user);
    let text = kubeconfig_text::kubeconfig(&servers, &ca, &user, &pair.certificate, &pair.key);
    let Some(file) = &args.output else { return Ok(text) };
    files::write_private(file, &text, args.force)?;
    let file = file.display();
    Ok(format!("wrote {file} (private)\nnext: kubectl --kubeconfig {file} get namespaces\n"))
}
