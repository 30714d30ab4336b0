//! Rewrites a cluster's own kubeconfig for a proxy or for another server; everything else in it stays as it is.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use daemon::config::redact;
use http::uri::Authority;
use serde_json::Value;
use serde_saphyr::{SerializeError, ser_options};

use super::reader::{self, ClusterEntry, HttpsServer, Kubeconfig, KubeconfigSyntaxError, SelectContextError};
use crate::files::{self, ReadError};

/// Keys that name a file. A relative path starts at the directory of the kubeconfig.
const CLUSTER_FILE_KEYS: [&str; 1] = ["certificate-authority"];
const USER_FILE_KEYS: [&str; 3] = ["client-certificate", "client-key", "tokenFile"];

/// A kubeconfig that reaches its cluster through a proxy.
#[derive(Debug)]
pub(crate) struct ProxiedKubeconfig {
    pub(crate) text: String,
    /// `host:port` of the API server of the selected context.
    pub(crate) target: Authority,
}

/// A kubeconfig whose `server` was replaced; the API server has to show a certificate for the new host.
#[derive(Debug)]
pub(crate) struct ReaddressedKubeconfig {
    pub(crate) text: String,
    /// The CA certificates that the kubeconfig trusts for the API server, PEM.
    pub(crate) ca_pem: String,
}

/// A kubeconfig whose `server` was replaced; the API server has to show a certificate for the old host.
#[derive(Debug)]
pub(crate) struct PinnedNameKubeconfig {
    pub(crate) text: String,
    /// The CA certificates that the kubeconfig trusts for the API server, PEM.
    pub(crate) ca_pem: String,
    /// The name that the API server's certificate has to have: a DNS name, or an address without brackets.
    pub(crate) name: String,
}

/// The CAs by which programs verify a proxy that is reached by https. A kubeconfig has one CA bundle for the API server and its proxy.
#[derive(Debug)]
pub(crate) enum ProxyTrust {
    /// By the CAs that the system trusts.
    System,
    /// By a CA whose name constraints allow only the proxy's name.
    Constrained(ConstrainedCa),
}

/// CA certificates whose name constraints allow some DNS names and no address.
#[derive(Debug)]
pub(crate) struct ConstrainedCa {
    pub(crate) pem: String,
    /// The DNS names that are allowed, with all names below them.
    pub(crate) names: Vec<String>,
}

/// A kubeconfig that is being rewritten.
struct Draft {
    /// All of it, with absolute paths. Values are replaced here.
    document: Value,
    read: Kubeconfig,
    cluster_name: String,
    /// The selected context's cluster, with absolute paths.
    cluster: ClusterEntry,
}

/// The error if a kubeconfig cannot be rewritten.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RewriteError {
    #[error(transparent)]
    Syntax(#[from] KubeconfigSyntaxError),
    #[error(transparent)]
    Context(#[from] SelectContextError),
    #[error("the kubeconfig has no cluster {0:?}")]
    UnknownCluster(String),
    #[error("the cluster {0:?} of the kubeconfig has a proxy-url already: use the file without it")]
    HasProxy(String),
    #[error(
        "the server {0:?} of the kubeconfig is no https URL, so nothing would protect what is sent there"
    )]
    NotHttps(String),
    #[error(
        "the cluster {0:?} of the kubeconfig has a tls-server-name, which programs would send to the proxy too: use `tombolo proxy`"
    )]
    ProxyServerName(String),
    #[error(
        "the cluster {0:?} of the kubeconfig has insecure-skip-tls-verify, so nothing would protect the token: use `tombolo proxy`"
    )]
    Insecure(String),
    #[error(
        "the cluster {0:?} of the kubeconfig trusts only its own CA, and programs verify the proxy by that too: name the proxy's \
         CA by --ca"
    )]
    OwnCaOnly(String),
    #[error(
        "the cluster {0:?} of the kubeconfig trusts the CAs of the system, which --ca would replace: leave --ca out, and give the \
         proxy a publicly trusted certificate"
    )]
    SystemCas(String),
    #[error(
        "the server {0:?} of the kubeconfig is below a name for which the proxy's CA may sign too: use `tombolo proxy`"
    )]
    NameOverlap(String),
    #[error(
        "the cluster {0:?} of the kubeconfig has a tls-server-name, which would be verified in place of the server's name: take it out"
    )]
    HasServerName(String),
    #[error(
        "the cluster {0:?} of the kubeconfig has no CA by which its API server is verified: add its certificate-authority"
    )]
    NoCa(String),
    #[error(
        "the server {0:?} of the kubeconfig has a path, so it is a gateway and not an API server that could be reached at another \
         address: use the cluster's own kubeconfig"
    )]
    ServerPath(String),
    #[error("the certificate-authority-data of the cluster {0:?} is not PEM in base64")]
    CaData(String),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the path of the kubeconfig is not UTF-8 text")]
    NotUtf8Path,
    #[error("the kubeconfig could not be written as YAML")]
    Yaml(#[source] SerializeError),
}

