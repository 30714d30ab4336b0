//! A kubeconfig with a proxy in it, or with another server, and nothing else changed.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use daemon::config::shown;
use http::uri::Authority;
use serde_json::Value;
use serde_saphyr::{SerializeError, ser_options};
use url::Url;

use crate::files::{self, ReadError};

/// What names a file, which is looked for beside the kubeconfig that names it.
const FILES_OF_CLUSTERS: [&str; 1] = ["certificate-authority"];
const FILES_OF_USERS: [&str; 3] = ["client-certificate", "client-key", "tokenFile"];

/// A kubeconfig as it is to be used.
#[derive(Debug)]
pub(crate) struct Rewritten {
    pub(crate) text: String,
    /// `host:port` of the API server of its context.
    pub(crate) target: Authority,
}

/// A kubeconfig whose API server is reached by another name.
#[derive(Debug)]
pub(crate) struct Readdressed {
    pub(crate) text: String,
    /// What vouches for the API server, PEM.
    pub(crate) authority: String,
}

/// A kubeconfig whose API server is reached at an address of somebody else's, and proves to be who it was.
#[derive(Debug)]
pub(crate) struct Renamed {
    pub(crate) text: String,
    /// What vouches for the API server, PEM.
    pub(crate) authority: String,
    /// Who that proves to be.
    pub(crate) name: String,
}

/// By what a proxy that is reached by https is known. A kubeconfig has one bundle for its API server and its proxy.
#[derive(Debug)]
pub(crate) enum Vouching {
    /// By what the system trusts.
    Public,
    /// By a CA that vouches for it alone.
    Constrained(Constrained),
}

/// Certificates that vouch for DNS names below some, and for no address.
#[derive(Debug)]
pub(crate) struct Constrained {
    /// PEM.
    pub(crate) text: String,
    pub(crate) names: Vec<String>,
}

/// Why a kubeconfig cannot be used with a proxy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotRewritten {
    /// Quotes nothing: the line may be a token.
    #[error("that is not a kubeconfig (line {line}, column {column})")]
    Syntax { line: u64, column: u64 },
    #[error("the kubeconfig names no current-context; name a context with --context")]
    NoContext,
    #[error("the kubeconfig has no {what} {name:?}")]
    Unknown { what: &'static str, name: String },
    #[error("the cluster {0:?} of the kubeconfig has a proxy-url already: use the file without it")]
    Proxied(String),
    #[error(
        "the server {0:?} of the kubeconfig is no https URL, so nothing would protect what is sent there"
    )]
    Server(String),
    #[error(
        "the cluster {0:?} of the kubeconfig has a tls-server-name, which programs would send to the proxy too: use `tombolo proxy`"
    )]
    ServerName(String),
    #[error(
        "the cluster {0:?} of the kubeconfig has insecure-skip-tls-verify, so nothing would protect the token: use `tombolo proxy`"
    )]
    Insecure(String),
    #[error(
        "the cluster {0:?} of the kubeconfig trusts certificates of its own alone, and programs verify the proxy by those too: name \
         the proxy's by --ca"
    )]
    OwnAuthority(String),
    #[error(
        "the cluster {0:?} of the kubeconfig trusts what the system does, which --ca would take away: leave --ca out, and have the \
         proxy show a publicly trusted certificate"
    )]
    NoAuthority(String),
    #[error(
        "the server {0:?} of the kubeconfig is below a name for which the proxy's CA vouches too: use `tombolo proxy`"
    )]
    Overlap(String),
    #[error(
        "the cluster {0:?} of the kubeconfig has a tls-server-name, which would be asked for in place of the server's name: take it out"
    )]
    OtherName(String),
    #[error(
        "the cluster {0:?} of the kubeconfig names nothing by which its API server is known: add its certificate-authority"
    )]
    Unknowable(String),
    #[error(
        "the server {0:?} of the kubeconfig has a path, so it is a gateway of some kind, and not an API server that could be reached at \
         another address: use the cluster's own kubeconfig"
    )]
    NotItsOwn(String),
    #[error("the certificate-authority-data of the cluster {0:?} are not PEM in base64")]
    AuthorityData(String),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the path of the kubeconfig is not UTF-8 text")]
    Path,
    #[error("the kubeconfig could not be written as YAML")]
    Yaml(#[source] SerializeError),
}

/// `host:port` of the API server of a kubeconfig's `context`, or of its current one.
pub(super) fn asked(text: &str, context: Option<&str>) -> Result<Authority, NotRewritten> {
    let mut document = parsed(text)?;
    let (_, cluster) = chosen(&mut document, context)?;
    target(entry(&mut document, "clusters", "cluster", &cluster)?["server"].as_str().unwrap_or_default())
}

