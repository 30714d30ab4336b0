//! Every TCP listener of a server, tried with every role's certificate, every ALPN offer and several names:
//! each accepts only one combination of role and protocol.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use tests::admin::remote_admin_listener;
use tests::dial::dial_name;
use tests::enroll;
use tests::pki::Issued;
use tests::rig::{GROUP, Rig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// The limit for a server to accept or refuse a client.
const DONE_MAX: Duration = Duration::from_secs(60);

/// The preface of HTTP/2 with empty settings (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// One attempt: the listener, the certificate, the ALPN offer and the server name.
struct Attempt<'a> {
    listener: ListenerKind,
    role: &'a str,
    offered: &'a [&'a str],
    name: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListenerKind {
    /// Callers and, by the tunnel's protocol, agents.
    Gateway,
    Admins,
    Enrollment,
}

const ROLES: [&str; 5] = ["nobody", "agent", "caller", "server", "admin"];
const NAMES: [&str; 4] = ["127.0.0.1", "gateway.test", "edge-a.clusters.test", "console.clusters.test"];
const OFFERS: [&[&str]; 10] = [
    &[],
    &["h2"],
    &["http/1.1"],
    &["h2", "http/1.1"],
    &["tombolo/1"],
    &["tombolo/1", "h2"],
    &["h2", "tombolo/1"],
    &["tombolo/1", "http/1.1"],
    &["tombolo/1", "tombolo/2"],
    &["tombolo/2"],
];

/// This holds whatever else a client offers and asks for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_accepts_one_role_and_one_protocol() {
    let (admins, config) = remote_admin_listener(&[("olga", "viewer")]);
    let (rig, enrollment) = enroll::start(&config).await;
    let listeners = [
        (ListenerKind::Gateway, rig.gateway()),
        (ListenerKind::Admins, admins),
        (ListenerKind::Enrollment, enrollment.address),
    ];
    let mut shown = Vec::new();
    for role in ROLES {
        shown.push((role, certificate(&rig, role).await));
    }

    let mut opened = 0;
    for (listener, address) in listeners {
        for (role, identity) in &shown {
            for offered in OFFERS {
                for name in NAMES {
                    let attempt = Attempt { listener, role, offered, name };
                    let is_open = attempt.opens(&rig, address, identity.as_ref()).await;
                    assert_eq!(is_open, attempt.may(), "{attempt}");
                    opened += usize::from(is_open);
                }
            }
        }
    }

    assert!(opened > 0 && !rig.server_log().contains("panic"));
}

impl Attempt<'_> {
    /// Returns true if the server must accept the attempt: the tunnel's protocol alone with an agent, HTTP
    /// with anyone of no other role, HTTP/2 with an administrator, and HTTP/2 where no certificate is
    /// required.
    fn may(&self) -> bool {
        let Self { listener, role, offered, name: _ } = self;
        let offers = |protocol| offered.contains(&protocol);
        match listener {
            ListenerKind::Gateway if offers("tombolo/1") => offered.len() == 1 && *role == "agent",
            ListenerKind::Gateway => {
                let speaks_http = offered.is_empty() || offers("h2") || offers("http/1.1");
                speaks_http && ["nobody", "caller"].contains(role)
            }
            ListenerKind::Admins => offers("h2") && !offers("tombolo/1") && *role == "admin",
            ListenerKind::Enrollment => offers("h2") && !offers("tombolo/1"),
        }
    }

    /// Returns true if the server sends a byte of the negotiated protocol.
    async fn opens(&self, rig: &Rig, address: SocketAddr, shown: Option<&Issued>) -> bool {
        let tried = async {
            let mut stream = dial_name(address, self.name, &rig.server_ca(), self.offered, shown).await?;
            let agreed = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
            let is_http1 = !matches!(agreed.as_deref(), Some(b"h2" | b"tombolo/1"));
            let asked = format!("GET /clusters HTTP/1.1\r\nHost: {}\r\n\r\n", self.name);
            stream.write_all(if is_http1 { asked.as_bytes() } else { PREFACE }).await?;
            let mut first = [0; 9];
            stream.read_exact(&mut first).await?;
            // In a tunnel the server is the one that asks, and so the one that begins.
            Ok::<_, std::io::Error>(match agreed.as_deref() {
                Some(b"tombolo/1") => PREFACE.starts_with(&first),
                Some(b"h2") => first[3] == SETTINGS,
                _ => first.starts_with(b"HTTP/1.1 "),
            })
        };
        timeout(DONE_MAX, tried)
            .await
            .unwrap_or_else(|_| panic!("neither yes nor no: {self}"))
            .unwrap_or(false)
    }
}

/// The type of the frame with which a server begins HTTP/2 (RFC 9113, section 6.5).
const SETTINGS: u8 = 4;

impl fmt::Display for Attempt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { listener, role, offered, name } = self;
        write!(f, "{role} at {listener:?} for {name}, offering {offered:?}")
    }
}

/// A role's certificate, as its authority issues it.
async fn certificate(rig: &Rig, role: &str) -> Option<Issued> {
    let words: &[&str] = match role {
        "nobody" => return None,
        "caller" => return Some(rig.caller("alice", &[GROUP]).await),
        "admin" => return Some(rig.admin("olga").await),
        "agent" => &["agent", "--cluster", "edge-b"],
        "server" => &["server", "--name", "gateway.test", "--id", "other"],
        other => unreachable!("{other}"),
    };
    rig.tombolo(&[&["ca", "issue", words[0], "--dir", "pki"], &words[1..]].concat()).await;
    Some(rig.issued(if role == "agent" { "edge-b-agent" } else { "other-server" }))
}
