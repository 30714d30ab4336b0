//! Names of Services, in the form in which API servers dial them.

use std::collections::BTreeSet;
use std::fmt;

use super::{Host, Target};

/// The last label of such a name.
const LABEL: &str = "svc";

/// `NAME.NAMESPACE.svc`, which the agent resolves through the cluster's API and never by DNS.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceName {
    name: String,
    namespace: String,
}

impl ServiceName {
    /// A Service of this name and namespace; `None` if the resulting text would not parse as one.
    #[must_use]
    pub fn new(name: &str, namespace: &str) -> Option<Self> {
        let host = Host::parse(&format!("{name}.{namespace}.{LABEL}"))?;
        host.service().filter(|service| service.name == name && service.namespace == namespace)
    }

    /// The Services that these texts name with a port. Networks, addresses, other names and invalid texts name none.
    pub fn among<'a>(texts: impl IntoIterator<Item = &'a String>) -> BTreeSet<Self> {
        texts.into_iter().filter_map(|text| text.parse::<Target>().ok()?.service()).collect()
    }

    /// Its own name: letters, digits, `-` and `_`, nothing that a path or a query would read otherwise.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its namespace, of the same letters.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{LABEL}", self.name, self.namespace)
    }
}

impl Host {
    fn service(&self) -> Option<ServiceName> {
        let Self::Name(text) = self else { return None };
        let mut labels = text.split('.');
        let (name, namespace, last) = (labels.next()?, labels.next()?, labels.next()?);
        let is_one = last == LABEL && labels.next().is_none();
        is_one.then(|| ServiceName { name: name.to_owned(), namespace: namespace.to_owned() })
    }
}

impl Target {
    /// The Service that the host names, if it names one.
    #[must_use]
    pub fn service(&self) -> Option<ServiceName> {
        self.host.service()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_name_dot_namespace_dot_svc_is_a_service() {
        let service = |text: &str| text.parse::<Target>().unwrap().service().map(|found| found.to_string());
        for text in ["hook.shop.svc:443", "HOOK.shop.SVC.:443"] {
            assert_eq!(service(text).as_deref(), Some("hook.shop.svc"), "{text}");
        }
        for text in [
            "hook.shop.svc.cluster.local:443",
            "pod.hook.shop.svc:443",
            "shop.svc:443",
            "svc:443",
            "hook.shop.svc.example:443",
            "hook.shop:443",
            "10.0.0.1:443",
            "[::1]:443",
        ] {
            assert_eq!(service(text), None, "{text}");
        }
    }

    #[test]
    fn a_service_name_is_valid_only_if_it_parses_back_to_the_same() {
        let made = |name: &str, namespace: &str| ServiceName::new(name, namespace);
        let service = made("api", "tenant-a").unwrap();
        assert_eq!(
            (service.name(), service.namespace(), service.to_string().as_str()),
            ("api", "tenant-a", "api.tenant-a.svc")
        );
        for (name, namespace) in
            [("a/b", "c"), ("a.b", "c"), ("", "c"), ("a", ""), ("A", "c"), ("a", "c?x=y")]
        {
            assert_eq!(made(name, namespace), None, "{name} {namespace}");
        }
    }
    #[test]
    fn the_services_among_texts_are_those_that_name_one_with_a_port() {
        let texts = [
            "b.shop.svc:443",
            "a.shop.svc:80",
            "a.shop.svc:81",
            "10.0.0.0/8:443",
            "db.example:1",
            "c.shop.svc",
            "?",
        ];
        let found = ServiceName::among(texts.map(str::to_owned).iter());
        let expected = ["a", "b"].map(|name| ServiceName::new(name, "shop").unwrap());
        assert_eq!(found, BTreeSet::from(expected));
    }
}
