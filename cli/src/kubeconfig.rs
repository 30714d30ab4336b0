//! `tombolo kubeconfig`: one context per cluster, all through the gateway.

mod credential;
mod document;

use crate::args;
use crate::files::{self, NoAbsolutePath, WriteError};
use crate::pem::{self, PemError};
use crate::settings::{self, Credential, Settings, SettingsError};

pub(crate) use credential::{CredentialError, bearer_token};
use document::{Authority, Document};

/// Where the kubeconfig went.
pub(crate) enum Written {
    /// Nowhere yet: it is to be printed.
    Document(String),
    /// To a file, with what to say about it.
    File(Vec<String>),
}

/// Why no kubeconfig was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KubeconfigError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Missing(#[from] settings::Missing),
    #[error("the cluster {0} is named twice")]
    Twice(proto::ClusterId),
    #[error(transparent)]
    Authority(#[from] PemError),
    #[error(transparent)]
    Credential(#[from] CredentialError),
    #[error(transparent)]
    Path(#[from] NoAbsolutePath),
    #[error("the kubeconfig could not be written as YAML")]
    Yaml(#[source] serde_saphyr::SerializeError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Checks everything that can be checked offline, then writes.
pub(crate) fn write(order: args::Kubeconfig) -> Result<Written, KubeconfigError> {
    let args::Kubeconfig {
        gateway,
        ca,
        cert,
        key,
        token_file,
        clusters,
        host_names,
        embed_certs,
        output,
        force,
    } = order;
    let credential = Credential::of(cert, key, token_file);
    let flags = Settings { gateway, certificate_authority: ca, credential, host_suffix: host_names };
    let settings = flags.or(Settings::of_environment()?).or(Settings::of_file()?);
    if let Some(twice) = clusters.iter().enumerate().find(|(at, name)| clusters[..*at].contains(name)) {
        return Err(KubeconfigError::Twice(twice.1.clone()));
    }

    let gateway = settings.the_gateway()?;
    let authority_path = settings.the_authority()?;
    let credential = settings.the_credential()?;
    let user = credential::user(&credential, embed_certs)?;
    let certificates = pem::certificates(&authority_path)?;
    let authority = if embed_certs {
        Authority::Embedded(certificates.text)
    } else {
        Authority::File(files::absolute(&authority_path)?)
    };
    let document = Document::of(&gateway, &clusters, settings.host_suffix.as_ref(), &authority, user);
    let text = document.to_yaml().map_err(KubeconfigError::Yaml)?;
    let Some(output) = output else {
        return Ok(Written::Document(text));
    };
    files::write_private(&output, &text, force)?;
    Ok(Written::File(vec![
        format!("wrote {} (private)", output.display()),
        format!("next: kubectl --kubeconfig {} --context {} get namespaces", output.display(), clusters[0]),
    ]))
}
