//! The listeners for callers with dial tokens.

use super::*;

#[test]
fn socks5_is_off_by_default_and_on_loopback_unless_that_is_forced() {
    let files = files();
    let socks = |listen: &str, more: &str| {
        load(&files, &format!("{SMALLEST}socks: {{ listen: '{listen}'{more} }}\n"), &Flags::default())
            .map(|config| config.socks.map(|address| address.to_string()))
    };
    assert_eq!(load(&files, SMALLEST, &Flags::default()).unwrap().socks, None);
    for listen in ["127.0.0.1:1080", "127.8.0.1:1080", "[::1]:1080"] {
        assert_eq!(socks(listen, "").unwrap().as_deref(), Some(listen));
    }
    for listen in ["0.0.0.0:1080", "10.0.0.1:1080", "[::]:1080", "[::ffff:10.0.0.1]:1080"] {
        for more in ["", ", insecureNonLoopback: false"] {
            let refused = daemon::error_chain(&socks(listen, more).unwrap_err()).to_string();
            assert!(refused.contains("socks.listen") && refused.contains("no TLS"), "{listen}: {refused}");
        }
        assert_eq!(socks(listen, ", insecureNonLoopback: true").unwrap().as_deref(), Some(listen));
    }
    assert!(daemon::error_chain(&socks("nowhere", "").unwrap_err()).to_string().contains("socks.listen"));
}
