//! Requests of those who did not prove who they are: counted for each source, and told from time to time.
//!
//! Whoever can send a request can fail to authenticate as often as they like, so none of it may take the place of what is
//! to be recorded, nor fill the disk. Pure.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Sources that are told apart until the next time they are told; what others do is counted together.
pub const STRANGERS_MAX: usize = 4_096;

/// Lines that are written each time: the sources with the most failures each in one, all others in one.
pub const STRANGERS_TOLD_MAX: usize = 32;

/// How often they are told.
pub const TELL_EVERY: Duration = Duration::from_secs(10);

/// Bits of an IPv6 address that say where it is: one site has all the others to choose from.
const SITE_BITS: u32 = 64;

/// Why nobody knows who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Why {
    /// There was no credential.
    NoCredential,
    /// There was one, and it does not hold.
    Refused,
    /// It could not be told, because who could tell did not answer.
    Unavailable,
}

/// What strangers did since they were told of.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    counted: HashMap<(IpAddr, Why), u64>,
    /// What more sources than are told apart did.
    beyond: u64,
}

/// What is told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// One source each, the busiest first.
    pub(crate) each: Vec<(IpAddr, Why, u64)>,
    /// How many sources have no line of their own, at least, and what they did together.
    pub(crate) others: Option<(usize, u64)>,
}

impl Why {
    /// Its word in the log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoCredential => "no-credential",
            Self::Refused => "credential-refused",
            Self::Unavailable => "unavailable",
        }
    }
}

impl Strangers {
    pub(crate) fn count(&mut self, source: IpAddr, why: Why) {
        let key = (site(source), why);
        if let Some(count) = self.counted.get_mut(&key) {
            *count += 1;
        } else if self.counted.len() < STRANGERS_MAX {
            self.counted.insert(key, 1);
        } else {
            self.beyond += 1;
        }
    }

    /// Takes what is to be told.
    pub(crate) fn tell(&mut self) -> Told {
        let mut each: Vec<_> = std::mem::take(&mut self.counted)
            .into_iter()
            .map(|((source, why), count)| (source, why, count))
            .collect();
        let beyond = std::mem::take(&mut self.beyond);
        each.sort_unstable_by_key(|(source, why, count)| (std::cmp::Reverse(*count), *source, *why));
        let rest = each.split_off(each.len().min(STRANGERS_TOLD_MAX));
        let count = rest.iter().map(|(_, _, count)| count).sum::<u64>() + beyond;
        let others = (count > 0).then_some((rest.len() + usize::from(beyond > 0), count));
        Told { each, others }
    }
}

/// An address as it is counted: IPv4 whole, and of IPv6 the site.
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
    fn a_source_has_one_line_however_often_it_tries_and_a_site_of_ipv6_is_one_source() {
        let mut strangers = Strangers::default();
        for host in 1..=1_000_u128 {
            strangers.count(Ipv6Addr::from_bits((0x2001_0db8 << 96) | host).into(), Why::Refused);
        }
        strangers.count("192.0.2.1".parse().unwrap(), Why::NoCredential);
        strangers.count("::ffff:192.0.2.1".parse().unwrap(), Why::NoCredential);

        let told = strangers.tell();

        let each = vec![
            ("2001:db8::".parse().unwrap(), Why::Refused, 1_000),
            ("192.0.2.1".parse().unwrap(), Why::NoCredential, 2),
        ];
        assert_eq!(told, Told { each, others: None });
        assert_eq!(strangers.tell(), Told { each: vec![], others: None });
    }

    #[test]
    fn more_sources_than_are_told_apart_are_counted_together_and_none_is_lost() {
        let mut strangers = Strangers::default();
        let source = |n: usize| Ipv4Addr::from_bits(u32::try_from(n).unwrap()).into();
        for n in 0..STRANGERS_MAX + 10 {
            strangers.count(source(n), Why::Refused);
        }
        strangers.count(source(3), Why::Refused);

        let told = strangers.tell();

        assert_eq!(told.each.len(), STRANGERS_TOLD_MAX);
        assert_eq!(told.each[0], (source(3), Why::Refused, 2));
        let others = STRANGERS_MAX - STRANGERS_TOLD_MAX;
        assert_eq!(told.others, Some((others + 1, (others + 10) as u64)));
    }
}
