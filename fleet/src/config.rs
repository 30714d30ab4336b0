//! The configuration of the controller. There is no configuration file: flags win over the environment and the defaults.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use daemon::{LogFormat, LogOptions};
use url::Url;

use crate::help;

/// The cluster manager in all profiles, unless `--manager` names another one.
pub const MANAGER: &str = "tombolo";

/// The Lease by which one of several controllers is active.
pub const LEASE: &str = "tombolo-fleet-controller";

/// Shortest pause between two looks at the gateway, in seconds.
pub const INTERVAL_SECONDS_MIN: u64 = 1;

/// Longest pause between two looks at the gateway, in seconds.
pub const INTERVAL_SECONDS_MAX: u64 = 3600;

/// Longest name of a cluster manager: it is the value of a label, too.
pub const MANAGER_BYTES_MAX: usize = 63;

/// The longest time for work after the drain began. A round that is cut off is made again by the next controller.
const DRAIN_GRACE: Duration = Duration::from_secs(10);

/// Tells a host cluster which clusters a gateway reaches: a ClusterProfile of multicluster.x-k8s.io for each one
#[derive(Debug, Clone, Parser)]
#[command(name = "fleet-controller", version, after_long_help = help::AFTER)]
pub struct Flags {
    /// The URL of the gateway
    #[arg(long, value_name = "URL")]
    pub gateway: Url,

    /// PEM file with the CA of the gateway's certificate [default: the system's CAs]
    #[arg(long, value_name = "FILE")]
    pub gateway_ca: Option<PathBuf>,

    /// PEM file with the client certificate for the gateway; read again when it changes
    #[arg(long, value_name = "FILE", requires = "client_key", required_unless_present = "token_file")]
    pub client_certificate: Option<PathBuf>,

    /// PEM file with the key of the client certificate
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    pub client_key: Option<PathBuf>,

    /// File with the token for the gateway; read again each minute
    #[arg(long, value_name = "FILE", conflicts_with = "client_certificate")]
    pub token_file: Option<PathBuf>,

    /// The kubeconfig of the host cluster [default: that of the pod's ServiceAccount]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The context of that kubeconfig [default: its current-context]
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,

    /// The namespace of the profiles and of the Lease [default: that of the pod or of the context]
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,

    /// The name of the cluster manager in all profiles; each of several gateways has its own
    #[arg(long, value_name = "NAME", default_value = MANAGER, value_parser = manager)]
    pub manager: String,

    /// The Lease by which one of several controllers is active
    #[arg(long, value_name = "NAME", default_value = LEASE)]
    pub lease: String,

    /// The seconds between two looks at the gateway
    #[arg(long, value_name = "SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(INTERVAL_SECONDS_MIN..=INTERVAL_SECONDS_MAX))]
    pub interval: u64,

    /// Address for /livez, /readyz and /metrics
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9093))]
    pub probes_listen: SocketAddr,

    /// Format of the log [default: text on a terminal, else json]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,

    /// Level of the log, or a filter such as info,fleet=debug [default: info]
    #[arg(long, value_name = "FILTER", env = "TOMBOLO_LOG")]
    pub log_level: Option<String>,
}

/// The configuration of the controller after validation.
#[derive(Debug, Clone)]
pub struct Config {
    /// The gateway, and what is shown to it.
    pub gateway: GatewayConfig,
    /// The kubeconfig of the host cluster; `None` in a pod of it.
    pub kubeconfig: Option<PathBuf>,
    /// The context of that kubeconfig.
    pub context: Option<String>,
    /// The namespace of the profiles and of the Lease, if it is not the client's own.
    pub namespace: Option<String>,
    /// The name of the cluster manager, 1 to [`MANAGER_BYTES_MAX`] bytes.
    pub manager: String,
    /// The name of the Lease.
    pub lease: String,
    /// The pause between two looks at the gateway, [`INTERVAL_SECONDS_MIN`] to [`INTERVAL_SECONDS_MAX`] seconds.
    pub interval: Duration,
    /// The address at which `/livez`, `/readyz` and `/metrics` answer.
    pub probes_listen: SocketAddr,
    /// Form and filter of the log.
    pub logs: LogOptions,
    /// Longest time for work after the drain began.
    pub drain_grace: Duration,
}

/// The gateway, and what is shown to it.
#[derive(Debug, Clone)]
pub struct GatewayConfig {
    /// Its URL, without a slash at the end.
    pub url: String,
    /// PEM file with the CA of its certificate; `None` for the CAs of the system.
    pub ca: Option<PathBuf>,
    /// The credential that is shown to it.
    pub credential: Credential,
}

