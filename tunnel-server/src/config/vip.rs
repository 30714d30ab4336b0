//! The section `vip`: addresses of clusters that this host takes on an interface of its own.

mod address;
mod entry_point;
mod publish;
mod range;

use std::path::Path;

use daemon::config::{KeyError, bounded};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::egress::EgressConfig;
use super::passthrough::PassthroughConfig;
use super::value::NAMES_MAX;
use entry_point::RawVipEntryPoint;
use publish::RawPublish;

pub use entry_point::VipEntryPoint;
pub use publish::VipPublish;
pub use range::VipRange;

/// Most entry points by clusters' addresses.
pub const VIP_ENTRY_POINTS_MAX: usize = 64;

/// Default name of the interface.
const INTERFACE_DEFAULT: &str = "tombolo0";

/// Longest name of an interface in Linux, without the zero at its end.
const INTERFACE_BYTES_MAX: usize = 15;

/// Addresses of clusters on an interface of this host.
#[derive(Debug)]
pub struct VipConfig {
    /// The interface, which the process creates and which ends with it.
    pub interface: String,
    /// The client networks and what the addresses mean to each; 1 to [`VIP_ENTRY_POINTS_MAX`].
    pub entry_points: Vec<VipEntryPoint>,
    /// The cluster in which addresses of ranges become Services, if any.
    pub publish: Option<VipPublish>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawVip {
    /// Name of the network interface that the server makes and removes.
    #[cfg_attr(test, schemars(extend("default" = INTERFACE_DEFAULT)))]
    interface: Option<String>,
    /// Networks of callers, and what each address means to them.
    #[cfg_attr(test, schemars(required, length(min = 1, max = VIP_ENTRY_POINTS_MAX)))]
    entry_points: Option<Vec<RawVipEntryPoint>>,
    /// The former name of `entryPoints`, which is refused with the present one.
    #[cfg_attr(test, schemars(skip))]
    ways: Option<IgnoredAny>,
    /// A host cluster in which the addresses of ranges become Services.
    publish: Option<RawPublish>,
}

pub(super) fn vip(
    raw: Option<RawVip>,
    egress: &[EgressConfig],
    passthrough: Option<&PassthroughConfig>,
    directory: &Path,
) -> Result<Option<VipConfig>, KeyError> {
    let Some(RawVip { interface, entry_points: raw, ways, publish }) = raw else { return Ok(None) };
    if ways.is_some() {
        return Err(KeyError::new("vip.ways", "a list", "vip.entryPoints, the key's present name"));
    }
    let interface = interface.unwrap_or_else(|| INTERFACE_DEFAULT.to_owned());
    if !is_interface(&interface) {
        let allowed = "1 to 15 letters, digits, '-', '_' and '.', of which the first is a letter";
        return Err(KeyError::new("vip.interface", format_args!("{interface:?}"), allowed));
    }
    let raw = raw.unwrap_or_default();
    bounded("vip.entryPoints", raw.len(), 1..=VIP_ENTRY_POINTS_MAX)?;
    let count = raw.iter().map(RawVipEntryPoint::address_count).sum();
    bounded("vip.entryPoints[].addresses", count, 1..=NAMES_MAX)?;
    let mut entry_points: Vec<VipEntryPoint> = Vec::new();
    for (index, raw) in raw.into_iter().enumerate() {
        let taken = egress.iter().map(|egress| egress.name.as_str());
        let taken = taken.chain(passthrough.map(|passthrough| passthrough.entry_point.name.as_str()));
        let taken = taken.chain(entry_points.iter().map(|other| other.entry_point.name.as_str()));
        let added = entry_point::vip_entry_point(index, raw, taken)?;
        entry_point::check_distinct(index, &entry_points, &added)?;
        entry_points.push(added);
    }
    let publish = publish.map(|raw| publish::publish(raw, &entry_points, directory)).transpose()?;
    Ok(Some(VipConfig { interface, entry_points, publish }))
}

fn is_interface(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=INTERFACE_BYTES_MAX).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(is_plain)
}
