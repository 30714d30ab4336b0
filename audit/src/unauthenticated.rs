//! Counts unauthenticated requests by source address, and reports them in aggregated lines.
//!
//! Anybody who can send a request can fail to authenticate at any rate. Such failures must neither displace
//! other lines of the log nor fill the disk. Pure.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use crate::text_enum::text_enum;

/// Sources that are counted separately between two reports; requests of further ones are counted together.
pub const UNAUTHENTICATED_MAX: usize = 4_096;

/// Lines of one report for single sources, those with the most failures; one more line sums up all others.
pub const UNAUTHENTICATED_LINES_MAX: usize = 32;

/// The interval between two reports.
pub const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Bits of an IPv6 address that name its site; a site may choose the other bits freely.
const SITE_BITS: u32 = 64;

text_enum! {
    /// The reason why a request has no authenticated user, with its word in the log.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum FailureCause {
        /// The request carried no credential.
        NoCredential = "no-credential",
        /// The credential is invalid, expired or revoked.
        Refused = "credential-refused",
        /// The credential could not be checked, because the authenticator did not answer.
        Unavailable = "unavailable",
    }
}

/// Unauthenticated requests since the last report.
#[derive(Debug, Default)]
pub(crate) struct UnauthenticatedCounts {
    counted: HashMap<(IpAddr, FailureCause), u64>,
    /// Requests from sources beyond [`UNAUTHENTICATED_MAX`], counted together.
    beyond: u64,
}

/// The content of one report.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SourceReport {
    /// Lines of one source each, the busiest first.
    pub(crate) each: Vec<(IpAddr, FailureCause, u64)>,
    /// The least number of sources without a line of their own, and the number of their requests.
    pub(crate) others: Option<(usize, u64)>,
}

impl UnauthenticatedCounts {
    /// Counts one request from `source`.
    pub(crate) fn count(&mut self, source: IpAddr, cause: FailureCause) {
        let key = (site(source), cause);
        if let Some(count) = self.counted.get_mut(&key) {
            *count += 1;
        } else if self.counted.len() < UNAUTHENTICATED_MAX {
            self.counted.insert(key, 1);
        } else {
            self.beyond += 1;
        }
    }

    /// Takes the counts since the last report, and starts again at zero.
    pub(crate) fn take_report(&mut self) -> SourceReport {
        let mut each: Vec<_> = std::mem::take(&mut self.counted)
            .into_iter()
            .map(|((source, cause), count)| (source, cause, count))
            .collect();
        let beyond = std::mem::take(&mut self.beyond);
        each.sort_unstable_by_key(|(source, cause, count)| (std::cmp::Reverse(*count), *source, *cause));
        let rest = each.split_off(each.len().min(UNAUTHENTICATED_LINES_MAX));
        let count = rest.iter().map(|(_, _, count)| count).sum::<u64>() + beyond;
        let others = (count > 0).then_some((rest.len() + usize::from(beyond > 0), count));
        SourceReport { each, others }
    }
}

/// The counted form of an address: a complete IPv4 address, or the /64 network of an IPv6 one.
fn site(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !(u128::MAX >> SITE_BITS)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_source_has_one_line_and_an_ipv6_site_is_one_source() {
        let mut counts = UnauthenticatedCounts::default();
        for host in 1..=1_000_u128 {
            counts.count(Ipv6Addr::from_bits((0x2001_0db8 << 96) | host).into(), FailureCause::Refused);
        }
        counts.count("192.0.2.1".parse().unwrap(), FailureCause::NoCredential);
        counts.count("::ffff:192.0.2.1".parse().unwrap(), FailureCause::NoCredential);

        let report = counts.take_report();

        let each = vec![
            ("2001:db8::".parse().unwrap(), FailureCause::Refused, 1_000),
            ("192.0.2.1".parse().unwrap(), FailureCause::NoCredential, 2),
        ];
        assert_eq!(report, SourceReport { each, others: None });
        assert_eq!(counts.take_report(), SourceReport { each: vec![], others: None });
    }

    #[test]
    fn sources_beyond_the_limit_are_counted_together_and_none_is_lost() {
        let mut counts = UnauthenticatedCounts::default();
        let source = |n: usize| Ipv4Addr::from_bits(u32::try_from(n).unwrap()).into();
        for n in 0..UNAUTHENTICATED_MAX + 10 {
            counts.count(source(n), FailureCause::Refused);
        }
        counts.count(source(3), FailureCause::Refused);

        let report = counts.take_report();

        assert_eq!(report.each.len(), UNAUTHENTICATED_LINES_MAX);
        assert_eq!(report.each[0], (source(3), FailureCause::Refused, 2));
        let others = UNAUTHENTICATED_MAX - UNAUTHENTICATED_LINES_MAX;
        assert_eq!(report.others, Some((others + 1, (others + 10) as u64)));
    }
}
