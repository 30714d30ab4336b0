//! Where API servers of tenants are looked for.

use daemon::config::{KeyError, bounded};
use proto::cluster::is_dns_label;
use serde::Deserialize;

use super::TENANTS_MAX;

/// Longest selector.
const SELECTOR_BYTES_MAX: usize = 512;

/// One search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenants {
    /// Among what.
    pub kind: TenantKind,
    /// In this namespace; in all of them, if `None`.
    pub namespace: Option<String>,
    /// With labels that this selects, as kubectl's `--selector` has it; with any, if `None`.
    pub label_selector: Option<String>,
    /// The port that is the API.
    pub port: u16,
}

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum TenantKind {
    /// Pods that are ready, by their addresses.
    Pod,
    /// Services, by address and name.
    Service,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Written {
    kind: TenantKind,
    namespace: Option<String>,
    label_selector: Option<String>,
    port: u16,
}

pub(super) fn valid(written: Vec<Written>) -> Result<Vec<Tenants>, KeyError> {
    bounded("tenants", written.len(), 0..=TENANTS_MAX)?;
    written.into_iter().map(tenants).collect()
}

fn tenants(written: Written) -> Result<Tenants, KeyError> {
    let Written { kind, namespace, label_selector, port } = written;
    if let Some(name) = namespace.as_ref().filter(|name| !is_dns_label(name)) {
        return Err(KeyError::new("tenants.namespace", name, "the name of a namespace"));
    }
    let fits = |text: &String| {
        !text.is_empty()
            && text.len() <= SELECTOR_BYTES_MAX
            && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
    };
    if let Some(text) = label_selector.as_ref().filter(|text| !fits(text)) {
        let allowed = format!("labels as kubectl selects by them, at most {SELECTOR_BYTES_MAX} characters");
        return Err(KeyError::new("tenants.labelSelector", text, allowed));
    }
    if namespace.is_none() && label_selector.is_none() {
        let allowed = "a namespace, a labelSelector, or both";
        return Err(KeyError::new("tenants", "everything in the cluster", allowed));
    }
    Ok(Tenants { kind, namespace, label_selector, port: bounded("tenants.port", port, 1..=u16::MAX)? })
}
