//! Reads a kubeconfig, as far as an unattended process can use it. Other fields are refused by name.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use http::uri::{Scheme, Uri};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::material::{
    ApiServerAddress, ClientCertificate, CredentialError, KubeconfigError, Material, bearer, file,
};

const PORT_DEFAULT: u16 = 443;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawKubeconfig {
    current_context: Option<String>,
    #[serde(default)]
    contexts: Vec<NamedContext>,
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    users: Vec<NamedUser>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: RawContext,
}

#[derive(Deserialize)]
struct RawContext {
    cluster: String,
    user: String,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: RawCluster,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct RawCluster {
    server: Option<String>,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    tls_server_name: Option<String>,
    insecure_skip_tls_verify: Option<bool>,
    proxy_url: Option<String>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: RawUser,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct RawUser {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    exec: Option<IgnoredAny>,
    auth_provider: Option<IgnoredAny>,
    username: Option<IgnoredAny>,
    password: Option<IgnoredAny>,
    #[serde(rename = "as")]
    as_user: Option<IgnoredAny>,
    as_uid: Option<IgnoredAny>,
    as_groups: Option<IgnoredAny>,
    as_user_extra: Option<IgnoredAny>,
}

pub(super) fn read(path: &Path, context: Option<&str>) -> Result<Material, CredentialError> {
    let text = file("kubeconfig", path)?;
    let RawKubeconfig { current_context, contexts, clusters, users } = parse(path, &text)?;
    let name = context
        .map(str::to_owned)
        .or(current_context)
        .filter(|name| !name.is_empty())
        .ok_or_else(|| KubeconfigError::NoContext(path.to_owned()))?;
    let missing =
        |what, name: &str| KubeconfigError::Missing { path: path.to_owned(), what, name: name.to_owned() };
    let context = contexts.into_iter().find(|found| found.name == name);
    let RawContext { cluster, user } = context.ok_or_else(|| missing("context", &name))?.context;
    let found = clusters.into_iter().find(|found| found.name == cluster);
    let cluster = found.ok_or_else(|| missing("cluster", &cluster))?.cluster;
    let found = users.into_iter().find(|found| found.name == user);
    let user = found.ok_or_else(|| missing("user", &user))?.user;
    let kubeconfig = KubeconfigFile(path);
    let (ca, ca_source) = ca(&kubeconfig, &cluster)?;
    Ok(Material {
        target: target(path, cluster)?,
        ca,
        ca_source,
        authorization: authorization(&kubeconfig, &user)?,
        client_certificate: client_certificate(&kubeconfig, user)?,
    })
}

fn parse(path: &Path, text: &[u8]) -> Result<RawKubeconfig, KubeconfigError> {
    let syntax = |at: Option<(u64, u64)>| {
        let (line, column) = at.unwrap_or_default();
        KubeconfigError::Syntax { path: path.to_owned(), line, column }
    };
    let text = std::str::from_utf8(text).map_err(|_| syntax(None))?;
    // The parser's own message would quote the line, and a line may be a key.
    serde_saphyr::from_str(text).map_err(|error| syntax(error.location().map(|at| (at.line(), at.column()))))
}

fn target(path: &Path, cluster: RawCluster) -> Result<ApiServerAddress, CredentialError> {
    let RawCluster { server, tls_server_name, insecure_skip_tls_verify, proxy_url, .. } = cluster;
    let unsupported = |field, advice| KubeconfigError::Unsupported { path: path.to_owned(), field, advice };
    if insecure_skip_tls_verify == Some(true) {
        let advice = "the agent verifies its API server always: set certificate-authority";
        return Err(unsupported("insecure-skip-tls-verify", advice).into());
    }
    if proxy_url.is_some_and(|url| !url.is_empty()) {
        let advice = "run the agent where it reaches the API server directly";
        return Err(unsupported("proxy-url", advice).into());
    }
    let refused = || KubeconfigError::Server(path.to_owned());
    let uri: Uri = server.unwrap_or_default().parse().map_err(|_| refused())?;
    let has_no_path = uri.path_and_query().is_none_or(|path| path.as_str() == "/");
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
    let (Some(authority), true, true) = (authority, has_no_path, uri.scheme() == Some(&Scheme::HTTPS)) else {
        return Err(refused().into());
    };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let port = authority.port_u16().unwrap_or(PORT_DEFAULT);
    ApiServerAddress::new(host, port, tls_server_name.as_deref().filter(|name| !name.is_empty()))
}

fn ca(kubeconfig: &KubeconfigFile<'_>, cluster: &RawCluster) -> Result<(Vec<u8>, String), CredentialError> {
    let names = ("certificate-authority", "certificate-authority-data");
    let found = kubeconfig.either(
        names,
        "CA certificate",
        cluster.certificate_authority.as_deref(),
        cluster.certificate_authority_data.as_deref(),
    )?;
    let advice = "the agent trusts only a CA that it was given, never the system's";
    Ok(found.ok_or_else(|| kubeconfig.incomplete(names.0, advice))?)
}

fn authorization(
    kubeconfig: &KubeconfigFile<'_>,
    user: &RawUser,
) -> Result<Option<HeaderValue>, CredentialError> {
    refuse_unsupported(kubeconfig, user)?;
    // As in client-go, the file wins over the value.
    if let Some(path) = user.token_file.as_deref().filter(|path| !path.as_os_str().is_empty()) {
        let path = kubeconfig.resolved(path);
        return bearer(&file("token", &path)?, &path.display().to_string()).map(Some);
    }
    let token = user.token.as_deref().filter(|token| !token.is_empty());
    token.map(|token| bearer(token.as_bytes(), &kubeconfig.0.display().to_string())).transpose()
}

fn client_certificate(
    kubeconfig: &KubeconfigFile<'_>,
    user: RawUser,
) -> Result<Option<ClientCertificate>, CredentialError> {
    let certificate = kubeconfig.either(
        ("client-certificate", "client-certificate-data"),
        "client certificate",
        user.client_certificate.as_deref(),
        user.client_certificate_data.as_deref(),
    )?;
    let key = kubeconfig.either(
        ("client-key", "client-key-data"),
        "client key",
        user.client_key.as_deref(),
        user.client_key_data.as_deref(),
    )?;
    match (certificate, key) {
        (Some((chain, source)), Some((key, _))) => Ok(Some(ClientCertificate { chain, key, source })),
        (Some(_), None) => Err(kubeconfig.incomplete("client-key", "a certificate needs its key").into()),
        (None, Some(_)) => {
            Err(kubeconfig.incomplete("client-certificate", "a key needs its certificate").into())
        }
        (None, None) if user.token.is_some() || user.token_file.is_some() => Ok(None),
        (None, None) => {
            let advice = "give the user a token, a tokenFile, or a client certificate with its key";
            Err(kubeconfig.incomplete("a credential", advice).into())
        }
    }
}

fn refuse_unsupported(kubeconfig: &KubeconfigFile<'_>, user: &RawUser) -> Result<(), KubeconfigError> {
    const PLUGIN: &str = "the agent runs no programs: use a ServiceAccount's token or a client certificate";
    const PASSWORD: &str = "Kubernetes has no passwords any more: use a token or a client certificate";
    const IMPERSONATION: &str = "the agent itself asserts identities: use a credential that may impersonate";
    for (field, present, advice) in [
        ("exec", user.exec.is_some(), PLUGIN),
        ("auth-provider", user.auth_provider.is_some(), PLUGIN),
        ("username", user.username.is_some(), PASSWORD),
        ("password", user.password.is_some(), PASSWORD),
        ("as", user.as_user.is_some(), IMPERSONATION),
        ("as-uid", user.as_uid.is_some(), IMPERSONATION),
        ("as-groups", user.as_groups.is_some(), IMPERSONATION),
        ("as-user-extra", user.as_user_extra.is_some(), IMPERSONATION),
    ] {
        if present {
            return Err(KubeconfigError::Unsupported { path: kubeconfig.0.to_owned(), field, advice });
        }
    }
    Ok(())
}

/// The path of a kubeconfig, whose folder is the base of relative paths.
struct KubeconfigFile<'a>(&'a Path);

impl KubeconfigFile<'_> {
    /// The data field if it is set, or else the file's content, with the name of its source. As in client-go,
    /// data wins.
    fn either(
        &self,
        (_, data_field): (&'static str, &'static str),
        what: &'static str,
        path: Option<&Path>,
        data: Option<&str>,
    ) -> Result<Option<(Vec<u8>, String)>, CredentialError> {
        if let Some(data) = data.filter(|data| !data.is_empty()) {
            let compact: String = data.split_ascii_whitespace().collect();
            let not_base64 = |_| KubeconfigError::NotBase64 { path: self.0.to_owned(), field: data_field };
            let bytes = STANDARD.decode(compact).map_err(not_base64)?;
            return Ok(Some((bytes, format!("{data_field} of {}", self.0.display()))));
        }
        let Some(path) = path.filter(|path| !path.as_os_str().is_empty()) else {
            return Ok(None);
        };
        let path = self.resolved(path);
        Ok(Some((file(what, &path)?, path.display().to_string())))
    }

    fn resolved(&self, path: &Path) -> PathBuf {
        self.0.parent().unwrap_or_else(|| Path::new(".")).join(path)
    }

    fn incomplete(&self, field: &'static str, advice: &'static str) -> KubeconfigError {
        KubeconfigError::Incomplete { path: self.0.to_owned(), field, advice }
    }
}

#[cfg(test)]
mod tests;
