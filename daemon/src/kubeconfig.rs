//! Reads kubeconfigs (`v1`, `Config` of client-go's `clientcmd`) as kubectl does, for every program that takes
//! one.

use std::fmt;

use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A parsed kubeconfig. An empty or `null` value counts as absent, as it does for kubectl; unknown keys are
/// ignored.
#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub struct Kubeconfig {
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

/// The `cluster` of an entry of `clusters`. Each field is the key of the same name.
#[derive(Deserialize, Default, Clone)]
#[serde(default, rename_all = "kebab-case")]
#[expect(missing_docs, reason = "each field is the key of the same name")]
pub struct ClusterEntry {
    #[serde(deserialize_with = "null_as_default")]
    pub server: String,
    #[serde(deserialize_with = "non_empty")]
    pub certificate_authority: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    pub certificate_authority_data: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    pub tls_server_name: Option<String>,
    #[serde(deserialize_with = "null_as_default")]
    pub insecure_skip_tls_verify: bool,
    #[serde(deserialize_with = "non_empty")]
    pub proxy_url: Option<String>,
}

/// The `user` of an entry of `users`. Each field is the key of the same name. Of keys that no program of ours
/// can use, it has only whether they are set.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "kebab-case")]
#[expect(missing_docs, reason = "each field is the key of the same name")]
#[expect(clippy::struct_excessive_bools, reason = "a kubeconfig has so many keys")]
pub struct UserEntry {
    #[serde(deserialize_with = "non_empty")]
    pub client_certificate: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    pub client_certificate_data: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    pub client_key: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    pub client_key_data: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    pub token: Option<String>,
    #[serde(rename = "tokenFile", deserialize_with = "non_empty")]
    pub token_file: Option<String>,
    #[serde(deserialize_with = "is_set")]
    pub exec: bool,
    #[serde(deserialize_with = "is_set")]
    pub auth_provider: bool,
    #[serde(deserialize_with = "is_set")]
    pub username: bool,
    #[serde(deserialize_with = "is_set")]
    pub password: bool,
    #[serde(rename = "as", deserialize_with = "is_set")]
    pub as_user: bool,
    #[serde(deserialize_with = "is_set")]
    pub as_uid: bool,
    #[serde(deserialize_with = "is_set")]
    pub as_groups: bool,
    #[serde(deserialize_with = "is_set")]
    pub as_user_extra: bool,
}

/// The context that a program uses, with the entries that it names, as far as the file has them.
pub struct SelectedContext<'a> {
    /// The name of the context.
    pub name: &'a str,
    /// The name of its cluster, which the file may lack.
    pub cluster_name: &'a str,
    /// The name of its user, which the file may lack.
    pub user_name: &'a str,
    /// The cluster of that name.
    pub cluster: Option<&'a ClusterEntry>,
    /// The user of that name.
    pub user: Option<&'a UserEntry>,
}

/// Syntax that is not a kubeconfig's. Quotes nothing of the file, because the line may hold a token.
#[derive(Debug, thiserror::Error)]
#[error("that is not a kubeconfig (line {line}, column {column})")]
pub struct KubeconfigSyntaxError {
    /// From 1; 0 if unknown.
    pub line: u64,
    /// From 1; 0 if unknown.
    pub column: u64,
}

/// The error if no context can be used.
#[derive(Debug, thiserror::Error)]
pub enum SelectContextError {
    /// There is neither a `current-context` nor a configured one.
    #[error("the kubeconfig names no current-context; name a context with --context")]
    NoCurrentContext,
    /// The file has no context of this name.
    #[error("the kubeconfig has no context {0:?}")]
    UnknownContext(String),
}

impl Kubeconfig {
    /// Parses the first document of `text`. Like kubectl, it looks at no other.
    ///
    /// # Errors
    /// [`KubeconfigSyntaxError`] has the place.
    pub fn parse(text: &str) -> Result<Self, KubeconfigSyntaxError> {
        Ok(first_document(text)?.unwrap_or_default())
    }

    /// The cluster of a file without contexts, such as kubeadm's `cluster-info`: the first one.
    #[must_use]
    pub fn first_cluster(&self) -> Option<&ClusterEntry> {
        self.clusters.first().map(|entry| &entry.cluster)
    }

    /// The context of this name, or else the current one.
    ///
    /// # Errors
    /// [`SelectContextError`] if there is none.
    pub fn select<'a>(&'a self, context: Option<&'a str>) -> Result<SelectedContext<'a>, SelectContextError> {
        let name = context.or(self.current_context.as_deref()).filter(|name| !name.is_empty());
        let name = name.ok_or(SelectContextError::NoCurrentContext)?;
        let entry = find(&self.contexts, name);
        let context = &entry.ok_or_else(|| SelectContextError::UnknownContext(name.to_owned()))?.context;
        Ok(SelectedContext {
            name,
            cluster_name: &context.cluster,
            user_name: &context.user,
            cluster: find(&self.clusters, &context.cluster).map(|entry| &entry.cluster),
            user: find(&self.users, &context.user).map(|entry| &entry.user),
        })
    }

