//! Actions at the Kubernetes API, as a rule lists them.

use proto::cluster::is_dns_label;

use crate::action::{Object, Resource, Verb, connects, is_cluster_scoped};
use crate::document::{self, List};
use crate::error::{DocumentError, FieldPath};
use crate::rules::choice::{ANY, Choice};
use crate::rules::lists::choice;

/// Separates a resource from its subresource.
const SLASH: char = '/';

/// The verbs that a rule may name, as an error lists them.
const VERBS: &str = "'*', get, list, watch, create, update, patch, delete, deletecollection, connect, or of paths that are \
                     no resource get, head, options, post, put, patch, delete";

/// The verbs of requests that can span all namespaces.
const SPANNING: [Verb; 3] = [Verb::List, Verb::Watch, Verb::DeleteCollection];

/// One entry: these verbs with these resources, with these non-resource paths, or with both.
#[derive(Debug, Clone)]
pub(in crate::rules) struct Actions {
    verbs: Choice<Verb>,
    resources: Option<Resources>,
    paths: Option<Choice<PathPattern>>,
}

#[derive(Debug, Clone)]
struct Resources {
    groups: Choice<String>,
    resources: Choice<ResourcePattern>,
    /// The empty one stands for cluster-scoped resources, and for all namespaces together. A request for all namespaces
    /// together contains every namespace, so that a denial of one denies it too.
    namespaces: Choice<String>,
}

/// `pods`, `pods/log`, `pods/*`, `*/log` or `*/*`.
#[derive(Debug, Clone)]
struct ResourcePattern {
    /// `None` stands for every resource.
    resource: Option<String>,
    subresource: SubresourcePattern,
}

#[derive(Debug, Clone)]
enum SubresourcePattern {
    /// The resource itself, without a subresource.
    None,
    Any,
    Of(String),
}

/// A path in full, with or without a final slash, or a prefix.
#[derive(Debug, Clone)]
enum PathPattern {
    Exact(String),
    Prefix(String),
}

impl Actions {
    /// Returns true if the actions contain `verb` of `object`.
    pub(super) fn contain(&self, verb: Verb, object: &Object) -> bool {
        self.verbs.has(|one| *one == verb)
            && match object {
                Object::Resource(resource) => {
                    let namespace = resource.namespace.as_deref().unwrap_or_default();
                    let contain = |some: &Resources| some.contains(resource, |one| one == namespace);
                    self.resources.as_ref().is_some_and(contain)
                }
                Object::Path(path) => {
                    self.paths.as_ref().is_some_and(|paths| paths.has(|pattern| pattern.fits(path)))
                }
            }
    }

    /// Returns true if `object` stands for all namespaces together, and in some of them the actions contain `verb` of it.
    pub(super) fn contain_part_of(&self, verb: Verb, object: &Object) -> bool {
        let (true, Some(resource)) = (self.can_span(verb), object.resource()) else { return false };
        let contain = |some: &Resources| some.contains(resource, |namespace| !namespace.is_empty());
        resource.namespace.is_none()
            && !is_cluster_scoped(resource)
            && self.resources.as_ref().is_some_and(contain)
    }

    /// Returns true if a request of this `verb` that spans all namespaces is contained in part.
    pub(super) fn spans(&self, verb: Verb) -> bool {
        self.can_span(verb) && self.resources.as_ref().is_some_and(Resources::span)
    }

    /// Returns true if `verb` is contained, and a request of it can span all namespaces.
    fn can_span(&self, verb: Verb) -> bool {
        SPANNING.contains(&verb) && self.verbs.has(|one| *one == verb)
    }

    /// Returns true if `verb` returns the objects that the actions contain by another verb, and is not among them.
    pub(super) fn leaves_reading(&self, verb: Verb) -> bool {
        let has = |verb: Verb| self.verbs.has(|one| *one == verb);
        let others = match verb {
            Verb::List => [Verb::Get, Verb::Watch],
            Verb::Watch => [Verb::Get, Verb::List],
            Verb::Get
            | Verb::Create
            | Verb::Update
            | Verb::Patch
            | Verb::Delete
            | Verb::DeleteCollection
            | Verb::Connect
            | Verb::Head
            | Verb::Options
            | Verb::Post
            | Verb::Put => return false,
        };
        let lists = self.resources.as_ref().is_some_and(Resources::can_be_listed);
        lists && !has(verb) && others.into_iter().any(has)
    }

