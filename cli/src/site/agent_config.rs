//! The agent's configuration for a new site.

use serde_json::json;

use super::{NewSite, STATE_DIR, TOKEN_FILE};
use crate::args::SiteArgs;

/// A complete `agent.yaml`. Its paths are relative, so that it works in any folder with the token beside it.
pub(crate) fn agent_config(callers: &SiteArgs, site: &NewSite) -> String {
    let NewSite { cluster, servers, enrollment_server, pin, token: _, ttl: _ } = site;
    // These were checked: no host, port or pin needs another escape in YAML than its quotes.
    let servers: Vec<String> = servers.iter().map(|server| format!("\"{server}\"")).collect();
    format!(
        "apiVersion: tombolo.dev/v1alpha1\n\
         kind: AgentConfig\n\
         cluster: \"{cluster}\"\n\
         servers: [{}]\n\
         # The agent makes its own key, enrolls with the token once, and renews its certificate by itself.\n\
         enrollment:\n  \
           server: \"{enrollment_server}\"\n  \
           pin: {pin}\n  \
           tokenFile: {TOKEN_FILE}\n\
         stateDir: {STATE_DIR}\n\
         # The users and groups that the agent may impersonate in its cluster. Without this list, those that begin with \"tombolo:\".\n\
         {}\n",
        servers.join(", "),
        impersonation(callers),
    )
}

/// The allow-list of the named callers, or an example of one. JSON, whose escapes are those of YAML too: no name ends its line.
fn impersonation(SiteArgs { users, groups, .. }: &SiteArgs) -> String {
    if users.is_empty() && groups.is_empty() {
        return "# impersonation: { users: [\"alice\"], groups: [\"tombolo:admins\"] }".to_owned();
    }
    format!("impersonation: {{ users: {}, groups: {} }}", json!(users), json!(groups))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;
    use crate::site::tests::site;

    #[test]
    fn the_agents_configuration_has_every_value_of_the_site_but_the_token() {
        let text = agent_config(&SiteArgs::default(), &site());

        let parsed: Value = daemon::config::parse(&text, Path::new("agent.yaml"), "AgentConfig").unwrap();

        let mut expected = json!({
            "cluster": "edge-1",
            "servers": ["gw.example:443"],
            "enrollment": {
                "server": "enroll.example:8444",
                "pin": format!("sha256:{}", "0".repeat(64)),
                "tokenFile": "token",
            },
            "stateDir": "state",
        });
        assert_eq!(parsed, expected, "{text}");
        assert!(!text.contains("secret"), "{text}");

        let hostile = "a: b\nEND-OF-FILE\n# \u{2028}".to_owned();
        let callers =
            SiteArgs { users: vec![hostile.clone()], groups: vec!["ops".to_owned()], ..SiteArgs::default() };
        let text = agent_config(&callers, &site());
        let parsed: Value = daemon::config::parse(&text, Path::new("agent.yaml"), "AgentConfig").unwrap();
        expected["impersonation"] = json!({ "users": [hostile], "groups": ["ops"] });
        assert_eq!(parsed, expected, "{text}");
    }
}
