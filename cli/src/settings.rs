//! Defaults for the flags of several commands, from `TOMBOLO_…` variables and from `config.yaml`.

use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use daemon::config::{LoadError, parse_without_head, redact};
use serde::Deserialize;

use crate::args::CallerCredentialArgs;
use crate::files::{self, ReadError};
use crate::names::{GatewayUrl, HostSuffix, NotAGatewayUrl, NotAHost};

/// The settings of one source, or of several sources merged by [`Settings::or`].
#[derive(Default)]
pub(crate) struct Settings {
    pub(crate) gateway: Option<GatewayUrl>,
    pub(crate) certificate_authority: Option<PathBuf>,
    pub(crate) credential: Option<GatewayCredential>,
    pub(crate) host_suffix: Option<HostSuffix>,
}

/// A caller's credential for the gateway. It comes from one source, so that a key is never combined with the certificate of
/// another source.
#[derive(Clone)]
pub(crate) enum GatewayCredential {
    Certificate { certificate: PathBuf, key: PathBuf },
    TokenFile(PathBuf),
}

/// A setting that no source has.
#[derive(Debug, thiserror::Error)]
#[error("no {what}: pass {flag}, set {variable}, or write {key} in {file}")]
pub(crate) struct MissingSetting {
    what: &'static str,
    flag: &'static str,
    variable: &'static str,
    key: &'static str,
    file: String,
}

/// The settings of one source as they were written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawSettings {
    gateway: Option<String>,
    certificate_authority: Option<PathBuf>,
    client_certificate: Option<PathBuf>,
    client_key: Option<PathBuf>,
    token_file: Option<PathBuf>,
    host_suffix: Option<String>,
}

/// The key names of a source, for error messages.
struct KeyNames {
    gateway: &'static str,
    client_certificate: &'static str,
    client_key: &'static str,
    token_file: &'static str,
    host_suffix: &'static str,
}

