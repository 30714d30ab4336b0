//! `tombolo vip`: a cluster's own kubeconfig for an address that the server has for it, or for the Service of that.

use std::path::Path;

use crate::args::{CopyPlace, OwnKubeconfig, Vip};
use crate::files::{self, ReadError, WriteError};
use crate::pem::{self, PemError};
use crate::proxy::rewritten::{self, NotRewritten, Renamed};

/// Why no kubeconfig was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VipError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Kubeconfig(#[from] NotRewritten),
    #[error("what the kubeconfig trusts cannot be used")]
    Authority(#[from] PemError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Writes it where only this user reads it. Nobody is asked: from here the address may not be reached.
pub(crate) fn write(order: &Vip) -> Result<Vec<String>, VipError> {
    let Vip { server, own, copy } = order;
    let (OwnKubeconfig { kubeconfig, context }, CopyPlace { output, force }) = (own, copy);
    let text = files::read(kubeconfig)?;
    let directory = kubeconfig.parent().unwrap_or_else(|| Path::new(""));
    let Renamed { text, authority, name } =
        rewritten::with_server_named(&text, directory, context.as_deref(), server.bare())?;
    pem::ders(&authority, kubeconfig)?;
    files::write_private(output, &text, *force)?;
    Ok(vec![
        format!("wrote {} (private): the API server has to prove to be {name}, as before", output.display()),
        format!(
            "next, where {} is reached: kubectl --kubeconfig {} get namespaces",
            server.bare(),
            output.display()
        ),
    ])
}