    /// Returns true if the actions contain every verb of every resource.
    pub(super) fn contain_every_resource(&self) -> bool {
        self.verbs.is_any() && self.resources.as_ref().is_some_and(Resources::contain_all)
    }

    /// Returns true if the actions contain every verb of every non-resource path.
    pub(super) fn contain_every_path(&self) -> bool {
        self.verbs.is_any() && self.paths.as_ref().is_some_and(Choice::is_any)
    }

    pub(super) fn validate(at: &FieldPath, raw: &document::RawActions) -> Result<Self, DocumentError> {
        let document::RawActions { verbs, api_groups, resources, namespaces, non_resource_urls } = raw;
        let (at_verbs, verbs) = required_list(at, "verbs", verbs.as_ref())?;
        let verbs = choice(&at_verbs, verbs, |text| text.parse().map_err(|_| VERBS))?;
        let resources = match (api_groups, resources, namespaces) {
            (None, None, None) => None,
            (groups, resources, namespaces) => {
                let (at_resources, resources) = required_list(at, "resources", resources.as_ref())?;
                let patterns = choice(&at_resources, resources, ResourcePattern::parse)?;
                check_combination(&at_verbs, &verbs, &at_resources, &patterns)?;
                let (at_groups, groups) = required_list(at, "apiGroups", groups.as_ref())?;
                let (at_namespaces, namespaces) = required_list(at, "namespaces", namespaces.as_ref())?;
                Some(Resources {
                    groups: choice(&at_groups, groups, group)?,
                    resources: patterns,
                    namespaces: choice(&at_namespaces, namespaces, namespace)?,
                })
            }
        };
        let paths = non_resource_urls.as_ref();
        let paths = paths.map(|urls| choice(&at.child("nonResourceURLs", urls), urls, PathPattern::parse));
        let paths = paths.transpose()?;
        if resources.is_none() && paths.is_none() {
            let allowed = "apiGroups, resources and namespaces, or nonResourceURLs, or all four";
            return Err(at.invalid("only verbs", allowed));
        }
        if resources.is_none() && !verbs.has(|verb| verb.may_be_asked_of(&Object::Path(String::new()))) {
            return Err(at_verbs
                .invalid("a verb of resources alone", "get, head, options, post, put, patch or delete"));
        }
        Ok(Self { verbs, resources, paths })
    }
}

impl Resources {
    /// Returns true if the resource is contained, in a namespace that `fits`.
    fn contains(&self, resource: &Resource, fits: impl Fn(&str) -> bool) -> bool {
        self.groups.has(|group| *group == resource.group)
            && self.resources.has(|pattern| pattern.fits(resource))
            && self.namespaces.has(|namespace| fits(namespace))
    }

    /// Returns true if some resource is contained in a namespace, but not for all namespaces together.
    fn span(&self) -> bool {
        let is_apart = |namespaces: &[String]| !namespaces.iter().any(String::is_empty);
        let in_some = match &self.namespaces {
            Choice::Any => false,
            Choice::Of(namespaces) => is_apart(namespaces),
        };
        in_some && self.can_be_listed()
    }

    /// Returns true if a collection is contained: a resource without a subresource.
    fn can_be_listed(&self) -> bool {
        self.resources.has(|pattern| matches!(pattern.subresource, SubresourcePattern::None))
    }

    fn contain_all(&self) -> bool {
        self.groups.is_any() && self.resources.is_any() && self.namespaces.is_any()
    }
}

impl ResourcePattern {
    fn fits(&self, resource: &Resource) -> bool {
        let subresource = resource.subresource.as_deref();
        self.resource.as_ref().is_none_or(|name| *name == resource.resource)
            && match &self.subresource {
                SubresourcePattern::None => subresource.is_none(),
                SubresourcePattern::Any => subresource.is_some(),
                SubresourcePattern::Of(name) => subresource == Some(name),
            }
    }

