//! Checks the servers that share their records: sessions, clocks, and files that must be the same everywhere.

use std::collections::BTreeMap;
use std::path::PathBuf;

use daemon::Scope;
use proto::admin::server::State;
use proto::admin::{Server, ServerFigures};

use super::check::Check;
use super::report::Report;
use crate::admin::Admin;
use crate::args::AdminEndpoint;

/// Largest difference between two clocks that counts as none, in milliseconds. The time on the way counts, too.
const CLOCKS_OK_MS: u64 = 2_000;

/// Largest difference that gets a warning only.
const CLOCKS_WARN_MS: u64 = 30_000;

/// Digits of a digest that are shown.
const DIGEST_DIGITS: usize = 12;

/// Asks the running server for all servers, and checks what it knows of them.
pub(super) async fn check_all(socket: PathBuf, scope: &Scope, report: &mut Report) {
    let request = async {
        let mut admin = Admin::connect(AdminEndpoint::Socket(socket), scope).await?;
        admin.servers().await
    };
    match request.await {
        Ok(servers) => judge(&servers, report),
        Err(error) => report.fail_by(Check::Peers, &error),
    }
}

fn judge(servers: &[Server], report: &mut Report) {
    let is_whole = servers.iter().filter(|server| !is_well_connected(server, report)).count() == 0;
    let running = servers.iter().filter(|server| server.state() != State::Gone).count();
    if is_whole {
        let found = match running {
            1 => "this server is the only one".to_owned(),
            _ => format!("{running} servers are registered, and each has a session with every other one"),
        };
        report.ok(Check::Peers, found);
    }
    if running > 1 {
        clocks(servers, report);
        file(servers, "policy", "policy.file", |told| &told.policy_digest, report);
        file(servers, "trust bundle", "trust.bundleFile", |told| &told.trust_bundle_digest, report);
    }
}

/// Reports what is wrong with the sessions of a server. Returns true if nothing is.
fn is_well_connected(server: &Server, report: &mut Report) -> bool {
    const CHECK: Check = Check::Peers;
    let id = &server.id;
    match server.state() {
        State::Unreachable => {
            let advice = "let it reach this server's peering.address, and read the logs of both";
            report.fail(CHECK, format!("{id} is registered, and has no session with this server"), advice);
        }
        State::Gone => {
            let advice = format!("start it, or remove it for good: tombolo server remove {id}");
            report.warn(CHECK, format!("{id} is not registered any more"), advice);
        }
        State::Behind | State::Stale => {
            let found = format!("{id} has no news from etcd");
            report.fail(CHECK, found, format!("check etcd from there: tombolo doctor server at {id}"));
        }
        State::NotReady => {
            report.warn(CHECK, format!("{id} is not ready"), "see its /readyz?verbose and its log");
        }
        State::Silent | State::Unspecified => {
            let advice = "see whether it is frozen, cut off or stopped, or upgrade it if its version is an earlier one";
            report.warn(CHECK, format!("{id} tells nothing, so nothing of it is compared"), advice);
        }
        State::Ready | State::Draining => {
            let Some(ServerFigures { peers, peers_connected, .. }) = &server.told else { return true };
            if peers_connected >= peers {
                return true;
            }
            let found = format!("{id} has a session with {peers_connected} of {peers} other servers");
            report.fail(CHECK, found, "let every server reach the peering.address of every other one");
        }
    }
    false
}

fn clocks(servers: &[Server], report: &mut Report) {
    const CHECK: Check = Check::PeerClocks;
    let compared = servers.iter().filter_map(|server| Some((&server.id, server.clock_ahead_ms?)));
    let Some((id, ahead)) = compared.max_by_key(|(_, ahead)| ahead.unsigned_abs()) else { return };
    let (difference, side) = (ahead.unsigned_abs(), if ahead < 0 { "behind" } else { "ahead of" });
    let found = format!("the clock of {id} is {} s {side} this server's", difference / 1_000);
    let advice = "set all clocks by NTP: certificates and tokens are checked by them";
    if difference <= CLOCKS_OK_MS {
        report.ok(CHECK, "the clocks of all servers agree");
    } else if difference <= CLOCKS_WARN_MS {
        report.warn(CHECK, found, advice);
    } else {
        report.fail(CHECK, found, advice);
    }
}