    /// The names of all contexts, in the order of the file.
    pub fn context_names(&self) -> Vec<&str> {
        self.contexts.iter().map(|entry| entry.name.as_str()).collect()
    }

    /// Every cluster, in the order of the file.
    pub fn clusters(&self) -> impl Iterator<Item = &ClusterEntry> {
        self.clusters.iter().map(|entry| &entry.cluster)
    }
}

/// The first document of a YAML text that is not empty, in any form. `None` if there is none.
///
/// # Errors
/// [`KubeconfigSyntaxError`] says only where the syntax is wrong.
pub fn first_document<T: DeserializeOwned>(text: &str) -> Result<Option<T>, KubeconfigSyntaxError> {
    let mut bytes = text.as_bytes();
    let first = serde_saphyr::read(&mut bytes).next().transpose();
    first.map_err(|error: serde_saphyr::Error| {
        let (line, column) = error.location().map(|at| (at.line(), at.column())).unwrap_or_default();
        KubeconfigSyntaxError { line, column }
    })
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

/// Says whether a key has a value of any kind that is neither `null` nor empty.
fn is_set<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    struct IsSet;

    impl<'de> Visitor<'de> for IsSet {
        type Value = bool;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("any value")
        }

        fn visit_unit<E>(self) -> Result<bool, E> {
            Ok(false)
        }

        fn visit_none<E>(self) -> Result<bool, E> {
            Ok(false)
        }

        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
            deserializer.deserialize_any(self)
        }

        fn visit_bool<E>(self, _: bool) -> Result<bool, E> {
            Ok(true)
        }

        fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
            Ok(true)
        }

        fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
            Ok(true)
        }

        fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
            Ok(true)
        }

        fn visit_str<E>(self, text: &str) -> Result<bool, E> {
            Ok(!text.is_empty())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<bool, A::Error> {
            let mut has_any = false;
            while items.next_element::<IgnoredAny>()?.is_some() {
                has_any = true;
            }
            Ok(has_any)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            // An empty map is a value: `exec: {}` asks for a program, too.
            Ok(true)
        }
    }

    deserializer.deserialize_any(IsSet)
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

        assert_eq!((current.name, current.cluster_name, current.user_name), ("a", "c", "u"));
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

        for text in ["", "---\n", "current-context: ''", "contexts: null"] {
            let empty = Kubeconfig::parse(text).unwrap();
            assert!(matches!(empty.select(None), Err(SelectContextError::NoCurrentContext)), "{text}");
        }
    }

    #[test]
    fn a_user_that_is_null_has_no_credential() {
        let text = TEXT.replace("user: { token: secret }", "user: null");

        let kubeconfig = Kubeconfig::parse(&text).unwrap();

        let user = kubeconfig.select(None).unwrap().user.unwrap();
        assert!(user.token.is_none() && !user.exec && !user.username);
    }

    #[test]
    fn only_the_first_of_several_documents_is_read() {
        let other = TEXT.replace("current-context: a", "current-context: b");
        for text in [
            format!("---{TEXT}---{other}"),
            format!("{TEXT}---\n- another kind\n"),
            format!("{TEXT}...\n---\n[ this is no YAML"),
            format!("# only words\n---{TEXT}"),
        ] {
            let kubeconfig = Kubeconfig::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert_eq!(kubeconfig.select(None).unwrap().name, "a", "{text}");
        }
    }

    #[test]
    fn a_key_is_set_by_any_value_that_is_not_empty() {
        for (value, expected) in [
            ("{command: aws}", true),
            ("{}", true),
            ("[a]", true),
            ("x", true),
            ("0", true),
            ("false", true),
            ("null", false),
            ("''", false),
            ("[]", false),
            ("", false),
        ] {
            let text = TEXT.replace("token: secret", &format!("as-groups: {value}"));
            let kubeconfig = Kubeconfig::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            let user = kubeconfig.select(None).unwrap().user.unwrap();
            assert_eq!(user.as_groups, expected, "{value}");
        }
    }

    #[test]
    fn a_syntax_error_is_named_by_its_place_and_quotes_nothing() {
        let error = Kubeconfig::parse("users:\n- name: [secret\n").err().unwrap().to_string();
        assert!(error.contains("line") && !error.contains("secret"), "{error}");
    }
}
