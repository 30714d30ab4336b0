//! The order in which one agent prefers servers, and its share of a spread of moves, by rendezvous hashing.
//!
//! Each agent has an order of its own, so agents are spread evenly. When a server comes or goes, only the agents
//! that prefer it move.

use std::time::Duration;

use aws_lc_rs::digest;

/// Moves of all agents to a server that is new or back are spread over this time.
pub(super) const MOVES_SPREAD: Duration = Duration::from_secs(300);

/// Separates what is hashed for an order from what is hashed for a time.
const ORDER: &str = "tombolo: order of servers";
const MOVE: &str = "tombolo: time of a move";

/// The rank of `server` for `agent`: the highest one is preferred.
pub(super) fn rank(agent: &str, server: &str) -> u64 {
    hash(ORDER, agent, server)
}

/// The time that `agent` waits before it moves to `server`, below [`MOVES_SPREAD`].
pub(super) fn move_delay(agent: &str, server: &str) -> Duration {
    let spread = u64::try_from(MOVES_SPREAD.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(hash(MOVE, agent, server) % spread)
}

fn hash(purpose: &str, agent: &str, server: &str) -> u64 {
    // No name has a zero byte, so no two inputs are alike.
    let digest = digest::digest(&digest::SHA256, [purpose, agent, server].join("\0").as_bytes());
    digest.as_ref().iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENTS: usize = 3_000;

    #[test]
    fn agents_are_spread_evenly_over_servers() {
        let servers = ["a", "b", "c"];
        for server in servers {
            let first = (0..AGENTS).filter(|n| best(&agent(*n), &servers) == server).count();
            assert!((900..1_100).contains(&first), "{first} of {AGENTS} agents prefer {server}");
        }
    }

    #[test]
    fn when_a_server_leaves_only_its_own_agents_move() {
        for agent in (0..AGENTS).map(agent) {
            let before = best(&agent, &["a", "b", "c"]);
            let after = best(&agent, &["a", "b"]);
            assert!(before == "c" || after == before, "{agent}");
        }
    }

    #[test]
    fn moves_to_a_server_are_spread_over_the_whole_time() {
        let delays: Vec<Duration> = (0..AGENTS).map(|n| move_delay(&agent(n), "a")).collect();
        assert!(delays.iter().all(|delay| *delay < MOVES_SPREAD));
        for part in 0..10 {
            let begin = MOVES_SPREAD / 10 * part;
            let within = begin..begin + MOVES_SPREAD / 10;
            let moves = delays.iter().filter(|delay| within.contains(*delay)).count();
            assert!((200..400).contains(&moves), "{moves} of {AGENTS} moves from {begin:?} on");
        }
        assert_ne!(move_delay("agent", "a"), move_delay("agent", "b"));
    }

    fn agent(number: usize) -> String {
        format!("edge-{number}/agent")
    }

    fn best<'a>(agent: &str, servers: &[&'a str]) -> &'a str {
        servers.iter().copied().max_by_key(|server| rank(agent, server)).unwrap()
    }
}