/// For which name the API server of a kubeconfig's `context`, or of its current one, has to show a certificate: a DNS name, or an
/// address without brackets. `None` where nobody looks.
pub(super) fn verified(text: &str, context: Option<&str>) -> Result<Option<String>, NotRewritten> {
    let mut document = parsed(text)?;
    let (_, cluster) = chosen(&mut document, context)?;
    let entry = entry(&mut document, "clusters", "cluster", &cluster)?;
    if entry["insecure-skip-tls-verify"] == true {
        return Ok(None);
    }
    let target = target(entry["server"].as_str().unwrap_or_default())?;
    Ok(Some(server_name(entry, &target)))
}

/// The kubeconfig `text`, which lies in `directory`, with `proxy` for the cluster of its `context`, or of its current one.
///
/// A proxy that is reached by https is known by `vouching`.
pub(crate) fn with_proxy(
    text: &str,
    directory: &Path,
    context: Option<&str>,
    proxy: &str,
    vouching: Option<&Vouching>,
) -> Result<Rewritten, NotRewritten> {
    let (mut document, cluster) = opened(text, directory, context)?;
    let cluster_entry = entry(&mut document, "clusters", "cluster", &cluster)?;
    let target = target(cluster_entry["server"].as_str().unwrap_or_default())?;
    if let Some(vouching) = vouching {
        vouch(cluster_entry, &cluster, target.host(), vouching)?;
    }
    cluster_entry["proxy-url"] = proxy.into();
    Ok(Rewritten { text: yaml(&document)?, target })
}

/// The same with `proxy`, which is not reached by https, for every cluster that is reached by https and has no proxy yet.
pub(super) fn with_proxy_for_all(
    text: &str,
    directory: &Path,
    context: Option<&str>,
    proxy: &str,
) -> Result<Rewritten, NotRewritten> {
    let (mut document, cluster) = opened(text, directory, context)?;
    let chosen = target(
        entry(&mut document, "clusters", "cluster", &cluster)?["server"].as_str().unwrap_or_default(),
    )?;
    for named in document["clusters"].as_array_mut().into_iter().flatten() {
        let entry = &mut named["cluster"];
        if !is_given(entry, "proxy-url") && target(entry["server"].as_str().unwrap_or_default()).is_ok() {
            entry["proxy-url"] = proxy.into();
        }
    }
    Ok(Rewritten { text: yaml(&document)?, target: chosen })
}

/// The same kubeconfig with `server` for the cluster, and what vouches for that.
pub(crate) fn with_server(
    text: &str,
    directory: &Path,
    context: Option<&str>,
    server: &str,
) -> Result<Readdressed, NotRewritten> {
    let (mut document, cluster) = opened(text, directory, context)?;
    let entry = entry(&mut document, "clusters", "cluster", &cluster)?;
    if is_given(entry, "tls-server-name") {
        return Err(NotRewritten::OtherName(cluster));
    }
    let authority = known_by(entry, &cluster)?;
    entry["server"] = server.into();
    Ok(Readdressed { text: yaml(&document)?, authority })
}

/// The same kubeconfig with `server` for the cluster, whose API server has to prove to be the one that it had to be before.
pub(crate) fn with_server_named(
    text: &str,
    directory: &Path,
    context: Option<&str>,
    server: &str,
) -> Result<Renamed, NotRewritten> {
    let (mut document, cluster) = opened(text, directory, context)?;
    let entry = entry(&mut document, "clusters", "cluster", &cluster)?;
    let old = entry["server"].as_str().unwrap_or_default().to_owned();
    let asked = target(&old)?;
    if Url::parse(&old).is_ok_and(|url| url.path() != "/") {
        return Err(NotRewritten::NotItsOwn(old));
    }
    let authority = known_by(entry, &cluster)?;
    let name = server_name(entry, &asked);
    entry["tls-server-name"] = name.as_str().into();
    entry["server"] = server.into();
    Ok(Renamed { text: yaml(&document)?, authority, name })
}

/// A kubeconfig with the context that is meant for its current one and files by paths that hold anywhere, and the context's cluster,
/// which has no proxy yet.
fn opened(text: &str, directory: &Path, context: Option<&str>) -> Result<(Value, String), NotRewritten> {
    let mut document = parsed(text)?;
    let (context, cluster) = chosen(&mut document, context)?;
    for (list, kind, files) in
        [("clusters", "cluster", &FILES_OF_CLUSTERS[..]), ("users", "user", &FILES_OF_USERS[..])]
    {
        for named in document[list].as_array_mut().into_iter().flatten() {
            for key in files {
                absolute(&mut named[kind], key, directory)?;
            }
        }
    }
    if entry(&mut document, "clusters", "cluster", &cluster)?.get("proxy-url").is_some() {
        return Err(NotRewritten::Proxied(cluster));
    }
    document["current-context"] = context.into();
    Ok((document, cluster))
}

fn yaml(document: &Value) -> Result<String, NotRewritten> {
    serde_saphyr::to_string_with_options(document, ser_options! { prefer_block_scalars: false })
        .map_err(NotRewritten::Yaml)
}

