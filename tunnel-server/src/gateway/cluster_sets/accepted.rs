//! The form of an answer, by the caller's `Accept`: JSON lists, metadata alone, or tables.

use http::HeaderMap;
use http::header::ACCEPT;
use policy::action::SetReadKind;

/// The form in which clusters are asked, and in which the answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gateway) enum Accepted {
    /// Objects in JSON, whole as they are.
    Json,
    /// The metadata of objects alone.
    MetadataList,
    Metadata,
    /// All groups and resources in one document.
    AggregatedDiscovery,
    /// A table, in its two versions.
    TableV1,
    TableV1beta1,
}

impl Accepted {
    /// The first form among the caller's that this server can write. `None` if there is none.
    pub(super) fn of(headers: &HeaderMap, kind: SetReadKind) -> Option<Self> {
        if kind == SetReadKind::Document {
            return Some(Self::Json);
        }
        Self::first(headers, |form| form.fits(kind))
    }

    /// The first form among the caller's that `is_written` here. JSON for a caller that names none.
    pub(in crate::gateway) fn first(headers: &HeaderMap, is_written: impl Fn(Self) -> bool) -> Option<Self> {
        let texts: Vec<&str> =
            headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
        if texts.is_empty() {
            return Some(Self::Json);
        }
        let clauses = texts.iter().flat_map(|text| text.split(','));
        clauses.filter_map(Self::of_clause).find(|form| is_written(*form))
    }

    /// Returns true if reads of this kind have answers in this form.
    fn fits(self, kind: SetReadKind) -> bool {
        match self {
            Self::Json => true,
            Self::MetadataList => kind == SetReadKind::List,
            Self::Metadata => kind == SetReadKind::Name,
            Self::AggregatedDiscovery => kind == SetReadKind::Discovery,
            Self::TableV1 | Self::TableV1beta1 => matches!(kind, SetReadKind::List | SetReadKind::Name),
        }
    }

    fn of_clause(clause: &str) -> Option<Self> {
        let mut parts = clause.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        if !matches!(media, "application/json" | "application/*" | "*/*") {
            return None;
        }
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let value = |name| parameters.iter().find(|(own, _)| *own == name).map(|(_, value)| *value);
        match (value("as"), value("v"), value("g")) {
            (None, _, _) => Some(Self::Json),
            (Some("Table"), Some("v1"), Some("meta.k8s.io")) => Some(Self::TableV1),
            (Some("Table"), Some("v1beta1"), Some("meta.k8s.io")) => Some(Self::TableV1beta1),
            (Some("PartialObjectMetadataList"), Some("v1"), Some("meta.k8s.io")) => Some(Self::MetadataList),
            (Some("PartialObjectMetadata"), Some("v1"), Some("meta.k8s.io")) => Some(Self::Metadata),
            (Some("APIGroupDiscoveryList"), Some("v2"), Some("apidiscovery.k8s.io")) => {
                Some(Self::AggregatedDiscovery)
            }
            _ => None,
        }
    }

    /// The value of `Accept`, and of `Content-Type`.
    pub(in crate::gateway) fn as_str(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::MetadataList => "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            Self::Metadata => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            Self::AggregatedDiscovery => {
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            Self::TableV1 => "application/json;as=Table;v=v1;g=meta.k8s.io",
            Self::TableV1beta1 => "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
        }
    }

    pub(in crate::gateway) fn is_table(self) -> bool {
        matches!(self, Self::TableV1 | Self::TableV1beta1)
    }

    /// The `apiVersion` of a table in this form.
    pub(in crate::gateway) fn table_version(self) -> &'static str {
        if self == Self::TableV1beta1 { "meta.k8s.io/v1beta1" } else { "meta.k8s.io/v1" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_is_written_here_is_taken() {
        const KUBECTL: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        const DISCOVERY: &str =
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        for (accept, kind, form) in [
            (None, SetReadKind::List, Some(Accepted::Json)),
            (Some(KUBECTL), SetReadKind::List, Some(Accepted::TableV1)),
            (Some(KUBECTL), SetReadKind::Name, Some(Accepted::TableV1)),
            (Some(KUBECTL), SetReadKind::Discovery, Some(Accepted::Json)),
            (Some(DISCOVERY), SetReadKind::Discovery, Some(Accepted::AggregatedDiscovery)),
            (Some(DISCOVERY), SetReadKind::List, Some(Accepted::Json)),
            (
                Some("application/vnd.kubernetes.protobuf, application/json"),
                SetReadKind::List,
                Some(Accepted::Json),
            ),
            (Some("application/vnd.kubernetes.protobuf"), SetReadKind::List, None),
            (
                Some("application/json;as=APIGroupDiscoveryList;v=v2beta1;g=apidiscovery.k8s.io"),
                SetReadKind::Discovery,
                None,
            ),
            (
                Some("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io, application/json"),
                SetReadKind::List,
                Some(Accepted::MetadataList),
            ),
            (Some("text/html, */*;q=0.1"), SetReadKind::List, Some(Accepted::Json)),
            (
                Some("application/com.github.proto-openapi.spec.v2@v1.0+protobuf"),
                SetReadKind::Document,
                Some(Accepted::Json),
            ),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(ACCEPT, accept.parse().unwrap());
            }
            assert_eq!(Accepted::of(&headers, kind), form, "{accept:?} {kind:?}");
        }
    }
}
