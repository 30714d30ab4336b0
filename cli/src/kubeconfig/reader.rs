//! Reads kubeconfigs (`v1`, `Config` of client-go's `clientcmd`) for every command that takes one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use url::Url;

/// A parsed kubeconfig. An empty or `null` value counts as absent, as it does for kubectl; unknown keys are ignored.
#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Kubeconfig {
    #[serde(default, deserialize_with = "non_empty")]
    current_context: Option<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    contexts: Vec<NamedEntry>,
    #[serde(default, deserialize_with = "null_as_default")]
    clusters: Vec<NamedEntry>,
    #[serde(default, deserialize_with = "null_as_default")]
    users: Vec<NamedEntry>,
}

/// An entry of one of the three lists. The keys that the other lists have keep their defaults.
#[derive(Deserialize, Default)]
#[serde(default)]
struct NamedEntry {
    #[serde(deserialize_with = "null_as_default")]
    name: String,
    #[serde(deserialize_with = "null_as_default")]
    context: ContextEntry,
    #[serde(deserialize_with = "null_as_default")]
    cluster: ClusterEntry,
    #[serde(deserialize_with = "null_as_default")]
    user: UserEntry,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ContextEntry {
    #[serde(deserialize_with = "null_as_default")]
    cluster: String,
    #[serde(deserialize_with = "null_as_default")]
    user: String,
}

/// The `cluster` of an entry of `clusters`.
#[derive(Deserialize, Default, Clone)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct ClusterEntry {
    #[serde(deserialize_with = "null_as_default")]
    pub(crate) server: String,
    #[serde(deserialize_with = "non_empty")]
    pub(crate) certificate_authority: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    pub(crate) certificate_authority_data: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    pub(crate) tls_server_name: Option<String>,
    #[serde(deserialize_with = "null_as_default")]
    pub(crate) insecure_skip_tls_verify: bool,
    #[serde(deserialize_with = "non_empty")]
    pub(crate) proxy_url: Option<String>,
}

/// The `user` of an entry of `users`.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct UserEntry {
    #[serde(deserialize_with = "non_empty")]
    pub(crate) client_certificate: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    pub(crate) client_certificate_data: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    pub(crate) client_key: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    pub(crate) client_key_data: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    pub(crate) token: Option<String>,
    #[serde(rename = "tokenFile", deserialize_with = "non_empty")]
    pub(crate) token_file: Option<String>,
    pub(crate) exec: Option<serde_json::Value>,
    pub(crate) auth_provider: Option<serde_json::Value>,
}

/// The context that a command uses, with the entries that it names, as far as the file has them.
pub(crate) struct SelectedContext<'a> {
    pub(crate) name: &'a str,
    pub(crate) cluster_name: &'a str,
    pub(crate) cluster: Option<&'a ClusterEntry>,
    pub(crate) user: Option<&'a UserEntry>,
}

/// The URL of a server that is reached by https.
pub(crate) struct HttpsServer(Url);

/// Syntax that is not a kubeconfig's. Quotes nothing of the file, because the line may hold a token.
#[derive(Debug, thiserror::Error)]
#[error("that is not a kubeconfig (line {line}, column {column})")]
pub(crate) struct KubeconfigSyntaxError {
    pub(crate) line: u64,
    pub(crate) column: u64,
}

/// The error if no context can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SelectContextError {
    #[error("the kubeconfig names no current-context; name a context with --context")]
    NoCurrentContext,
    #[error("the kubeconfig has no context {0:?}")]
    UnknownContext(String),
}

impl Kubeconfig {
    pub(crate) fn parse(text: &str) -> Result<Self, KubeconfigSyntaxError> {
        Ok(parse_yaml::<Option<Self>>(text)?.unwrap_or_default())
    }

    /// The context of this name, or else the current one.
    pub(crate) fn select<'a>(
        &'a self,
        context: Option<&'a str>,
    ) -> Result<SelectedContext<'a>, SelectContextError> {
        let name = context.or(self.current_context.as_deref()).filter(|name| !name.is_empty());
        let name = name.ok_or(SelectContextError::NoCurrentContext)?;
        let entry = find(&self.contexts, name);
        let context = &entry.ok_or_else(|| SelectContextError::UnknownContext(name.to_owned()))?.context;
        Ok(SelectedContext {
            name,
            cluster_name: &context.cluster,
            cluster: find(&self.clusters, &context.cluster).map(|entry| &entry.cluster),
            user: find(&self.users, &context.user).map(|entry| &entry.user),
        })
    }

    pub(crate) fn context_names(&self) -> Vec<&str> {
        self.contexts.iter().map(|entry| entry.name.as_str()).collect()
    }

    /// Every cluster, in the order of the file.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = &ClusterEntry> {
        self.clusters.iter().map(|entry| &entry.cluster)
    }
}