fn parsed(text: &str) -> Result<Value, NotRewritten> {
    serde_saphyr::from_str(text).map_err(|error: serde_saphyr::Error| {
        let (line, column) = error.location().map(|at| (at.line(), at.column())).unwrap_or_default();
        NotRewritten::Syntax { line, column }
    })
}

/// The context that is meant, and its cluster.
fn chosen(document: &mut Value, context: Option<&str>) -> Result<(String, String), NotRewritten> {
    let context = context.or_else(|| document["current-context"].as_str()).filter(|name| !name.is_empty());
    let context = context.ok_or(NotRewritten::NoContext)?.to_owned();
    let cluster = entry(document, "contexts", "context", &context)?["cluster"].as_str();
    let cluster = cluster.unwrap_or_default().to_owned();
    Ok((context, cluster))
}

/// Has the entry of a cluster trust the proxy, in whose place nobody can be its API server by that.
fn vouch(entry: &mut Value, name: &str, server: &str, vouching: &Vouching) -> Result<(), NotRewritten> {
    let name = || name.to_owned();
    if is_given(entry, "tls-server-name") {
        return Err(NotRewritten::ServerName(name()));
    }
    if entry["insecure-skip-tls-verify"] == true {
        return Err(NotRewritten::Insecure(name()));
    }
    let own = authority(entry, &name())?;
    let (own, added) = match (own, vouching) {
        (None, Vouching::Public) => return Ok(()),
        (Some(_), Vouching::Public) => return Err(NotRewritten::OwnAuthority(name())),
        (None, Vouching::Constrained(_)) => return Err(NotRewritten::NoAuthority(name())),
        (Some(own), Vouching::Constrained(added)) => (own, added),
    };
    if added.names.iter().any(|name| is_within(server, name)) {
        return Err(NotRewritten::Overlap(server.to_owned()));
    }
    entry["certificate-authority-data"] = BASE64.encode(format!("{}\n{}", own.trim_end(), added.text)).into();
    if let Some(entry) = entry.as_object_mut() {
        entry.remove("certificate-authority");
    }
    Ok(())
}

/// For which name the API server at `target` has to show a certificate: the one that the entry gives, or its host without brackets.
fn server_name(entry: &Value, target: &Authority) -> String {
    let given = entry["tls-server-name"].as_str().filter(|name| !name.is_empty());
    given.unwrap_or_else(|| target.host().trim_matches(['[', ']'])).to_owned()
}

/// By what the API server of the cluster `name` is known, PEM, which has to be there and looked at.
fn known_by(entry: &Value, name: &str) -> Result<String, NotRewritten> {
    let authority = authority(entry, name)?.filter(|_| entry["insecure-skip-tls-verify"] != true);
    authority.ok_or_else(|| NotRewritten::Unknowable(name.to_owned()))
}

/// What vouches for the API server of the cluster `name`, PEM, if the entry says it. kubectl takes the data where both are there.
fn authority(entry: &Value, name: &str) -> Result<Option<String>, NotRewritten> {
    let given = |key: &str| entry[key].as_str().filter(|text| !text.is_empty());
    match (given("certificate-authority-data"), given("certificate-authority")) {
        (Some(data), _) => {
            let decoded = BASE64.decode(data).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            decoded.map(Some).ok_or_else(|| NotRewritten::AuthorityData(name.to_owned()))
        }
        (None, Some(path)) => Ok(Some(files::read(Path::new(path))?)),
        (None, None) => Ok(None),
    }
}

fn is_given(entry: &Value, key: &str) -> bool {
    entry[key].as_str().is_some_and(|text| !text.is_empty())
}

/// Whether a host is a name, or below it.
pub(crate) fn is_within(host: &str, name: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'))
}

/// What the entry `name` of a list has below `kind`.
fn entry<'a>(
    document: &'a mut Value,
    list: &str,
    kind: &'static str,
    name: &str,
) -> Result<&'a mut Value, NotRewritten> {
    let entries = document[list].as_array_mut().into_iter().flatten();
    let mut named = entries.filter(|entry| entry["name"] == name);
    let unknown = || NotRewritten::Unknown { what: kind, name: name.to_owned() };
    named.next().and_then(|entry| entry.get_mut(kind)).ok_or_else(unknown)
}

/// A path that means the same wherever the kubeconfig lies.
fn absolute(within: &mut Value, key: &str, directory: &Path) -> Result<(), NotRewritten> {
    if let Some(path) = within.get(key).and_then(Value::as_str) {
        let path = std::path::absolute(directory.join(path)).map_err(|_| NotRewritten::Path)?;
        within[key] = path.to_str().ok_or(NotRewritten::Path)?.into();
    }
    Ok(())
}

fn target(server: &str) -> Result<Authority, NotRewritten> {
    let refused = || NotRewritten::Server(shown(server));
    let url = Url::parse(server).map_err(|_| refused())?;
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        return Err(refused());
    };
    if url.scheme() != "https" {
        return Err(refused());
    }
    format!("{host}:{port}").parse().map_err(|_| refused())
}

#[cfg(test)]
mod tests;