/// `host:port` of the API server of the context of this name, or of the current context.
pub(crate) fn api_server_address(text: &str, context: Option<&str>) -> Result<Authority, RewriteError> {
    authority(&https_server(&selected_cluster(&Kubeconfig::parse(text)?, context)?.1)?)
}

/// The name that the API server's certificate has to have for the context of this name, or for the current context: a DNS
/// name, or an address without brackets. `None` if the kubeconfig skips verification.
pub(crate) fn verified_name(text: &str, context: Option<&str>) -> Result<Option<String>, RewriteError> {
    let (_, cluster) = selected_cluster(&Kubeconfig::parse(text)?, context)?;
    if cluster.insecure_skip_tls_verify {
        return Ok(None);
    }
    Ok(Some(server_name(&cluster, &https_server(&cluster)?)))
}

/// Sets `proxy` as the proxy-url of the selected cluster. `directory` is where relative paths of the kubeconfig start.
///
/// For a proxy that is reached by https, `trust` says how programs verify it.
pub(crate) fn with_proxy(
    text: &str,
    directory: &Path,
    context: Option<&str>,
    proxy: &str,
    trust: Option<&ProxyTrust>,
) -> Result<ProxiedKubeconfig, RewriteError> {
    let mut draft = Draft::open(text, directory, context)?;
    let server = https_server(&draft.cluster)?;
    let ca_pem = match trust {
        Some(trust) => bundle_for_proxy(&draft.cluster, &draft.cluster_name, server.host(), trust)?,
        None => None,
    };
    let entry = draft.entry()?;
    if let (Some(ca_pem), Some(entry)) = (ca_pem, entry.as_object_mut()) {
        entry.insert("certificate-authority-data".to_owned(), BASE64.encode(ca_pem).into());
        entry.remove("certificate-authority");
    }
    entry["proxy-url"] = proxy.into();
    Ok(ProxiedKubeconfig { text: draft.to_yaml()?, target: authority(&server)? })
}

/// Sets `proxy`, which is not reached by https, for every cluster that has an https server and no proxy yet.
pub(crate) fn with_proxy_for_all(
    text: &str,
    directory: &Path,
    context: Option<&str>,
    proxy: &str,
) -> Result<ProxiedKubeconfig, RewriteError> {
    let mut draft = Draft::open(text, directory, context)?;
    let target = authority(&https_server(&draft.cluster)?)?;
    let entries = draft.document["clusters"].as_array_mut().into_iter().flatten();
    for (entry, cluster) in entries.zip(draft.read.clusters()) {
        if cluster.proxy_url.is_none() && https_server(cluster).is_ok() {
            entry["cluster"]["proxy-url"] = proxy.into();
        }
    }
    Ok(ProxiedKubeconfig { text: draft.to_yaml()?, target })
}

