//! Fuzz target: an agent's list of targets permits no address that it should not.

use std::net::{IpAddr, SocketAddr};

use futures::FutureExt as _;
use policy::{Host, Target};

use policy::TargetEntry;

use super::targets::{NotDialed, Targets};

/// Random inputs that `make test` tries beside the corpus. `make fuzz` sets another number by the
/// environment.
const ITERATIONS: usize = 2_000;

/// The first line is a target, the second an address to which its name resolves, the others are the list. The
/// dialed address is the resolved one, and it is special only where the list has it in full.
#[test]
fn targets() {
    let own: SocketAddr = "10.1.1.1:9091".parse().unwrap();
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        let mut lines = text.lines();
        let Some(Ok(target)) = lines.next().map(str::parse::<Target>) else { return };
        let Some(Ok(found)) = lines.next().map(str::parse::<IpAddr>) else { return };
        let entries: Vec<TargetEntry> = lines.filter_map(|line| line.parse().ok()).collect();
        let is_listed = |address: IpAddr| {
            let is_it = |entry: &TargetEntry| matches!(entry, TargetEntry::Exactly(one) if *one.host() == Host::Address(address) && one.port() == target.port());
            entries.iter().any(is_it)
        };
        let targets = Targets::new(entries.clone(), vec![own]);
        let checked = targets.check(&target, async |_: &str| Ok(vec![found])).now_or_never().unwrap();
        let wanted = match target.host() {
            Host::Address(address) => *address,
            Host::Name(_) => found.to_canonical(),
        };
        match checked {
            Ok(all) => {
                let [one] = all.as_slice() else { panic!("one address was found") };
                assert_eq!(one.address(), SocketAddr::new(wanted, target.port()));
                assert!(!entries.is_empty());
                let is_plain = !wanted.is_loopback() && !wanted.is_multicast() && !wanted.is_unspecified();
                let is_link_local = matches!(wanted, IpAddr::V4(v4) if v4.is_link_local());
                assert!(is_listed(wanted) || is_plain && !is_link_local && one.address() != own, "{wanted}");
            }
            Err(NotDialed::Unlisted(_) | NotDialed::Special(_)) => assert!(!is_listed(wanted)),
            Err(error) => panic!("{error}"),
        }
    });
}