/// Compares the digests of a file that all servers must have alike.
fn file(
    servers: &[Server],
    what: &str,
    key: &str,
    digest: impl Fn(&ServerFigures) -> &String,
    report: &mut Report,
) {
    const CHECK: Check = Check::PeerFiles;
    let mut by_digest: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for server in servers {
        if let Some(told) = &server.told {
            by_digest.entry(digest(told)).or_default().push(&server.id);
        }
    }
    if by_digest.len() <= 1 {
        return report.ok(CHECK, format!("all servers have the same {what}"));
    }
    let shown = |digest: &str| match digest.get(..DIGEST_DIGITS) {
        Some(digits) => digits.to_owned(),
        None => "none".to_owned(),
    };
    let groups = by_digest.iter().map(|(digest, ids)| format!("{} at {}", shown(digest), ids.join(", ")));
    let found = format!("the {what} differs: {}", groups.collect::<Vec<_>>().join("; "));
    report.fail(CHECK, found, format!("give every server the same file as {key}; sha256sum compares them"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_agree_and_reach_each_other_are_four_good_lines() {
        let lines = lines(&[server("a"), server("b")]);

        assert!(lines.iter().all(|line| line.starts_with("ok ")), "{lines:?}");
        assert_eq!(lines.len(), 4);
        assert!(lines[0].contains("2 servers are registered"), "{}", lines[0]);
    }

    #[test]
    fn a_server_alone_has_nothing_to_compare() {
        let lines = lines(&[server("a")]);
        assert_eq!(lines, ["ok        peers   this server is the only one"]);
    }

    #[test]
    fn each_fault_of_a_peer_is_named_with_its_server() {
        let told = |of: ServerFigures| Server { told: Some(of), ..server("b") };
        let state = |state: State| Server { state: state.into(), ..server("b") };
        for (peer, verdict, word) in [
            (state(State::Unreachable), "failed", "b is registered, and has no session"),
            (state(State::Stale), "failed", "b has no news from etcd"),
            (state(State::NotReady), "warning", "b is not ready"),
            (state(State::Gone), "warning", "tombolo server remove b"),
            (
                told(ServerFigures { peers_connected: 0, ..figures() }),
                "failed",
                "b has a session with 0 of 1",
            ),
            (
                told(ServerFigures { policy_digest: "c".repeat(64), ..figures() }),
                "failed",
                "the policy differs: aaaaaaaaaaaa at a; cccccccccccc at b",
            ),
            (
                told(ServerFigures { trust_bundle_digest: String::new(), ..figures() }),
                "failed",
                "the trust bundle differs: none at b; bbbbbbbbbbbb at a",
            ),
            (
                Server { clock_ahead_ms: Some(-2_001), ..server("b") },
                "warning",
                "b is 2 s behind this server's",
            ),
            (
                Server { clock_ahead_ms: Some(30_001), ..server("b") },
                "failed",
                "b is 30 s ahead of this server's",
            ),
        ] {
            let lines = lines(&[server("a"), peer]);

            let found = lines.iter().filter(|line| line.contains(word)).collect::<Vec<_>>();
            assert!(found.len() == 1 && found[0].starts_with(verdict), "{word}: {lines:?}");
        }
    }

    fn lines(servers: &[Server]) -> Vec<String> {
        let mut report = Report::default();
        judge(servers, &mut report);
        report.lines()
    }

    fn server(id: &str) -> Server {
        let clock_ahead_ms = Some(12);
        Server {
            id: id.to_owned(),
            state: State::Ready.into(),
            told: Some(figures()),
            clock_ahead_ms,
            ..Server::default()
        }
    }

    fn figures() -> ServerFigures {
        ServerFigures {
            peers: 1,
            peers_connected: 1,
            records_age: None,
            policy_digest: "a".repeat(64),
            trust_bundle_digest: "b".repeat(64),
        }
    }
}