/// Replaces the server of the selected cluster. The API server has to show a certificate for the new one.
pub(crate) fn with_server(
    text: &str,
    directory: &Path,
    context: Option<&str>,
    server: &str,
) -> Result<ReaddressedKubeconfig, RewriteError> {
    let mut draft = Draft::open(text, directory, context)?;
    if draft.cluster.tls_server_name.is_some() {
        return Err(RewriteError::HasServerName(draft.cluster_name));
    }
    let ca_pem = required_ca_pem(&draft.cluster, &draft.cluster_name)?;
    draft.entry()?["server"] = server.into();
    Ok(ReaddressedKubeconfig { text: draft.to_yaml()?, ca_pem })
}

/// Replaces the server of the selected cluster. The API server still has to show a certificate for the old one, by
/// tls-server-name.
pub(crate) fn with_server_and_old_name(
    text: &str,
    directory: &Path,
    context: Option<&str>,
    server: &str,
) -> Result<PinnedNameKubeconfig, RewriteError> {
    let mut draft = Draft::open(text, directory, context)?;
    let old = https_server(&draft.cluster)?;
    if !old.path().is_empty() {
        return Err(RewriteError::ServerPath(draft.cluster.server));
    }
    let ca_pem = required_ca_pem(&draft.cluster, &draft.cluster_name)?;
    let name = server_name(&draft.cluster, &old);
    let entry = draft.entry()?;
    entry["tls-server-name"] = name.as_str().into();
    entry["server"] = server.into();
    Ok(PinnedNameKubeconfig { text: draft.to_yaml()?, ca_pem, name })
}

impl Draft {
    /// Selects a context, makes it the current one, and makes every path absolute. Refuses a cluster that has a proxy.
    fn open(text: &str, directory: &Path, context: Option<&str>) -> Result<Self, RewriteError> {
        let read = Kubeconfig::parse(text)?;
        let mut document: Value = reader::first_document(text)?.unwrap_or_default();
        let context = read.select(context)?.name.to_owned();
        let (cluster_name, mut cluster) = selected_cluster(&read, Some(&context))?;
        for (list, kind, keys) in
            [("clusters", "cluster", &CLUSTER_FILE_KEYS[..]), ("users", "user", &USER_FILE_KEYS[..])]
        {
            for entry in document[list].as_array_mut().into_iter().flatten() {
                for key in keys {
                    make_absolute(&mut entry[kind], key, directory)?;
                }
            }
        }
        if let Some(path) = &mut cluster.certificate_authority {
            *path = absolute(path, directory)?;
        }
        document["current-context"] = context.into();
        let mut draft = Self { document, read, cluster_name, cluster };
        if draft.entry()?.get("proxy-url").is_some() {
            return Err(RewriteError::HasProxy(draft.cluster_name));
        }
        Ok(draft)
    }

    /// The selected cluster in the document.
    fn entry(&mut self) -> Result<&mut Value, RewriteError> {
        let mut entries = self.document["clusters"].as_array_mut().into_iter().flatten();
        let entry = entries.find(|entry| entry["name"] == self.cluster_name.as_str());
        let unknown = || RewriteError::UnknownCluster(self.cluster_name.clone());
        entry.and_then(|entry| entry.get_mut("cluster")).ok_or_else(unknown)
    }

    fn to_yaml(&self) -> Result<String, RewriteError> {
        serde_saphyr::to_string_with_options(&self.document, ser_options! { prefer_block_scalars: false })
            .map_err(RewriteError::Yaml)
    }
}

/// The name and the entry of the selected context's cluster.
fn selected_cluster(
    kubeconfig: &Kubeconfig,
    context: Option<&str>,
) -> Result<(String, ClusterEntry), RewriteError> {
    let selected = kubeconfig.select(context)?;
    let name = selected.cluster_name.to_owned();
    match selected.cluster {
        Some(cluster) => Ok((name, cluster.clone())),
        None => Err(RewriteError::UnknownCluster(name)),
    }
}