/// The credential that the controller shows to the gateway.
#[derive(Debug, Clone)]
pub enum Credential {
    /// PEM files with a client certificate and its key.
    Certificate(PathBuf, PathBuf),
    /// A file with a token.
    Token(PathBuf),
}

/// The flags contradict each other, or one of them is wrong.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The URL is none of a gateway.
    #[error(
        "--gateway (TOMBOLO_FLEET_GATEWAY): {0} is no URL of a gateway; use https, a host and a port, such as https://gateway.example:8443"
    )]
    Gateway(Url),
    /// There is no credential for the gateway, or only half of one.
    #[error(
        "there is nothing that proves to the gateway who this is; give --client-certificate and --client-key, or --token-file"
    )]
    NoCredential,
}

impl Config {
    /// Validates the flags. No file is read.
    ///
    /// # Errors
    /// [`ConfigError`], which names the flag and what it takes.
    pub fn of(flags: Flags) -> Result<Self, ConfigError> {
        let credential = match (flags.client_certificate, flags.client_key, flags.token_file) {
            (Some(certificate), Some(key), None) => Credential::Certificate(certificate, key),
            (None, None, Some(token)) => Credential::Token(token),
            _ => return Err(ConfigError::NoCredential),
        };
        Ok(Self {
            gateway: GatewayConfig { url: gateway_url(flags.gateway)?, ca: flags.gateway_ca, credential },
            kubeconfig: flags.kubeconfig,
            context: flags.context,
            namespace: flags.namespace,
            manager: flags.manager,
            lease: flags.lease,
            interval: Duration::from_secs(flags.interval),
            probes_listen: flags.probes_listen,
            logs: LogOptions { format: flags.log_format, filter: flags.log_level },
            drain_grace: DRAIN_GRACE,
        })
    }
}

/// The text of a gateway's URL. A path or a query would be lost in the profiles.
fn gateway_url(url: Url) -> Result<String, ConfigError> {
    let is_bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    let is_anonymous = url.username().is_empty() && url.password().is_none();
    if url.scheme() != "https" || !url.has_host() || !is_bare || !is_anonymous {
        return Err(ConfigError::Gateway(url));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// Parses the name of a cluster manager.
fn manager(text: &str) -> Result<String, &'static str> {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = [text.bytes().next(), text.bytes().last()];
    let is_value = text.len() <= MANAGER_BYTES_MAX
        && text.bytes().all(is_inner)
        && ends.into_iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()));
    if is_value {
        Ok(text.to_owned())
    } else {
        Err(
            "use the value of a label: 1 to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
        )
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};
    use reference::compare;

    use super::*;

    fn config(words: &[&str]) -> Result<Config, String> {
        let words = ["fleet-controller"].iter().chain(words);
        let flags = Flags::try_parse_from(words).map_err(|error| error.to_string())?;
        Config::of(flags).map_err(|error| error.to_string())
    }

    #[test]
    fn the_gateway_has_a_url_of_https_without_a_path() {
        let with = |url: &str| config(&["--gateway", url, "--token-file", "token"]);

        assert_eq!(
            with("https://gateway.example:8443/").unwrap().gateway.url,
            "https://gateway.example:8443"
        );
        for wrong in
            ["http://gateway.example", "https://gateway.example/clusters", "https://a:b@gateway.example"]
        {
            assert!(with(wrong).unwrap_err().contains("such as https://gateway.example:8443"), "{wrong}");
        }
    }

    #[test]
    fn there_is_one_credential_and_all_of_it() {
        let with = |words: &[&str]| config(&[&["--gateway", "https://gateway.example"], words].concat());

        assert!(with(&["--token-file", "t"]).is_ok());
        assert!(with(&["--client-certificate", "c", "--client-key", "k"]).is_ok());
        for wrong in [
            [].as_slice(),
            &["--client-certificate", "c"],
            &["--client-key", "k"],
            &["--client-certificate", "c", "--client-key", "k", "--token-file", "t"],
        ] {
            assert!(with(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_manager_is_the_value_of_a_label() {
        for (text, is_right) in
            [("tombolo", true), ("a.b_c-D", true), ("", false), ("-a", false), ("a/b", false)]
        {
            assert_eq!(manager(text).is_ok(), is_right, "{text}");
        }
        assert!(manager(&"a".repeat(MANAGER_BYTES_MAX)).is_ok());
        assert!(manager(&"a".repeat(MANAGER_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn the_reference_has_the_flags_of_the_controller() {
        let mut command = daemon::args::with_environment(Flags::command(), "TOMBOLO_FLEET");
        command.build();
        compare("fleet-controller.md", &reference::commands_page(include_str!("command_head.md"), &command));
    }
}
