//! Says at which servers a revocation is in force.

use proto::admin::InForce;

/// The output of a command that revokes.
pub(crate) struct RevokeOutput {
    pub(crate) lines: Vec<String>,
    /// False if a server has not confirmed it.
    pub(crate) is_everywhere: bool,
}

impl RevokeOutput {
    /// The output for a revocation that `message` describes. A server alone names no servers.
    pub(crate) fn new(message: String, servers: &[InForce]) -> Self {
        let mut lines = vec![message];
        let missing: Vec<&InForce> = servers.iter().filter(|server| server.refuses_from.is_some()).collect();
        if !servers.is_empty() {
            let (in_force, all) = (servers.len() - missing.len(), servers.len());
            let word = if all == 1 { "server" } else { "servers" };
            lines.push(format!("in force on {in_force} of {all} {word}"));
        }
        for InForce { server_id, refuses_from } in &missing {
            let when = refuses_from.map(|time| time.to_string()).unwrap_or_default();
            lines.push(format!(
                "server {server_id} has not confirmed: until it hears of this, it may serve; from {when} on it refuses everybody"
            ));
        }
        Self { lines, is_everywhere: missing.is_empty() }
    }
}

#[cfg(test)]
mod tests {
    use prost_types::Timestamp;

    use super::*;

    #[test]
    fn servers_that_have_not_confirmed_are_named_with_their_limit() {
        let confirmed = |id: &str| InForce { server_id: id.to_owned(), refuses_from: None };
        let limit = Timestamp { seconds: 1_700_000_000, nanos: 0 };
        let silent = InForce { server_id: "west".to_owned(), refuses_from: Some(limit) };

        let output = RevokeOutput::new("ann is refused".to_owned(), &[confirmed("east"), silent]);

        assert!(!output.is_everywhere);
        assert_eq!(output.lines[1], "in force on 1 of 2 servers");
        let expected = "server west has not confirmed: until it hears of this, it may serve; from 2023-11-14T22:13:20Z on it refuses everybody";
        assert_eq!(output.lines[2..], [expected]);
    }

    #[test]
    fn a_server_alone_says_nothing_of_others() {
        let output = RevokeOutput::new("ann is refused".to_owned(), &[]);

        assert!(output.is_everywhere && output.lines == ["ann is refused"]);
    }
}
