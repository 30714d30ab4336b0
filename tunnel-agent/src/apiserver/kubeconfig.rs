//! Takes the credential from a kubeconfig, as far as an unattended process can use it. Other fields are refused
//! by name.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use daemon::kubeconfig::{ClusterEntry, Kubeconfig, SelectContextError, UserEntry};
use http::HeaderValue;
use http::uri::{Scheme, Uri};

use super::material::{
    ApiServerAddress, ClientCertificate, CredentialError, KubeconfigError, Material, bearer, file,
};

const PORT_DEFAULT: u16 = 443;

pub(super) fn read(path: &Path, context: Option<&str>) -> Result<Material, CredentialError> {
    let text = file("kubeconfig", path)?;
    let parsed = parse(path, &text)?;
    let missing =
        |what, name: &str| KubeconfigError::Missing { path: path.to_owned(), what, name: name.to_owned() };
    let selected = parsed.select(context).map_err(|error| match error {
        SelectContextError::NoCurrentContext => KubeconfigError::NoContext(path.to_owned()),
        SelectContextError::UnknownContext(name) => missing("context", &name),
    })?;
    let cluster = selected.cluster.ok_or_else(|| missing("cluster", selected.cluster_name))?;
    let user = selected.user.ok_or_else(|| missing("user", selected.user_name))?;
    let kubeconfig = KubeconfigFile(path);
    let (ca, ca_source) = ca(&kubeconfig, cluster)?;
    Ok(Material {
        target: target(path, cluster)?,
        ca,
        ca_source,
        authorization: authorization(&kubeconfig, user)?,
        client_certificate: client_certificate(&kubeconfig, user)?,
    })
}

fn parse(path: &Path, text: &[u8]) -> Result<Kubeconfig, KubeconfigError> {
    let syntax = |line, column| KubeconfigError::Syntax { path: path.to_owned(), line, column };
    let text = std::str::from_utf8(text).map_err(|_| syntax(0, 0))?;
    Kubeconfig::parse(text).map_err(|error| syntax(error.line, error.column))
}

fn target(path: &Path, cluster: &ClusterEntry) -> Result<ApiServerAddress, CredentialError> {
    let unsupported = |field, advice| KubeconfigError::Unsupported { path: path.to_owned(), field, advice };
    if cluster.insecure_skip_tls_verify {
        let advice = "the agent verifies its API server always: set certificate-authority";
        return Err(unsupported("insecure-skip-tls-verify", advice).into());
    }
    if cluster.proxy_url.is_some() {
        let advice = "run the agent where it reaches the API server directly";
        return Err(unsupported("proxy-url", advice).into());
    }
    let refused = || KubeconfigError::Server(path.to_owned());
    // The library drops a fragment silently.
    let uri: Uri =
        (!cluster.server.contains('#')).then(|| cluster.server.parse().ok()).flatten().ok_or_else(refused)?;
    let base_path = base_path(&uri).ok_or_else(refused)?;
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
    let (Some(authority), true) = (authority, uri.scheme() == Some(&Scheme::HTTPS)) else {
        return Err(refused().into());
    };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let port = authority.port_u16().unwrap_or(PORT_DEFAULT);
    let address = ApiServerAddress::new(host, port, cluster.tls_server_name.as_deref())?;
    Ok(address.with_base_path(base_path))
}

/// The path of a server's URL, without slashes at its end, and empty segments dropped as client-go does.
/// `None` for a query, or for a path that goes up.
fn base_path(server: &Uri) -> Option<String> {
    if server.query().is_some() {
        return None;
    }
    let segments: Vec<&str> = server.path().split('/').filter(|segment| !segment.is_empty()).collect();
    let goes_up = segments.iter().any(|segment| matches!(*segment, "." | ".."));
    (!goes_up).then(|| segments.iter().map(|segment| format!("/{segment}")).collect())
}

fn ca(kubeconfig: &KubeconfigFile<'_>, cluster: &ClusterEntry) -> Result<(Vec<u8>, String), CredentialError> {
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
    user: &UserEntry,
) -> Result<Option<HeaderValue>, CredentialError> {
    refuse_unsupported(kubeconfig, user)?;
    // As in client-go, the file wins over the value.
    if let Some(path) = &user.token_file {
        let path = kubeconfig.resolved(Path::new(path));
        return bearer(&file("token", &path)?, &path.display().to_string()).map(Some);
    }
    let token = user.token.as_deref();
    token.map(|token| bearer(token.as_bytes(), &kubeconfig.0.display().to_string())).transpose()
}

fn client_certificate(
    kubeconfig: &KubeconfigFile<'_>,
    user: &UserEntry,
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

fn refuse_unsupported(kubeconfig: &KubeconfigFile<'_>, user: &UserEntry) -> Result<(), KubeconfigError> {
    const PLUGIN: &str = "the agent runs no programs: use a ServiceAccount's token or a client certificate";
    const PASSWORD: &str = "Kubernetes has no passwords any more: use a token or a client certificate";
    const IMPERSONATION: &str = "the agent itself asserts identities: use a credential that may impersonate";
    for (field, present, advice) in [
        ("exec", user.exec, PLUGIN),
        ("auth-provider", user.auth_provider, PLUGIN),
        ("username", user.username, PASSWORD),
        ("password", user.password, PASSWORD),
        ("as", user.as_user, IMPERSONATION),
        ("as-uid", user.as_uid, IMPERSONATION),
        ("as-groups", user.as_groups, IMPERSONATION),
        ("as-user-extra", user.as_user_extra, IMPERSONATION),
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
        path: Option<&str>,
        data: Option<&str>,
    ) -> Result<Option<(Vec<u8>, String)>, CredentialError> {
        if let Some(data) = data {
            let compact: String = data.split_ascii_whitespace().collect();
            let not_base64 = |_| KubeconfigError::NotBase64 { path: self.0.to_owned(), field: data_field };
            let bytes = STANDARD.decode(compact).map_err(not_base64)?;
            return Ok(Some((bytes, format!("{data_field} of {}", self.0.display()))));
        }
        let Some(path) = path else {
            return Ok(None);
        };
        let path = self.resolved(Path::new(path));
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
