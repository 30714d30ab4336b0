//! What a person keeps for all commands: in the environment, and in `config.yaml`.

use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use daemon::config::{LoadError, parse_headless, shown};
use serde::Deserialize;

use crate::files::{self, ReadError};
use crate::names::{GatewayUrl, HostSuffix, NotAGatewayUrl, NotAHost};

/// What one place says, or several with the first that speaks winning.
#[derive(Default)]
pub(crate) struct Settings {
    pub(crate) gateway: Option<GatewayUrl>,
    pub(crate) certificate_authority: Option<PathBuf>,
    pub(crate) credential: Option<Credential>,
    pub(crate) host_suffix: Option<HostSuffix>,
}

/// How a person proves who they are. All of it comes from one place, so that no key meets another place's certificate.
#[derive(Clone)]
pub(crate) enum Credential {
    Certificate { certificate: PathBuf, key: PathBuf },
    TokenFile(PathBuf),
}

/// What nobody has said.
#[derive(Debug, thiserror::Error)]
#[error("no {what}: pass {flag}, set {variable}, or write {key} in {file}")]
pub(crate) struct Missing {
    what: &'static str,
    flag: &'static str,
    variable: &'static str,
    key: &'static str,
    file: String,
}

/// A place's settings as they were written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Written {
    gateway: Option<String>,
    certificate_authority: Option<PathBuf>,
    client_certificate: Option<PathBuf>,
    client_key: Option<PathBuf>,
    token_file: Option<PathBuf>,
    host_suffix: Option<String>,
}

/// How a place spells its keys, for its errors.
struct Spelling {
    gateway: &'static str,
    client_certificate: &'static str,
    client_key: &'static str,
    token_file: &'static str,
    host_suffix: &'static str,
}

