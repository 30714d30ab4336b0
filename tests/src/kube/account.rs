//! The tunnel-agent's ServiceAccount: its rights, its token, and the folder in which a pod finds it.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::EdgeCluster;
use super::kubeconfig::Credential;
use super::kubectl::Kubectl;
use crate::process::ProcessError;

/// The namespace of the agent.
pub const NAMESPACE: &str = "tombolo";
/// The ServiceAccount of the agent.
pub const ACCOUNT: &str = "tunnel-agent";
/// The user that the API server sees when the agent speaks for itself.
pub const USERNAME: &str = "system:serviceaccount:tombolo:tunnel-agent";

/// The objects for an agent in an existing cluster: its namespace, its ServiceAccount and its rights. It may
/// impersonate anybody, because trials have many callers.
pub const AGENT_MANIFEST: &str = include_str!("../../../deploy/rbac/open.yaml");

/// The agent's account in one cluster.
#[derive(Debug)]
pub struct AgentAccount {
    admin: Kubectl,
    token: String,
    directory: ServiceAccountDirectory,
}

/// A folder laid out as kubelet lays out `/var/run/secrets/kubernetes.io/serviceaccount`.
///
/// `token`, `ca.crt` and `namespace` are links into `..data`, itself a link to a folder named after the time,
/// which is replaced by renaming another link over it: a reader sees all files of one version or all of
/// another.
#[derive(Debug)]
pub struct ServiceAccountDirectory {
    path: PathBuf,
    ca_pem: String,
    namespace: String,
}

/// An error of creating the account or its token.
#[derive(Debug, thiserror::Error)]
pub enum AgentAccountError {
    /// kubectl could not be run.
    #[error("could not run kubectl: {0}")]
    Run(#[from] ProcessError),
    /// The API server refused a kubectl command.
    #[error("kubectl {act} failed: {stderr}")]
    Refused {
        /// The purpose of the command.
        act: &'static str,
        /// The output of the command to stderr.
        stderr: String,
    },
    /// A file could not be written.
    #[error("could not write the files of the agent's account")]
    Files(#[from] io::Error),
}

impl AgentAccount {
    pub(super) async fn create(cluster: &EdgeCluster, manifest: &str) -> Result<Self, AgentAccountError> {
        let path = cluster.directory().join("agent-account.yaml");
        fs::write(&path, manifest)?;
        let admin = cluster.admin();
        ask(&admin, "apply", &["apply", "-f", &path.display().to_string()]).await?;
        let token = mint(&admin).await?;
        let path = cluster.directory().join("serviceaccount");
        let directory = ServiceAccountDirectory::create(&path, &token, cluster.ca_pem(), NAMESPACE)?;
        Ok(Self { admin, token, directory })
    }

    /// The token that was minted last.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The same as a credential for [`EdgeCluster::write_kubeconfig`].
    pub fn credential(&self) -> Credential {
        Credential::Token(self.token.clone())
    }

    /// The folder with `token`, `ca.crt` and `namespace`.
    pub fn directory(&self) -> &ServiceAccountDirectory {
        &self.directory
    }

    /// Mints another token and puts it in the place of the old one, which stays valid until it expires.
    pub async fn rotate(&mut self) -> Result<(), AgentAccountError> {
        self.token = mint(&self.admin).await?;
        self.directory.rotate(&self.token)?;
        Ok(())
    }

    /// Deletes the ServiceAccount, which makes all its tokens so far invalid, and creates it again.
    ///
    /// The API server remembers a token that it has seen for up to ten seconds more.
    /// The folder keeps the old token until [`Self::rotate`].
    pub async fn revoke(&self) -> Result<(), AgentAccountError> {
        ask(&self.admin, "delete", &["delete", "serviceaccount", ACCOUNT, "-n", NAMESPACE]).await?;
        ask(&self.admin, "create", &["create", "serviceaccount", ACCOUNT, "-n", NAMESPACE]).await?;
        Ok(())
    }
}

impl ServiceAccountDirectory {
    /// Makes the folder, which must not exist yet, with the three files.
    pub fn create(path: &Path, token: &str, ca_pem: &str, namespace: &str) -> io::Result<Self> {
        fs::create_dir(path)?;
        let directory =
            Self { path: path.to_owned(), ca_pem: ca_pem.to_owned(), namespace: namespace.to_owned() };
        directory.rotate(token)?;
        for name in ["token", "ca.crt", "namespace"] {
            symlink(Path::new("..data").join(name), path.join(name))?;
        }
        Ok(directory)
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the token in one step.
    pub fn rotate(&self, token: &str) -> io::Result<()> {
        let old = fs::read_link(self.path.join("..data")).ok();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
        let new = format!("..{}.{:09}", since.as_secs(), since.subsec_nanos());
        let folder = self.path.join(&new);
        fs::create_dir(&folder)?;
        fs::write(folder.join("token"), token)?;
        fs::write(folder.join("ca.crt"), &self.ca_pem)?;
        fs::write(folder.join("namespace"), &self.namespace)?;
        symlink(&new, self.path.join("..data_tmp"))?;
        fs::rename(self.path.join("..data_tmp"), self.path.join("..data"))?;
        match old {
            Some(old) => fs::remove_dir_all(self.path.join(old)),
            None => Ok(()),
        }
    }
}

async fn mint(admin: &Kubectl) -> Result<String, AgentAccountError> {
    let arguments = ["create", "token", ACCOUNT, "-n", NAMESPACE, "--duration=1h"];
    Ok(ask(admin, "create token", &arguments).await?.trim().to_owned())
}

async fn ask(admin: &Kubectl, act: &'static str, arguments: &[&str]) -> Result<String, AgentAccountError> {
    let output = admin.run(arguments).await?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(AgentAccountError::Refused { act, stderr });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
