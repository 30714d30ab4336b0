//! The question of an exec plugin's client, which is in an environment variable.

use std::env;

use serde::Deserialize;

use super::KIND;
use crate::kubeconfig::EXEC_API_VERSION;

/// The variable with the client's question, an `ExecCredential` in JSON.
const VARIABLE: &str = "KUBERNETES_EXEC_INFO";

/// The reason why the question of the client cannot be answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecInfoError {
    #[error(
        "{VARIABLE} is no ExecCredential in JSON; leave it to kubectl to set it, and unset it to run this command by hand"
    )]
    NotJson(#[source] serde_json::Error),
    #[error("{VARIABLE} is not UTF-8 text; leave it to kubectl to set it")]
    NotText,
    #[error(
        "the client asks for {kind:?} of {api_version:?}, and this plugin speaks {KIND} of {EXEC_API_VERSION}; set `apiVersion: {EXEC_API_VERSION}` under \
         `exec` of the user in the kubeconfig"
    )]
    OtherVersion { api_version: String, kind: String },
}

/// The parts of the question that matter. What it says of the cluster and of the terminal is of no use here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecInfo {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
}

/// Checks that the client speaks the same version, if there is a client.
pub(super) fn check() -> Result<(), ExecInfoError> {
    match env::var(VARIABLE) {
        Ok(text) if text.is_empty() => Ok(()),
        Ok(text) => check_text(&text),
        Err(env::VarError::NotPresent) => Ok(()),
        Err(env::VarError::NotUnicode(_)) => Err(ExecInfoError::NotText),
    }
}

fn check_text(text: &str) -> Result<(), ExecInfoError> {
    let ExecInfo { api_version, kind } = serde_json::from_str(text).map_err(ExecInfoError::NotJson)?;
    if api_version == EXEC_API_VERSION && kind == KIND {
        Ok(())
    } else {
        Err(ExecInfoError::OtherVersion { api_version, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_version_that_is_spoken_is_answered() {
        let ours = r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"interactive":false}}"#;
        assert!(check_text(ours).is_ok());
        for other in [
            r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1","spec":{}}"#,
            r#"{"kind":"Pod","apiVersion":"client.authentication.k8s.io/v1"}"#,
            "{}",
        ] {
            let refused = check_text(other).unwrap_err().to_string();
            assert!(refused.contains("set `apiVersion: client.authentication.k8s.io/v1`"), "{refused}");
        }
        assert!(matches!(check_text("v1"), Err(ExecInfoError::NotJson(_))));
    }
}
