//! Shell commands that join a site to the server, to be pasted at the site.

use super::{CONFIG_FILE, NewSite, TOKEN_FILE, agent_config};
use crate::args::{RoleSubject, SiteArgs};

/// The kubeconfig of the site, as a word of a shell.
const KUBECONFIG: &str = r#""${KUBECONFIG:-$HOME/.kube/config}""#;

/// The line that ends a text in the commands. No token and no configuration has it.
const END: &str = "END-OF-FILE";

/// Commands for a POSIX shell, which write the token and the configuration and start the agent.
pub(crate) fn commands(callers: &SiteArgs, site: &NewSite) -> String {
    let NewSite { cluster, token, ttl, .. } = site;
    format!(
        "# One agent of cluster {cluster}. The token is valid for {ttl}, enrolls once, and is shown once. Paste these lines into a shell,\n\
         # in an empty folder of a machine that has tunnel-agent and a kubeconfig of the cluster.\n\
         (umask 077; cat > {TOKEN_FILE}) <<'{END}'\n\
         {token}\n\
         {END}\n\
         cat > {CONFIG_FILE} <<'{END}'\n\
         {}{END}\n\
         {}",
        agent_config(callers, site),
        start(callers, CONFIG_FILE),
    )
}

/// The commands that bind the callers' role, if one is named, and start the agent with this configuration file; and what to know of it.
pub(super) fn start(callers: &SiteArgs, config: &str) -> String {
    format!(
        "{}# The agent has the rights of this kubeconfig. To give it no more than it needs: tombolo rbac --help\n\
         # If it does not work: tombolo doctor agent --config {config} --kubeconfig {KUBECONFIG}\n\
         tunnel-agent --config {config} --kubeconfig {KUBECONFIG}\n",
        binding(callers),
    )
}

/// The commands that bind the callers to their role, which can be run again. Empty if no role or no caller is named.
fn binding(callers: &SiteArgs) -> String {
    let subjects = callers.role_subjects();
    let Some(role) = callers.cluster_role.as_ref().filter(|_| !subjects.is_empty()) else {
        return String::new();
    };
    let flag = |subject: &RoleSubject<'_>| match subject {
        RoleSubject::Group(group) => format!(" --group {}", word(group)),
        RoleSubject::User(user) => format!(" --user {}", word(user)),
    };
    let flags: String = subjects.iter().map(flag).collect();
    format!(
        "# The rights of the callers in the cluster; this needs kubectl, and the right to bind the role.\n\
         kubectl --kubeconfig {KUBECONFIG} create clusterrolebinding {} --clusterrole {}{flags} \\\n  \
         --dry-run=client --output yaml | kubectl --kubeconfig {KUBECONFIG} apply --filename -\n",
        word(&format!("tombolo-callers-{role}")),
        word(role),
    )
}

/// A word for a shell: as it is if it has no special character, or else in quotes.
pub(super) fn word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+=:@,".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::site::tests::site;

    /// The agent and kubectl are scripts that print their arguments, one a line.
    #[test]
    fn the_printed_commands_write_files_bind_callers_and_start_the_agent() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for (program, script) in [
            ("tunnel-agent", "#!/bin/sh\necho \"$@\"\n"),
            ("kubectl", "#!/bin/sh\ncat\nprintf '%s\\n' \"$@\"\n"),
        ] {
            std::fs::write(path(program), script).unwrap();
            std::fs::set_permissions(path(program), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let callers = SiteArgs {
            users: vec!["alice".to_owned()],
            groups: vec!["it's; ops".to_owned(), "tombolo:admins".to_owned()],
            cluster_role: Some("cluster-admin".to_owned()),
            ..SiteArgs::default()
        };

        let output = Command::new("sh")
            .args(["-euc", &commands(&callers, &site())])
            .current_dir(directory.path())
            .env("PATH", format!("{}:/usr/bin:/bin", directory.path().display()))
            .env("KUBECONFIG", "a b.conf")
            .stdin(Stdio::null())
            .output()
            .unwrap();

        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        let create = "--kubeconfig|a b.conf|create|clusterrolebinding|tombolo-callers-cluster-admin|--clusterrole|cluster-admin|\
                      --group|it's; ops|--group|tombolo:admins|--dry-run=client|--output|yaml|";
        let apply = "--kubeconfig|a b.conf|apply|--filename|-|";
        let agent = "--config agent.yaml --kubeconfig a b.conf|";
        assert_eq!(said.replace('\n', "|"), format!("{create}{apply}{agent}"));
        assert_eq!(std::fs::read_to_string(path("token")).unwrap(), "0f3c.secret\n");
        assert_eq!(std::fs::read_to_string(path("agent.yaml")).unwrap(), agent_config(&callers, &site()));
        assert_eq!(std::fs::metadata(path("token")).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