impl HttpsServer {
    /// `None` unless the text is a URL of the scheme https.
    pub(crate) fn parse(server: &str) -> Option<Self> {
        let url = Url::parse(server).ok()?;
        (url.scheme() == "https" && url.host_str().is_some()).then_some(Self(url))
    }

    /// The host as URLs spell it, an IPv6 address in brackets.
    pub(crate) fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    /// The host as certificates and sockets spell it, without brackets.
    pub(crate) fn bare_host(&self) -> &str {
        self.host().trim_matches(['[', ']'])
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or(443)
    }

    /// The path, without a slash at its end.
    pub(crate) fn path(&self) -> &str {
        self.0.path().trim_end_matches('/')
    }
}

/// Parses any YAML of a kubeconfig, and says of a syntax error only where it is.
pub(super) fn parse_yaml<T: DeserializeOwned>(text: &str) -> Result<T, KubeconfigSyntaxError> {
    serde_saphyr::from_str(text).map_err(|error: serde_saphyr::Error| {
        let (line, column) = error.location().map(|at| (at.line(), at.column())).unwrap_or_default();
        KubeconfigSyntaxError { line, column }
    })
}

/// The contents of a key that ends in `-data`: base64, in which line breaks are allowed.
pub(crate) fn decode_data(data: &str) -> Option<Vec<u8>> {
    BASE64.decode(data.split_whitespace().collect::<String>()).ok()
}

fn find<'a>(entries: &'a [NamedEntry], name: &str) -> Option<&'a NamedEntry> {
    entries.iter().find(|entry| entry.name == name)
}

fn null_as_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

fn non_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
current-context: a
contexts:
- { name: a, context: { cluster: c, user: u } }
- { name: b, context: { cluster: gone, user: gone } }
clusters:
- name: c
  cluster: { server: 'https://[2001:db8::1]/clusters/x/', tls-server-name: '', proxy-url: null }
users:
- { name: u, user: { token: secret } }
";

    #[test]
    fn a_context_is_selected_by_name_or_else_the_current_one() {
        let kubeconfig = Kubeconfig::parse(TEXT).unwrap();

        let current = kubeconfig.select(None).unwrap();
        let named = kubeconfig.select(Some("b")).unwrap();

        assert_eq!((current.name, current.cluster_name), ("a", "c"));
        assert_eq!(current.user.unwrap().token.as_deref(), Some("secret"));
        assert!(named.cluster.is_none() && named.user.is_none());
        let unknown = kubeconfig.select(Some("z")).err().unwrap().to_string();
        assert_eq!(unknown, "the kubeconfig has no context \"z\"");
    }

    #[test]
    fn empty_and_null_values_are_absent() {
        let kubeconfig = Kubeconfig::parse(TEXT).unwrap();
        let cluster = kubeconfig.select(None).unwrap().cluster.unwrap();
        assert!(cluster.tls_server_name.is_none() && cluster.proxy_url.is_none());

        for text in ["", "current-context: ''", "contexts: null"] {
            let empty = Kubeconfig::parse(text).unwrap();
            assert!(matches!(empty.select(None), Err(SelectContextError::NoCurrentContext)), "{text}");
        }
    }

    #[test]
    fn a_syntax_error_is_named_by_its_place_and_quotes_nothing() {
        let error = Kubeconfig::parse("users:\n- name: [secret\n").err().unwrap().to_string();
        assert!(error.contains("line") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn a_server_is_an_https_url_with_host_port_and_path() {
        let server = HttpsServer::parse("https://[2001:db8::1]/clusters/x/").unwrap();
        assert_eq!((server.host(), server.bare_host()), ("[2001:db8::1]", "2001:db8::1"));
        assert_eq!((server.port(), server.path()), (443, "/clusters/x"));
        for text in ["http://a", "a:6443", ""] {
            assert!(HttpsServer::parse(text).is_none(), "{text}");
        }
    }
}
