//! The configured searches for API servers of tenants: raw form and validation.

use daemon::config::{KeyError, bounded};
use proto::cluster::is_dns_label;
use serde::Deserialize;

/// Most entries of the list of tenants.
pub const TENANTS_MAX: usize = 16;

/// Longest label selector, in bytes.
const SELECTOR_BYTES_MAX: usize = 512;

/// One search for API servers of tenants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenants {
    /// The kind of object to search.
    pub kind: TenantKind,
    /// The namespace to search. `None` means all of them.
    pub namespace: Option<String>,
    /// The labels to select, in the form of kubectl's `--selector`. `None` means any labels.
    pub label_selector: Option<String>,
    /// The port of the API.
    pub port: u16,
}

/// The kind of object that a search looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum TenantKind {
    /// Pods that are ready, by address.
    Pod,
    /// Services, by address and name.
    Service,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawTenants {
    /// The kind of object to search: pods that are ready, or Services.
    kind: TenantKind,
    /// The namespace to search. An entry has this, `labelSelector`, or both.
    namespace: Option<String>,
    /// Labels in the form of kubectl's --selector.
    #[cfg_attr(test, schemars(length(min = 1, max = SELECTOR_BYTES_MAX)))]
    label_selector: Option<String>,
    /// Port at which their API servers listen.
    #[cfg_attr(test, schemars(range(min = 1, max = u16::MAX)))]
    port: u16,
}

pub(super) fn valid(raw: Vec<RawTenants>) -> Result<Vec<Tenants>, KeyError> {
    bounded("tenants", raw.len(), 0..=TENANTS_MAX)?;
    raw.into_iter().map(tenants).collect()
}

fn tenants(raw: RawTenants) -> Result<Tenants, KeyError> {
    let RawTenants { kind, namespace, label_selector, port } = raw;
    if let Some(name) = namespace.as_ref().filter(|name| !is_dns_label(name)) {
        return Err(KeyError::new("tenants.namespace", name, "the name of a namespace"));
    }
    let fits = |text: &String| {
        !text.is_empty()
            && text.len() <= SELECTOR_BYTES_MAX
            && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
    };
    if let Some(text) = label_selector.as_ref().filter(|text| !fits(text)) {
        let allowed = format!(
            "a selector in the form of kubectl's --selector, at most {SELECTOR_BYTES_MAX} characters"
        );
        return Err(KeyError::new("tenants.labelSelector", text, allowed));
    }
    if namespace.is_none() && label_selector.is_none() {
        let allowed = "a namespace, a labelSelector, or both";
        return Err(KeyError::new("tenants", "everything in the cluster", allowed));
    }
    Ok(Tenants { kind, namespace, label_selector, port: bounded("tenants.port", port, 1..=u16::MAX)? })
}