/// The error if the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error("the configuration cannot be read")]
    Read(#[source] ReadError),
    #[error(
        "{0} is not a valid configuration; it may have the keys gateway, certificateAuthority, clientCertificate, clientKey, tokenFile and hostSuffix"
    )]
    Syntax(PathBuf, #[source] Box<LoadError>),
    #[error("{0} is not UTF-8 text")]
    NotText(&'static str),
    #[error("{source_name}: {key} is {value:?}")]
    Gateway { source_name: String, key: &'static str, value: String, source: NotAGatewayUrl },
    #[error("{source_name}: {key} is {value:?}")]
    HostSuffix { source_name: String, key: &'static str, value: String, source: NotAHost },
    #[error("{source_name}: {present} needs {absent} beside it")]
    HalfPair { source_name: String, present: &'static str, absent: &'static str },
    #[error("{source_name}: {one} and {other} exclude each other; keep one")]
    TwoCredentials { source_name: String, one: &'static str, other: &'static str },
}

const IN_FILE: KeyNames = KeyNames {
    gateway: "gateway",
    client_certificate: "clientCertificate",
    client_key: "clientKey",
    token_file: "tokenFile",
    host_suffix: "hostSuffix",
};

const IN_ENVIRONMENT: KeyNames = KeyNames {
    gateway: "TOMBOLO_GATEWAY",
    client_certificate: "TOMBOLO_CLIENT_CERTIFICATE",
    client_key: "TOMBOLO_CLIENT_KEY",
    token_file: "TOMBOLO_TOKEN_FILE",
    host_suffix: "TOMBOLO_HOST_SUFFIX",
};

impl GatewayCredential {
    /// The credential of the flags. clap has checked which of them go together.
    pub(crate) fn from_flags(flags: CallerCredentialArgs) -> Option<Self> {
        match (flags.cert, flags.key, flags.token_file) {
            (Some(certificate), Some(key), _) => Some(Self::Certificate { certificate, key }),
            (_, _, file) => file.map(Self::TokenFile),
        }
    }
}

impl Settings {
    /// The URL of the gateway, which has to be set.
    pub(crate) fn required_gateway(&self) -> Result<GatewayUrl, MissingSetting> {
        let missing = || missing("gateway", "--gateway https://HOST:PORT", "TOMBOLO_GATEWAY", "gateway");
        self.gateway.clone().ok_or_else(missing)
    }

    /// The CA file of the gateway, which has to be set.
    pub(crate) fn required_ca(&self) -> Result<PathBuf, MissingSetting> {
        let missing = || {
            missing(
                "certificate authority for the gateway",
                "--ca FILE",
                "TOMBOLO_CERTIFICATE_AUTHORITY",
                "certificateAuthority",
            )
        };
        self.certificate_authority.clone().ok_or_else(missing)
    }

    /// The credential for the gateway, which has to be set.
    pub(crate) fn required_credential(&self) -> Result<GatewayCredential, MissingSetting> {
        let missing = || {
            missing(
                "credential",
                "--cert FILE --key FILE or --token-file FILE",
                "TOMBOLO_CLIENT_CERTIFICATE and TOMBOLO_CLIENT_KEY, or TOMBOLO_TOKEN_FILE",
                "clientCertificate and clientKey, or tokenFile",
            )
        };
        self.credential.clone().ok_or_else(missing)
    }

    /// These settings. A value that is not set comes from `fallback`.
    pub(crate) fn or(self, fallback: Self) -> Self {
        Self {
            gateway: self.gateway.or(fallback.gateway),
            certificate_authority: self.certificate_authority.or(fallback.certificate_authority),
            credential: self.credential.or(fallback.credential),
            host_suffix: self.host_suffix.or(fallback.host_suffix),
        }
    }

    /// The settings of the `TOMBOLO_…` variables. An empty variable counts as not set.
    pub(crate) fn from_environment() -> Result<Self, SettingsError> {
        let raw = RawSettings {
            gateway: text_variable(IN_ENVIRONMENT.gateway)?,
            certificate_authority: variable("TOMBOLO_CERTIFICATE_AUTHORITY").map(PathBuf::from),
            client_certificate: variable(IN_ENVIRONMENT.client_certificate).map(PathBuf::from),
            client_key: variable(IN_ENVIRONMENT.client_key).map(PathBuf::from),
            token_file: variable(IN_ENVIRONMENT.token_file).map(PathBuf::from),
            host_suffix: text_variable(IN_ENVIRONMENT.host_suffix)?,
        };
        raw.parse("environment", &IN_ENVIRONMENT, Path::new(""))
    }

    /// The settings of the configuration file. The file may be missing unless `TOMBOLO_CONFIG` names it.
    pub(crate) fn from_file() -> Result<Self, SettingsError> {
        let named = variable("TOMBOLO_CONFIG").map(PathBuf::from);
        let is_named = named.is_some();
        let Some(path) = named.or_else(default_path) else {
            return Ok(Self::default());
        };
        let text = match files::read(&path) {
            Ok(text) => text,
            Err(ReadError::Io(_, error)) if error.kind() == ErrorKind::NotFound && !is_named => {
                return Ok(Self::default());
            }
            Err(error) => return Err(SettingsError::Read(error)),
        };
        let raw: Option<RawSettings> = parse_without_head(&text, &path)
            .map_err(|error| SettingsError::Syntax(path.clone(), Box::new(error)))?;
        let directory = path.parent().unwrap_or_else(|| Path::new(""));
        raw.unwrap_or_default().parse(&path.display().to_string(), &IN_FILE, directory)
    }
}

impl RawSettings {
    /// Parses the settings. Relative paths start at `directory`.
    fn parse(self, source_name: &str, keys: &KeyNames, directory: &Path) -> Result<Settings, SettingsError> {
        let Self { gateway, certificate_authority, client_certificate, client_key, token_file, host_suffix } =
            self;
        let at = |path: PathBuf| directory.join(path);
        let source_name = || source_name.to_owned();
        let gateway = gateway
            .map(|value| {
                value.parse().map_err(|source| SettingsError::Gateway {
                    source_name: source_name(),
                    key: keys.gateway,
                    value: redact(&value),
                    source,
                })
            })
            .transpose()?;
        let host_suffix = host_suffix
            .map(|value| {
                value.parse().map_err(|source| SettingsError::HostSuffix {
                    source_name: source_name(),
                    key: keys.host_suffix,
                    value: redact(&value),
                    source,
                })
            })
            .transpose()?;
        let half =
            |present, absent| Err(SettingsError::HalfPair { source_name: source_name(), present, absent });
        let two = |one| {
            Err(SettingsError::TwoCredentials { source_name: source_name(), one, other: keys.token_file })
        };
        let credential = match (client_certificate, client_key, token_file) {
            (None, None, None) => None,
            (None, None, Some(file)) => Some(GatewayCredential::TokenFile(at(file))),
            (Some(certificate), Some(key), None) => {
                Some(GatewayCredential::Certificate { certificate: at(certificate), key: at(key) })
            }
            (Some(_), None, None) => return half(keys.client_certificate, keys.client_key),
            (None, Some(_), None) => return half(keys.client_key, keys.client_certificate),
            (Some(_), _, Some(_)) => return two(keys.client_certificate),
            (None, Some(_), Some(_)) => return two(keys.client_key),
        };
        Ok(Settings {
            gateway,
            certificate_authority: certificate_authority.map(at),
            credential,
            host_suffix,
        })
    }
}

/// The default path of the configuration (XDG Base Directory Specification). The file may be missing.
pub(crate) fn default_path() -> Option<PathBuf> {
    // The specification ignores relative paths.
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(base.join("tombolo/config.yaml"))
}

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn text_variable(name: &'static str) -> Result<Option<String>, SettingsError> {
    variable(name).map(|value| value.into_string().map_err(|_| SettingsError::NotText(name))).transpose()
}

fn missing(
    what: &'static str,
    flag: &'static str,
    variable: &'static str,
    key: &'static str,
) -> MissingSetting {
    let file = default_path()
        .map_or_else(|| "~/.config/tombolo/config.yaml".to_owned(), |path| path.display().to_string());
    MissingSetting { what, flag, variable, key, file }
}