/// The CA bundle by which programs verify the API server `server` and its proxy; `None` if the system's CAs stay. Refuses
/// every combination in which the CA of one could sign for the other.
fn bundle_for_proxy(
    cluster: &ClusterEntry,
    cluster_name: &str,
    server: &str,
    trust: &ProxyTrust,
) -> Result<Option<String>, RewriteError> {
    let name = || cluster_name.to_owned();
    if cluster.tls_server_name.is_some() {
        return Err(RewriteError::ProxyServerName(name()));
    }
    if cluster.insecure_skip_tls_verify {
        return Err(RewriteError::Insecure(name()));
    }
    let (own, added) = match (ca_pem(cluster, cluster_name)?, trust) {
        (None, ProxyTrust::System) => return Ok(None),
        (Some(_), ProxyTrust::System) => return Err(RewriteError::OwnCaOnly(name())),
        (None, ProxyTrust::Constrained(_)) => return Err(RewriteError::SystemCas(name())),
        (Some(own), ProxyTrust::Constrained(added)) => (own, added),
    };
    if added.names.iter().any(|name| is_within(server, name)) {
        return Err(RewriteError::NameOverlap(server.to_owned()));
    }
    Ok(Some(format!("{}\n{}", own.trim_end(), added.pem)))
}

/// The name that the API server's certificate has to have: the given tls-server-name, or the host without brackets.
fn server_name(cluster: &ClusterEntry, server: &HttpsServer) -> String {
    cluster.tls_server_name.clone().unwrap_or_else(|| server.bare_host().to_owned())
}

/// The CA certificates of the cluster, PEM. Refuses a cluster that has none, or that does not look at them.
fn required_ca_pem(cluster: &ClusterEntry, cluster_name: &str) -> Result<String, RewriteError> {
    let ca_pem = ca_pem(cluster, cluster_name)?.filter(|_| !cluster.insecure_skip_tls_verify);
    ca_pem.ok_or_else(|| RewriteError::NoCa(cluster_name.to_owned()))
}

/// The CA certificates of the cluster, PEM, if the entry has any. If it has data and a file, kubectl takes the data.
fn ca_pem(cluster: &ClusterEntry, cluster_name: &str) -> Result<Option<String>, RewriteError> {
    match (&cluster.certificate_authority_data, &cluster.certificate_authority) {
        (Some(data), _) => {
            let decoded = reader::decode_data(data).and_then(|bytes| String::from_utf8(bytes).ok());
            decoded.map(Some).ok_or_else(|| RewriteError::CaData(cluster_name.to_owned()))
        }
        (None, Some(path)) => Ok(Some(files::read(Path::new(path))?)),
        (None, None) => Ok(None),
    }
}

/// Tells whether `host` is `name`, or a name below it.
pub(crate) fn is_within(host: &str, name: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'))
}

fn make_absolute(entry: &mut Value, key: &str, directory: &Path) -> Result<(), RewriteError> {
    if let Some(path) = entry.get(key).and_then(Value::as_str) {
        entry[key] = absolute(path, directory)?.into();
    }
    Ok(())
}

fn absolute(path: &str, directory: &Path) -> Result<String, RewriteError> {
    let path = std::path::absolute(directory.join(path)).map_err(|_| RewriteError::NotUtf8Path)?;
    path.to_str().map(str::to_owned).ok_or(RewriteError::NotUtf8Path)
}

fn https_server(cluster: &ClusterEntry) -> Result<HttpsServer, RewriteError> {
    HttpsServer::parse(&cluster.server).ok_or_else(|| RewriteError::NotHttps(redact(&cluster.server)))
}

fn authority(server: &HttpsServer) -> Result<Authority, RewriteError> {
    let text = format!("{}:{}", server.host(), server.port());
    text.parse().map_err(|_| RewriteError::NotHttps(redact(&text)))
}

#[cfg(test)]
mod tests;