/// Why the settings cannot be used.
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
    #[error("{place}: {key} is {value:?}")]
    Gateway { place: String, key: &'static str, value: String, source: NotAGatewayUrl },
    #[error("{place}: {key} is {value:?}")]
    HostSuffix { place: String, key: &'static str, value: String, source: NotAHost },
    #[error("{place}: {present} needs {absent} beside it")]
    Half { place: String, present: &'static str, absent: &'static str },
    #[error("{place}: {one} and {other} exclude each other; keep one")]
    TwoCredentials { place: String, one: &'static str, other: &'static str },
}

const IN_FILE: Spelling = Spelling {
    gateway: "gateway",
    client_certificate: "clientCertificate",
    client_key: "clientKey",
    token_file: "tokenFile",
    host_suffix: "hostSuffix",
};

const IN_ENVIRONMENT: Spelling = Spelling {
    gateway: "TOMBOLO_GATEWAY",
    client_certificate: "TOMBOLO_CLIENT_CERTIFICATE",
    client_key: "TOMBOLO_CLIENT_KEY",
    token_file: "TOMBOLO_TOKEN_FILE",
    host_suffix: "TOMBOLO_HOST_SUFFIX",
};

impl Credential {
    /// What flags say, which go together or exclude each other.
    pub(crate) fn of(
        certificate: Option<PathBuf>,
        key: Option<PathBuf>,
        token_file: Option<PathBuf>,
    ) -> Option<Self> {
        match (certificate, key, token_file) {
            (Some(certificate), Some(key), _) => Some(Self::Certificate { certificate, key }),
            (_, _, file) => file.map(Self::TokenFile),
        }
    }
}

impl Settings {
    /// Where the gateway is.
    pub(crate) fn the_gateway(&self) -> Result<GatewayUrl, Missing> {
        let missing = || missing("gateway", "--gateway https://HOST:PORT", "TOMBOLO_GATEWAY", "gateway");
        self.gateway.clone().ok_or_else(missing)
    }

    /// What vouches for it.
    pub(crate) fn the_authority(&self) -> Result<PathBuf, Missing> {
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

    /// Who asks it.
    pub(crate) fn the_credential(&self) -> Result<Credential, Missing> {
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

    /// These settings, and where they say nothing, those.
    pub(crate) fn or(self, those: Self) -> Self {
        Self {
            gateway: self.gateway.or(those.gateway),
            certificate_authority: self.certificate_authority.or(those.certificate_authority),
            credential: self.credential.or(those.credential),
            host_suffix: self.host_suffix.or(those.host_suffix),
        }
    }

    /// What the variables `TOMBOLO_…` say; an empty one says nothing.
    pub(crate) fn of_environment() -> Result<Self, SettingsError> {
        let written = Written {
            gateway: text_variable(IN_ENVIRONMENT.gateway)?,
            certificate_authority: variable("TOMBOLO_CERTIFICATE_AUTHORITY").map(PathBuf::from),
            client_certificate: variable(IN_ENVIRONMENT.client_certificate).map(PathBuf::from),
            client_key: variable(IN_ENVIRONMENT.client_key).map(PathBuf::from),
            token_file: variable(IN_ENVIRONMENT.token_file).map(PathBuf::from),
            host_suffix: text_variable(IN_ENVIRONMENT.host_suffix)?,
        };
        written.checked("environment", &IN_ENVIRONMENT, Path::new(""))
    }

    /// What the configuration file says; nothing if there is none and `TOMBOLO_CONFIG` does not ask for one.
    pub(crate) fn of_file() -> Result<Self, SettingsError> {
        let asked_for = variable("TOMBOLO_CONFIG").map(PathBuf::from);
        let is_asked_for = asked_for.is_some();
        let Some(path) = asked_for.or_else(default_path) else {
            return Ok(Self::default());
        };
        let text = match files::read(&path) {
            Ok(text) => text,
            Err(ReadError::Io(_, error)) if error.kind() == ErrorKind::NotFound && !is_asked_for => {
                return Ok(Self::default());
            }
            Err(error) => return Err(SettingsError::Read(error)),
        };
        let written: Option<Written> = parse_headless(&text, &path)
            .map_err(|error| SettingsError::Syntax(path.clone(), Box::new(error)))?;
        let directory = path.parent().unwrap_or_else(|| Path::new(""));
        written.unwrap_or_default().checked(&path.display().to_string(), &IN_FILE, directory)
    }
}

impl Written {
    /// The settings, paths relative to `directory`.
    fn checked(self, place: &str, keys: &Spelling, directory: &Path) -> Result<Settings, SettingsError> {
        let Self { gateway, certificate_authority, client_certificate, client_key, token_file, host_suffix } =
            self;
        let at = |path: PathBuf| directory.join(path);
        let place = || place.to_owned();
        let gateway = gateway
            .map(|value| {
                value.parse().map_err(|source| SettingsError::Gateway {
                    place: place(),
                    key: keys.gateway,
                    value: shown(&value),
                    source,
                })
            })
            .transpose()?;
        let host_suffix = host_suffix
            .map(|value| {
                value.parse().map_err(|source| SettingsError::HostSuffix {
                    place: place(),
                    key: keys.host_suffix,
                    value: shown(&value),
                    source,
                })
            })
            .transpose()?;
        let half = |present, absent| Err(SettingsError::Half { place: place(), present, absent });
        let two = |one| Err(SettingsError::TwoCredentials { place: place(), one, other: keys.token_file });
        let credential = match (client_certificate, client_key, token_file) {
            (None, None, None) => None,
            (None, None, Some(file)) => Some(Credential::TokenFile(at(file))),
            (Some(certificate), Some(key), None) => {
                Some(Credential::Certificate { certificate: at(certificate), key: at(key) })
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

/// Where the configuration is looked for, whether or not it is there (XDG Base Directory Specification).
pub(crate) fn default_path() -> Option<PathBuf> {
    // The specification has relative paths ignored.
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

fn missing(what: &'static str, flag: &'static str, variable: &'static str, key: &'static str) -> Missing {
    let file = default_path()
        .map_or_else(|| "~/.config/tombolo/config.yaml".to_owned(), |path| path.display().to_string());
    Missing { what, flag, variable, key, file }
}
