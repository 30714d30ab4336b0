//! The needs of a new site that joins a server: addresses, the pin of the server's root, its cluster and a token.
//!
//! Each form in which this is handed over (shell commands, a Helm command, files, a Secret) is a file of its own below, and takes a [`NewSite`].

mod agent_config;
mod files;
mod helm;
mod secret;
mod shell;

use proto::ClusterId;
use proto::admin::{CreateTokenRequest, CreateTokenResponse};
use trust::Pin;

use crate::admin::{Admin, AdminError};
use crate::args::SiteArgs;
use crate::names::{Validity, is_host_and_port};

pub(crate) use agent_config::agent_config;
pub(crate) use files::write;
pub(crate) use helm::helm;
pub(crate) use secret::secret;
pub(crate) use shell::commands;

/// The port of servers for agents, for a server that is too old to tell its addresses.
const TUNNEL_PORT_DEFAULT: u16 = 8443;

/// The file with the token, beside the agent's configuration.
const TOKEN_FILE: &str = "token";

/// The file with the agent's configuration.
const CONFIG_FILE: &str = "agent.yaml";

/// The folder for the agent's key and certificate, beside its configuration.
const STATE_DIR: &str = "state";

/// Everything that one new agent needs. There is no `Debug`, because it has the token.
pub(crate) struct NewSite {
    pub(crate) cluster: ClusterId,
    /// The addresses of the servers' tunnel listeners, `HOST:PORT` each; at least one.
    pub(crate) servers: Vec<String>,
    /// The address at which the agent enrolls, `HOST:PORT`.
    pub(crate) enrollment_server: String,
    /// The pin of the root by which the agent knows the enrollment server: `sha256:` and 64 digits. It learns the CA of
    /// the tunnel's servers there.
    pub(crate) pin: String,
    /// The secret that enrolls one agent, once.
    pub(crate) token: String,
    /// The time for which the token is valid.
    pub(crate) ttl: Validity,
}

impl NewSite {
    /// Creates a token for one agent of an existing cluster, and gathers what belongs to it. The addresses `servers`, if there are any,
    /// replace those that the server tells.
    pub(crate) async fn gather(
        admin: &mut Admin,
        cluster: ClusterId,
        ttl: Validity,
        servers: &[String],
    ) -> Result<Self, AdminError> {
        let lifetime = prost_types::Duration { seconds: ttl.duration().whole_seconds(), nanos: 0 };
        let request = CreateTokenRequest { cluster: cluster.to_string(), ttl: Some(lifetime) };
        let mut response = admin.create_token(request).await?;
        if !servers.is_empty() {
            response.servers = servers.to_vec();
        }
        Self::from_response(cluster, ttl, response)
    }

    /// Takes a server's answer apart. Its texts go into commands for a shell and into files, at a site that trusts
    /// nobody but its own people: each has to be what it is called.
    fn from_response(
        cluster: ClusterId,
        ttl: Validity,
        created: CreateTokenResponse,
    ) -> Result<Self, AdminError> {
        let CreateTokenResponse { token, expires: _, enrollment_address, pins, servers } = created;
        let servers = match enrollment_address.rsplit_once(':') {
            Some((host, _)) if servers.is_empty() => vec![format!("{host}:{TUNNEL_PORT_DEFAULT}")],
            Some(_) | None => servers,
        };
        let pin = pins.into_iter().next().unwrap_or_default();
        let checked = |text: &str, is_one: bool, name| {
            if is_one { Ok(()) } else { Err(AdminError::UnusableAnswer(text.to_owned(), name)) }
        };
        for address in servers.iter().chain([&enrollment_address]) {
            checked(address, is_host_and_port(address), "HOST:PORT")?;
        }
        checked(&pin, pin.parse::<Pin>().is_ok(), "the pin of a root")?;
        let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        checked("a text that is not shown", is_token, "a token")?;
        Ok(Self { cluster, servers, enrollment_server: enrollment_address, pin, token, ttl })
    }
}

