//! The Helm command that joins a site to the server, to be run with a kubeconfig of the site.

use serde_json::json;

use super::NewSite;
use super::shell::word;
use crate::args::{RoleSubject, SiteArgs};

/// A command for a POSIX shell, which installs the agents of a site by the chart, and ends when they are connected. The
/// values are in its input, so that no list of processes shows the token.
pub(crate) fn helm(join: &SiteArgs, site: &NewSite) -> String {
    let NewSite { cluster, servers, enrollment_server, pin, token, ttl } = site;
    let set: String = join.values.iter().map(|value| format!("  --set {} \\\n", word(value))).collect();
    let roles = match &join.cluster_role {
        None => String::new(),
        Some(role) => {
            let entry = |subject: &RoleSubject<'_>| {
                let entry = match subject {
                    RoleSubject::Group(group) => json!({ "group": group, "clusterRole": role }),
                    RoleSubject::User(user) => json!({ "user": user, "clusterRole": role }),
                };
                format!("- {entry}\n")
            };
            format!("callerRoles:\n{}", join.role_subjects().iter().map(entry).collect::<String>())
        }
    };
    format!(
        "# Run this with a kubeconfig of {cluster}, within {}. The token enrolls one agent; further agents prove their ServiceAccount.\n\
         helm upgrade --install tunnel-agent {} \\\n  --namespace tombolo --create-namespace --wait \\\n{set}  --values - <<'EOF'\n\
         config:\n  cluster: {}\n  servers: {}\n  enrollment:\n    server: {}\n    pin: {}\n  \
         impersonation:\n    users: {}\n    groups: {}\nenrollment:\n  token: {}\n{roles}EOF\n",
        ttl,
        word(&join.chart),
        json!(cluster.as_str()),
        json!(servers),
        json!(enrollment_server),
        json!(pin),
        json!(join.users),
        json!(join.groups),
        json!(token),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::tests::site;

    fn join() -> SiteArgs {
        SiteArgs {
            users: vec!["alice".to_owned()],
            groups: vec!["tombolo:admins".to_owned()],
            cluster_role: Some("cluster-admin".to_owned()),
            servers: Vec::new(),
            chart: "deploy/charts/tombolo-agent".to_owned(),
            values: vec!["image.repository=registry.example/a b".to_owned()],
        }
    }

    #[test]
    fn the_printed_command_has_all_that_a_site_needs() {
        assert_eq!(
            helm(&join(), &site()),
            format!(
                "# Run this with a kubeconfig of edge-1, within 15m. The token enrolls one agent; further agents prove their ServiceAccount.\n\
             helm upgrade --install tunnel-agent deploy/charts/tombolo-agent \\\n  --namespace tombolo --create-namespace --wait \\\n  \
             --set 'image.repository=registry.example/a b' \\\n  --values - <<'EOF'\n\
             config:\n  cluster: \"edge-1\"\n  servers: [\"gw.example:443\"]\n  enrollment:\n    \
             server: \"enroll.example:8444\"\n    pin: \"{}\"\n  impersonation:\n    users: [\"alice\"]\n    \
             groups: [\"tombolo:admins\"]\nenrollment:\n  token: \"0f3c.secret\"\ncallerRoles:\n\
             - {{\"clusterRole\":\"cluster-admin\",\"group\":\"tombolo:admins\"}}\nEOF\n",
                site().pin
            )
        );
    }

    /// The command is meant for a shell, and the names come from people and from the server.
    #[test]
    fn no_name_ends_the_printed_commands_input_or_a_word_of_it() {
        let hostile = "a\nEOF\ntouch owned '$(touch owned)'".to_owned();
        let mut site = site();
        site.enrollment_server.clone_from(&hostile);
        let join = SiteArgs { users: vec![hostile.clone()], values: vec![hostile], ..join() };

        let command = helm(&join, &site);

        let words = command.split("<<'EOF'\n").next().unwrap();
        assert!(words.contains(r"'a"), "{words}");
        assert!(words.contains(r"'\''$(touch owned)'\'''"), "{words}");
        let input = command.split("<<'EOF'\n").nth(1).unwrap();
        assert_eq!(input.lines().filter(|line| *line == "EOF").count(), 1, "{input}");
        assert!(input.ends_with("\nEOF\n"), "{input}");
    }
}
