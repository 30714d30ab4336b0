//! Command-line flags that every daemon has, and the environment variable of each flag.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Command, Parser};

use crate::telemetry::{LogFormat, LogOptions};

/// The default of the longest time that a drain may take.
pub const DRAIN_GRACE: Duration = Duration::from_secs(30);

/// The flags that every daemon has. `None` means that neither flag nor environment set the value; then the
/// file decides, and last the default.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SharedFlags {
    /// Path of the configuration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Directory for keys and other state; created with mode 0700
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,

    /// Address for /livez, /readyz and /metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub probes_listen: Option<SocketAddr>,

    /// Format of the log [default: text on a terminal, else json]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,

    /// Level of the log, or a filter such as info,transport=debug [default: info]
    #[arg(long, value_name = "FILTER", env = "TOMBOLO_LOG")]
    pub log_level: Option<String>,

    /// Seconds for which running requests may continue after the first SIGTERM or SIGINT
    #[arg(long, value_name = "SECONDS")]
    pub drain_grace: Option<u64>,
}

impl SharedFlags {
    /// The log options among these flags.
    pub fn logs(&self) -> LogOptions {
        LogOptions { format: self.log_format, filter: self.log_level.clone() }
    }
}

/// Parses the command line of this process. A wrong one ends the process with code 2 and prints the usage on
/// stderr.
///
/// Every flag without a variable of its own gets `PREFIX_NAME_OF_FLAG`: with the prefix `TOMBOLO_SERVER`,
/// `--state-dir` is also `TOMBOLO_SERVER_STATE_DIR`. A flag wins over its variable.
pub fn parse<F: Parser>(prefix: &str) -> F {
    let mut command = with_environment(F::command(), prefix);
    let matches = command.clone().get_matches();
    F::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit())
}

/// Gives every flag of `command` that takes a value its variable; see [`parse`].
pub fn with_environment(command: Command, prefix: &str) -> Command {
    command.mut_args(|arg| {
        let Some(long) = arg.get_long().filter(|_| arg.get_action().takes_values()) else {
            return arg;
        };
        if arg.get_env().is_some() {
            return arg;
        }
        let variable = format!("{prefix}_{}", long.to_uppercase().replace('-', "_"));
        arg.env(variable)
    })
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, FromArgMatches as _};

    use super::*;

    #[derive(Debug, Parser)]
    struct Flags {
        #[command(flatten)]
        shared: SharedFlags,
        #[arg(long)]
        listen: Option<SocketAddr>,
        #[arg(long)]
        check: bool,
    }

    #[test]
    fn every_flag_that_takes_a_value_has_a_variable() {
        let command = with_environment(Flags::command(), "TOMBOLO_SERVER");

        let variables: Vec<_> = command.get_arguments().filter_map(|arg| arg.get_env()?.to_str()).collect();

        assert_eq!(
            variables,
            [
                "TOMBOLO_SERVER_CONFIG",
                "TOMBOLO_SERVER_STATE_DIR",
                "TOMBOLO_SERVER_PROBES_LISTEN",
                "TOMBOLO_SERVER_LOG_FORMAT",
                "TOMBOLO_LOG",
                "TOMBOLO_SERVER_DRAIN_GRACE",
                "TOMBOLO_SERVER_LISTEN",
            ]
        );
    }

    #[test]
    fn flags_are_parsed_into_typed_values() {
        let command = with_environment(Flags::command(), "TOMBOLO_TEST");
        let line = ["x", "--log-format", "json", "--drain-grace", "5", "--listen", "[::1]:1", "--check"];

        let flags = Flags::from_arg_matches(&command.try_get_matches_from(line).unwrap()).unwrap();

        assert_eq!(flags.shared.logs().format, Some(LogFormat::Json));
        assert_eq!(flags.shared.drain_grace, Some(5));
        assert!(flags.listen.is_some_and(|address| address.is_ipv6()) && flags.check);
    }
}
