//! `tombolo credential`: an exec plugin of client-go (`client.authentication.k8s.io/v1`), which hands the caller's credential for the
//! gateway to kubectl and to other programs, as it is in its files at that moment.

mod exec_info;
mod token_expiry;

use std::path::{Path, PathBuf};
use std::{env, fs};

use serde::Serialize;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use crate::args::CredentialArgs;
use crate::files::{self, Existing, NewFile, WriteError};
use crate::kubeconfig::{CertificateAndKey, CredentialError, EXEC_API_VERSION, bearer_token};
use crate::settings::{GatewayCredential, MissingSetting, Settings, SettingsError};
use exec_info::ExecInfoError;

/// The kind of both the question and the answer of an exec plugin.
const KIND: &str = "ExecCredential";

/// The time for which a client uses a token that does not say when it ends. The token in its file may be exchanged at any time.
const OPAQUE_TOKEN_FOR: Duration = Duration::seconds(60);

/// The reason why there is no credential.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PluginError {
    #[error(transparent)]
    ExecInfo(#[from] ExecInfoError),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Missing(#[from] MissingSetting),
    #[error(transparent)]
    Credential(#[from] CredentialError),
    #[error(
        "the token in {0} has expired on {1}; exchange it for a new one, and look at who should have done so: in a pod that is the kubelet"
    )]
    ExpiredToken(PathBuf, OffsetDateTime),
    #[error("this program cannot be read, to be copied")]
    OwnProgram(#[source] std::io::Error),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("the credential could not be written as JSON")]
    Json(#[from] serde_json::Error),
    #[error("the end of the credential could not be written")]
    Time(#[from] time::error::Format),
}

/// The answer of an exec plugin.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: &'static str,
    kind: &'static str,
    status: ExecCredentialStatus,
}

/// The credential, of which one kind is set, and the time until which clients use it without asking again.
#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct ExecCredentialStatus {
    expiration_timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_certificate_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_key_data: Option<String>,
}

/// Reads the credential and returns the answer, as one line of JSON. Nothing, if this program was only to be copied.
pub(crate) fn answer(args: CredentialArgs) -> Result<String, PluginError> {
    let CredentialArgs { credential, install } = args;
    if let Some(path) = install {
        install_to(path)?;
        return Ok(String::new());
    }
    exec_info::check()?;
    let credential = GatewayCredential::from_flags(credential);
    let flags = Settings { credential, ..Settings::default() };
    let settings = flags.or(Settings::from_environment()?).or(Settings::from_file()?);
    let status = match settings.required_credential()? {
        GatewayCredential::Certificate { certificate, key } => of_certificate(&certificate, &key)?,
        GatewayCredential::TokenFile(file) => of_token(&file, OffsetDateTime::now_utc())?,
    };
    let answer = ExecCredential { api_version: EXEC_API_VERSION, kind: KIND, status };
    Ok(serde_json::to_string(&answer)? + "\n")
}

/// Copies this program, in place of an older copy.
fn install_to(path: PathBuf) -> Result<(), PluginError> {
    let program = env::current_exe().and_then(fs::read).map_err(PluginError::OwnProgram)?;
    Ok(files::write_all(vec![NewFile::program(path, program)], Existing::Replace)?)
}

fn of_certificate(certificate: &Path, key: &Path) -> Result<ExecCredentialStatus, PluginError> {
    let CertificateAndKey { certificates, key, end } = CertificateAndKey::read(certificate, key)?;
    Ok(ExecCredentialStatus {
        expiration_timestamp: end.format(&Rfc3339)?,
        client_certificate_data: Some(certificates),
        client_key_data: Some(key),
        ..ExecCredentialStatus::default()
    })
}

fn of_token(file: &Path, now: OffsetDateTime) -> Result<ExecCredentialStatus, PluginError> {
    let token = bearer_token(file)?;
    let end = match token_expiry::of(&token) {
        Some(end) if end <= now => return Err(PluginError::ExpiredToken(file.to_owned(), end)),
        Some(end) => end,
        None => now.replace_nanosecond(0).unwrap_or(now) + OPAQUE_TOKEN_FOR,
    };
    Ok(ExecCredentialStatus {
        expiration_timestamp: end.format(&Rfc3339)?,
        token: Some(token),
        ..ExecCredentialStatus::default()
    })
}
