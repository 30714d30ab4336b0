//! The credential that Kubernetes mounts into a pod.

use std::path::Path;

use super::material::{ApiServerAddress, CredentialError, Material, bearer, file};

/// Reads `token` and `ca.crt`. The kubelet replaces both at once by swapping the symbolic link `..data`.
pub(super) fn read(directory: &Path, host: &str, port: u16) -> Result<Material, CredentialError> {
    let (ca, token) = (directory.join("ca.crt"), directory.join("token"));
    Ok(Material {
        target: ApiServerAddress::new(host, port, None)?,
        ca: file("CA certificate", &ca)?,
        ca_source: ca.display().to_string(),
        client_certificate: None,
        authorization: Some(bearer(&file("token", &token)?, &token.display().to_string())?),
    })
}
