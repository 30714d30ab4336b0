//! `tombolo vip`: a copy of a cluster's own kubeconfig for the virtual address that the server has for the cluster, or for the
//! Service of that address.

use std::path::Path;

use crate::args::{ClusterKubeconfig, CopyOutput, VipArgs};
use crate::files::{self, ReadError, WriteError};
use crate::kubeconfig::rewrite::{self, PinnedNameKubeconfig, RewriteError};
use crate::pem::{self, PemError};

/// The error if no kubeconfig was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VipError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Kubeconfig(#[from] RewriteError),
    #[error("the CA certificates of the kubeconfig cannot be used")]
    CaCertificates(#[from] PemError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Writes the copy to a file of mode 0600. Connects nowhere, because the address may not be reachable from this machine.
pub(crate) fn write(args: &VipArgs) -> Result<Vec<String>, VipError> {
    let VipArgs { server, own, copy } = args;
    let (ClusterKubeconfig { kubeconfig, context }, CopyOutput { output, force }) = (own, copy);
    let text = files::read(kubeconfig)?;
    let directory = kubeconfig.parent().unwrap_or_else(|| Path::new(""));
    let PinnedNameKubeconfig { text, ca_pem, name } =
        rewrite::with_server_and_old_name(&text, directory, context.as_deref(), server.as_str())?;
    pem::parse_certificates(&ca_pem, kubeconfig)?;
    files::write_private(output, &text, *force)?;
    Ok(vec![
        format!(
            "wrote {} (private): kubectl accepts only a certificate for {name}, as before",
            output.display()
        ),
        format!(
            "next, where {} is reached: kubectl --kubeconfig {} get namespaces",
            server.as_str(),
            output.display()
        ),
    ])
}