    /// Returns true if the pattern matches a resource with the verb connect.
    fn may_connect(&self) -> bool {
        match &self.subresource {
            SubresourcePattern::None => false,
            SubresourcePattern::Any => true,
            SubresourcePattern::Of(name) => connects(name),
        }
    }

    /// Returns true if the pattern matches only resources with the verb connect.
    fn must_connect(&self) -> bool {
        matches!(&self.subresource, SubresourcePattern::Of(name) if connects(name))
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let allowed =
            "'*', or resources such as pods, pods/log, pods/* or */log, in lower case and in the plural";
        let (resource, subresource) =
            text.split_once(SLASH).map_or((text, None), |(one, two)| (one, Some(two)));
        let fits = |name: &str| name == ANY || is_dns_label(name);
        if !fits(resource) || !subresource.is_none_or(fits) {
            return Err(allowed);
        }
        Ok(Self {
            resource: (resource != ANY).then(|| resource.to_owned()),
            subresource: match subresource {
                None => SubresourcePattern::None,
                Some(ANY) => SubresourcePattern::Any,
                Some(name) => SubresourcePattern::Of(name.to_owned()),
            },
        })
    }
}

impl PathPattern {
    fn fits(&self, path: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == path || path.strip_suffix('/') == Some(exact),
            Self::Prefix(prefix) => path.starts_with(prefix.as_str()),
        }
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let allowed =
            "'*', or paths such as /version or /healthz/*, without escapes, and with '*' at the end alone";
        let (path, is_prefix) = text.strip_suffix(ANY).map_or((text, false), |path| (path, true));
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"*%?#\\".contains(&byte);
        let ambiguous =
            path.contains("//") || path.split('/').any(|segment| segment == "." || segment == "..");
        if !path.starts_with('/') || !path.bytes().all(plain) || ambiguous {
            return Err(allowed);
        }
        let exact = || if path == "/" { path } else { path.strip_suffix('/').unwrap_or(path) };
        Ok(if is_prefix { Self::Prefix(path.to_owned()) } else { Self::Exact(exact().to_owned()) })
    }
}

/// The list under `key`, which is required.
fn required_list<'a>(
    at: &FieldPath,
    key: &str,
    list: Option<&'a List>,
) -> Result<(FieldPath, &'a List), DocumentError> {
    let list = list.ok_or_else(|| at.required(key, "at least one entry, or ['*'] for all"))?;
    Ok((at.child(key, list), list))
}

/// Refuses verbs and resources that no request combines. Their author means something else, and a rule that
/// denies nothing is worse than none.
fn check_combination(
    at_verbs: &FieldPath,
    verbs: &Choice<Verb>,
    at_resources: &FieldPath,
    resources: &Choice<ResourcePattern>,
) -> Result<(), DocumentError> {
    let (Choice::Of(verbs), Choice::Of(patterns)) = (verbs, resources) else {
        return Ok(());
    };
    let connect = verbs.contains(&Verb::Connect);
    if connect && !patterns.iter().any(ResourcePattern::may_connect) {
        let allowed = "connect with a resource that is connected to, such as pods/exec, pods/* or '*'";
        return Err(at_verbs.invalid("connect", allowed));
    }
    if !connect && patterns.iter().any(ResourcePattern::must_connect) {
        let allowed = "the verb connect (or '*') with exec, attach, portforward, proxy and ephemeralcontainers, \
                       whatever the method of the request";
        return Err(at_resources.invalid("a subresource that reaches into a workload", allowed));
    }
    Ok(())
}

fn group(text: &str) -> Result<String, &'static str> {
    if text.is_empty() || text.split('.').all(is_dns_label) {
        return Ok(text.to_owned());
    }
    Err("'*', \"\" for the core group, or groups without a version, such as apps")
}

fn namespace(text: &str) -> Result<String, &'static str> {
    if text.is_empty() || is_dns_label(text) {
        return Ok(text.to_owned());
    }
    Err("'*', names of namespaces in full, or \"\" for what is in none and for all together")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_text_lists_every_verb() {
        let listed: Vec<&str> = VERBS.split([' ', ',']).collect();
        for verb in Verb::ALL {
            assert!(listed.contains(&verb.as_str()), "{verb}");
        }
    }
}