/// A note for the person who joins a site, if the first request of its callers may be forbidden. It names the flags that allow more.
pub(crate) fn note_on_callers(callers: &SiteArgs, unnamed: UnnamedCallers) -> Option<&'static str> {
    let is_nobody_named = callers.users.is_empty() && callers.groups.is_empty();
    match (is_nobody_named, unnamed) {
        (true, UnnamedCallers::Nobody) => Some(
            "no caller can act in this cluster yet: name some by --user and --group, or by --set config.impersonation.users",
        ),
        (true, UnnamedCallers::Prefixed) => Some(
            "only callers whose users and groups begin with \"tombolo:\" can act in this cluster: name others by --user and --group",
        ),
        (false, _) if callers.cluster_role.is_none() => Some(
            "the callers have the rights that this cluster gives them: --cluster-role binds them to a ClusterRole, such as view",
        ),
        (false, _) => None,
    }
}

/// The callers that an agent may impersonate if none are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnnamedCallers {
    Nobody,
    /// Those with the default prefix of the agent's allow-list.
    Prefixed,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A site whose values differ from each other.
    pub(super) fn site() -> NewSite {
        NewSite::from_response(
            "edge-1".parse().unwrap(),
            "15m".parse().unwrap(),
            response(&["gw.example:443"]),
        )
        .unwrap()
    }

    #[test]
    fn a_server_that_tells_no_addresses_is_reached_at_its_enrollment_host() {
        let of = |servers: &[&str]| {
            let cluster = "edge-1".parse().unwrap();
            NewSite::from_response(cluster, "15m".parse().unwrap(), response(servers)).unwrap().servers
        };
        assert_eq!(of(&[]), ["enroll.example:8443"]);
        assert_eq!(of(&["a.example:1", "b.example:2"]), ["a.example:1", "b.example:2"]);
    }

    #[test]
    fn a_site_whose_callers_would_be_forbidden_gets_a_note_on_the_flags() {
        let named = |role: Option<&str>| SiteArgs {
            users: vec!["alice".to_owned()],
            cluster_role: role.map(str::to_owned),
            ..SiteArgs::default()
        };
        let note = |callers: &SiteArgs, unnamed| note_on_callers(callers, unnamed).unwrap_or("none");

        for (callers, unnamed, words) in [
            (SiteArgs::default(), UnnamedCallers::Nobody, "no caller can act"),
            (SiteArgs::default(), UnnamedCallers::Prefixed, "begin with \"tombolo:\""),
            (named(None), UnnamedCallers::Prefixed, "--cluster-role"),
            (named(Some("view")), UnnamedCallers::Nobody, "none"),
        ] {
            let found = note(&callers, unnamed);
            assert!(found.contains(words), "{found}");
        }
    }

    /// Each text would end a line, a word or a quotation in what is printed for the site.
    #[test]
    fn a_servers_answer_that_could_command_the_sites_shell_is_refused() {
        let good = || response(&["gw.example:443"]);
        let hostile = "x:1\"\nEND-OF-FILE\ntouch owned\n";
        let pin = format!("sha256:{}\nimpersonation: {{ users: ['*'] }}", "0".repeat(64));
        for (bad, word) in [
            (response(&[hostile]), "HOST:PORT"),
            (response(&["$(touch owned):1"]), "HOST:PORT"),
            (CreateTokenResponse { enrollment_address: hostile.to_owned(), ..good() }, "HOST:PORT"),
            (CreateTokenResponse { pins: vec![pin], ..good() }, "pin"),
            (CreateTokenResponse { pins: Vec::new(), ..good() }, "pin"),
            (CreateTokenResponse { token: "a\nEND-OF-FILE\n".to_owned(), ..good() }, "token"),
        ] {
            let Err(error) = NewSite::from_response("edge-1".parse().unwrap(), "15m".parse().unwrap(), bad)
            else {
                panic!("{word}");
            };
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    fn response(servers: &[&str]) -> CreateTokenResponse {
        CreateTokenResponse {
            token: "0f3c.secret".to_owned(),
            expires: None,
            enrollment_address: "enroll.example:8444".to_owned(),
            pins: vec![format!("sha256:{}", "0".repeat(64))],
            servers: servers.iter().map(|server| (*server).to_owned()).collect(),
        }
    }
}
