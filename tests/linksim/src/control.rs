//! The control protocol of a running link: one line for a command, one line of JSON for its answer.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use crate::link::Link;
use crate::schedule::Direction;

/// The commands, for help texts.
pub const COMMANDS: &str = "\
down [a-to-b|b-to-a]                nothing passes any more: {\"down_ns\":N}
up [a-to-b|b-to-a]                  it passes again: {\"reopened_ns\":N}
rebind [ADDRESS]                    the NAT forgets every sender, so that each gets a new port (and address):
                                    {\"rebound_ns\":N,\"forgotten\":2}
set [a-to-b|b-to-a] KEY=VALUE...    changes these impairments and leaves the others: {\"set\":\"delay=40ms loss=5%\"}
stats                               what happened so far, as at the end
N is nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share. An error is {\"error\":\"...\"}.";

/// Longest line of a command, in bytes.
const LINE_BYTES_MAX: u64 = 4 * 1024;
/// Most connections at once; more wait.
const CONNECTIONS_MAX: usize = 16;

/// Serves connections for as long as it is polled.
///
/// # Errors
/// The listener is broken.
pub async fn serve(listener: UnixListener, link: Arc<Link>) -> io::Result<()> {
    let slots = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
    loop {
        let slot = Arc::clone(&slots).acquire_owned().await.map_err(io::Error::other)?;
        let (connection, _) = listener.accept().await?;
        let link = Arc::clone(&link);
        tokio::spawn(async move {
            // A client that hung up has no use for an error.
            let _ = serve_connection(connection, &link).await;
            drop(slot);
        });
    }
}

/// Executes the command of a line and returns its answer.
pub fn answer(link: &Link, line: &str) -> Value {
    let mut words = line.split_whitespace();
    let (command, mut rest) = (words.next().unwrap_or_default(), words.collect::<Vec<_>>());
    let direction = rest.first().and_then(|word| Direction::from_name(word));
    if direction.is_some() && matches!(command, "down" | "up" | "set") {
        rest.remove(0);
    }
    match (command, &rest[..]) {
        ("down", []) => json!({ "down_ns": link.down(direction) }),
        ("up", []) => json!({ "reopened_ns": link.up(direction) }),
        ("rebind", []) => rebind(link, None),
        ("rebind", [address]) => match address.parse() {
            Ok(address) => rebind(link, Some(address)),
            Err(_) => error(&format!("{address:?} is no IPv4 address")),
        },
        ("set", [_, ..]) => match link.change(direction, &rest.join(" ")) {
            Ok(()) => json!({ "set": rest.join(" ") }),
            Err(cause) => error(&cause.to_string()),
        },
        ("stats", []) => {
            serde_json::to_value(link.report()).unwrap_or_else(|cause| error(&cause.to_string()))
        }
        _ => error(&format!("{line:?} is no command; there are down, up, rebind, set and stats")),
    }
}

async fn serve_connection(mut connection: UnixStream, link: &Link) -> io::Result<()> {
    let (reader, mut writer) = connection.split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = String::new();
        if (&mut reader).take(LINE_BYTES_MAX).read_line(&mut line).await? == 0 {
            return Ok(());
        }
        writer.write_all(format!("{}\n", answer(link, line.trim())).as_bytes()).await?;
        if !line.ends_with('\n') {
            return Ok(());
        }
    }
}

fn rebind(link: &Link, address: Option<Ipv4Addr>) -> Value {
    match link.rebind(address) {
        Some((forgotten, rebound_ns)) => json!({ "rebound_ns": rebound_ns, "forgotten": forgotten }),
        None => error("this link has no NAT; start it with --nat"),
    }
}

fn error(text: &str) -> Value {
    json!({ "error": text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkOptions;
    use crate::nat::NatOptions;

    #[test]
    fn every_command_is_done_and_answered() {
        let nat = NatOptions { address: None, expiry: std::time::Duration::from_secs(30) };
        let link = Link::new(LinkOptions { nat: Some(nat), ..LinkOptions::default() }).unwrap();
        let down = answer(&link, "down a-to-b")["down_ns"].as_u64().unwrap();
        assert_eq!(answer(&link, "stats")["a_to_b"]["is_dark"], true);
        assert!(answer(&link, "up")["reopened_ns"].as_u64().unwrap() >= down);
        assert_eq!(answer(&link, "stats")["a_to_b"]["is_dark"], false);
        assert_eq!(answer(&link, "set b-to-a loss=5%  delay=3ms"), json!({ "set": "loss=5% delay=3ms" }));
        assert_eq!(answer(&link, "stats")["b_to_a"]["impairment"], "delay=3ms loss=5%");
        assert_eq!(answer(&link, "rebind")["forgotten"], 0);
        assert!(answer(&link, "rebind 203.0.113.9")["rebound_ns"].is_u64());
    }

    #[test]
    fn an_unknown_command_is_answered_with_the_known_ones() {
        let link = Link::new(LinkOptions::default()).unwrap();
        for (line, expected) in [
            ("", "there are down, up"),
            ("dwon", "dwon"),
            ("up now", "no command"),
            ("set", "no command"),
            ("set loss 5%", "KEY=VALUE"),
            ("rebind", "--nat"),
            ("rebind there", "no IPv4 address"),
        ] {
            let error = answer(&link, line)["error"].as_str().unwrap_or_default().to_owned();
            assert!(error.contains(expected), "{line:?}: {error}");
        }
    }
}
