//! `tombolo kubeconfig`: writes a kubeconfig with one context per cluster, all through the gateway. Its children read and rewrite
//! kubeconfigs for the other commands.

mod credential;
pub(crate) mod reader;
pub(crate) mod rewrite;
mod writer;

use crate::args;
use crate::files::{self, AbsolutePathError, WriteError};
use crate::pem::{self, PemError};
use crate::settings::{self, GatewayCredential, Settings, SettingsError};

pub(crate) use credential::{CredentialError, bearer_token};
use writer::{GatewayCa, KubeconfigDocument};

/// The kubeconfig, or the file that it was written to.
pub(crate) enum KubeconfigOutput {
    /// The text, which the command prints.
    Text(String),
    /// Lines that name the file and the next command.
    File(Vec<String>),
}

/// The error if no kubeconfig was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KubeconfigError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Missing(#[from] settings::MissingSetting),
    #[error("the cluster {0} is named twice")]
    DuplicateCluster(proto::ClusterId),
    #[error(transparent)]
    CaCertificates(#[from] PemError),
    #[error(transparent)]
    Credential(#[from] CredentialError),
    #[error(transparent)]
    Path(#[from] AbsolutePathError),
    #[error("the kubeconfig could not be written as YAML")]
    Yaml(#[source] serde_saphyr::SerializeError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Checks the settings and files offline, then writes the kubeconfig.
pub(crate) fn write(args: args::KubeconfigArgs) -> Result<KubeconfigOutput, KubeconfigError> {
    let args::KubeconfigArgs {
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
    } = args;
    let credential = GatewayCredential::from_flags(cert, key, token_file);
    let flags = Settings { gateway, certificate_authority: ca, credential, host_suffix: host_names };
    let settings = flags.or(Settings::from_environment()?).or(Settings::from_file()?);
    if let Some(twice) = clusters.iter().enumerate().find(|(at, name)| clusters[..*at].contains(name)) {
        return Err(KubeconfigError::DuplicateCluster(twice.1.clone()));
    }

    let gateway = settings.required_gateway()?;
    let ca_path = settings.required_ca()?;
    let credential = settings.required_credential()?;
    let user = credential::user(&credential, embed_certs)?;
    let certificates = pem::read_certificates(&ca_path)?;
    let ca = if embed_certs {
        GatewayCa::Embedded(certificates.text)
    } else {
        GatewayCa::File(files::absolute(&ca_path)?)
    };
    let document = KubeconfigDocument::new(&gateway, &clusters, settings.host_suffix.as_ref(), &ca, user);
    let text = document.to_yaml().map_err(KubeconfigError::Yaml)?;
    let Some(output) = output else {
        return Ok(KubeconfigOutput::Text(text));
    };
    files::write_private(&output, &text, force)?;
    Ok(KubeconfigOutput::File(vec![
        format!("wrote {} (private)", output.display()),
        format!("next: kubectl --kubeconfig {} --context {} get namespaces", output.display(), clusters[0]),
    ]))
}
