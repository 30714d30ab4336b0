//! What targets may look like: every way in has to judge them alike.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// Names and addresses that mean `listed`, or seem to, or mean something that nobody may have: `HOST:PORT` each, whatever the host.
pub(crate) fn around(listed: SocketAddr) -> Vec<String> {
    let port = listed.port();
    let by_ipv6 = |address: Ipv6Addr| format!("[{address}]:{port}");
    let mut targets = vec![
        listed.to_string(),
        format!("127.0.0.1:{}", port ^ 1),
        "127.0.0.1:0".to_owned(),
        format!("169.254.169.254:{port}"),
        by_ipv6(Ipv6Addr::LOCALHOST),
        by_ipv6(Ipv4Addr::LOCALHOST.to_ipv6_mapped()),
        by_ipv6("64:ff9b::7f00:1".parse().unwrap()),
    ];
    let names = [
        "localhost",
        "LOCALHOST",
        "localhost.",
        "127.1",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "2130706433",
        "127.0.0.1.",
        "127.0.0.01",
        "0.0.0.0",
        "metadata.google.internal",
        "a..b",
        "-a",
        "a b",
        "user@127.0.0.1",
        "",
    ];
    targets.extend(names.map(|host| format!("{host}:{port}")));
    targets
}
