//! `tombolo kubeconfig`: writes a kubeconfig with one context per cluster, all through the gateway. Its children read and rewrite
//! kubeconfigs for the other commands.

mod credential;
pub(crate) mod reader;
pub(crate) mod rewrite;
mod writer;

use proto::ClusterId;

use crate::args;
use crate::files::{self, AbsolutePathError, WriteError};
use crate::names::{GatewayUrl, HostSuffix, Label};
use crate::pem::{self, PemError};
use crate::settings::{self, GatewayCredential, Settings, SettingsError};

pub(crate) use credential::{CertificateAndKey, CredentialError, bearer_token};
pub(crate) use writer::EXEC_API_VERSION;
use writer::{GatewayCa, KubeconfigDocument, Server};

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
    #[error("two contexts would have the name {0}; name each cluster and each cluster set once")]
    NameTwice(String),
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

/// Checks the settings and files offline, then writes the kubeconfig. `program` is the name of this program.
pub(crate) fn write(args: args::KubeconfigArgs, program: &str) -> Result<KubeconfigOutput, KubeconfigError> {
    let args::KubeconfigArgs {
        gateway,
        ca,
        credential,
        clusters,
        cluster_sets,
        host_names,
        embed_certs,
        exec,
        output,
        force,
    } = args;
    let credential = GatewayCredential::from_flags(credential);
    let flags = Settings { gateway, certificate_authority: ca, credential, host_suffix: host_names };
    let settings = flags.or(Settings::from_environment()?).or(Settings::from_file()?);
    let gateway = settings.required_gateway()?;
    let servers = servers(&gateway, &clusters, &cluster_sets, settings.host_suffix.as_ref())?;
    let ca_path = settings.required_ca()?;
    let credential = settings.required_credential()?;
    let user = match exec {
        Some(command) => credential::exec_user(&credential, command.unwrap_or_else(|| program.to_owned()))?,
        None => credential::user(&credential, embed_certs)?,
    };
    let certificates = pem::read_certificates(&ca_path)?;
    let ca = if embed_certs {
        GatewayCa::Embedded(certificates.text)
    } else {
        GatewayCa::File(files::absolute(&ca_path)?)
    };
    let document = KubeconfigDocument::new(&gateway, &servers, &ca, user);
    let text = document.to_yaml().map_err(KubeconfigError::Yaml)?;
    let Some(output) = output else {
        return Ok(KubeconfigOutput::Text(text));
    };
    files::write_private(&output, &text, force)?;
    Ok(KubeconfigOutput::File(vec![
        format!("wrote {} (private)", output.display()),
        format!(
            "next: kubectl --kubeconfig {} --context {} get namespaces",
            output.display(),
            servers[0].name
        ),
    ]))
}

/// The clusters and the cluster sets in their order, each with its URL.
fn servers(
    gateway: &GatewayUrl,
    clusters: &[ClusterId],
    sets: &[Label],
    suffix: Option<&HostSuffix>,
) -> Result<Vec<Server>, KubeconfigError> {
    let by_name = |cluster: &ClusterId| match suffix {
        Some(suffix) => gateway.cluster_url_by_host_name(cluster, suffix),
        None => gateway.cluster_url_by_path(cluster),
    };
    let clusters = clusters.iter().map(|cluster| Server { name: cluster.to_string(), url: by_name(cluster) });
    let sets = sets.iter().map(|set| Server { name: set.to_string(), url: gateway.cluster_set_url(set) });
    let all: Vec<Server> = clusters.chain(sets).collect();
    let mut names: Vec<&str> = all.iter().map(|server| server.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(KubeconfigError::NameTwice(pair[0].to_owned())),
        None => Ok(all),
    }
}
