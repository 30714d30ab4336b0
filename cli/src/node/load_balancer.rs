//! The files of node-lb on a worker: the cluster's CA, the configuration and the unit.

use std::path::PathBuf;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::cluster_info::ClusterInfo;
use super::journal::{Journal, JournalError};
use super::systemd::{NODE_LB_UNIT, NODE_LB_UNIT_TEXT, UNITS};
use crate::args::NodeJoin;
use crate::files::{self, NewFile, ReadError};

/// The CA of the cluster, where kubeadm has it, too.
pub(super) const CA: &str = "etc/kubernetes/pki/ca.crt";
const CONFIGURATION: &str = "etc/tombolo/node-lb.yaml";
const STATE: &str = "var/lib/tombolo/node-lb";

/// The certificate of kubelet with its key, by which node-lb reads the list of API servers.
pub(super) const KUBELET_CREDENTIAL: &str = "var/lib/kubelet/pki/kubelet-client-current.pem";

/// The CA of this machine is not that of the cluster.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CaError {
    #[error("{0} is there, and holds another CA than that of the cluster")]
    Other(PathBuf),
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// The files of node-lb, and its state folder.
pub(super) fn files(args: &NodeJoin, info: &ClusterInfo) -> Result<Vec<NewFile>, CaError> {
    let path = args.root.join(CA);
    let ca = match path.exists() {
        // An earlier run, or the owner of the machine, wrote it.
        true if certificates(&files::read(&path)?) == info.roots => None,
        true => return Err(CaError::Other(path)),
        false => Some(NewFile::public(path, info.ca_pem.clone())),
    };
    let named: Vec<String> = args.api_servers.iter().map(|address| format!("\"{address}\"")).collect();
    let configuration = format!(
        "# Written by tombolo node join.\napiVersion: tombolo.dev/v1alpha1\nkind: NodeLBConfig\napiServers: [{}]\ncaFile: /{CA}\n\
         clientCertificateFile: /{KUBELET_CREDENTIAL}\n",
        named.join(", ")
    );
    let configuration = NewFile::public(args.root.join(CONFIGURATION), configuration);
    let unit = NewFile::public(args.root.join(UNITS).join(NODE_LB_UNIT), NODE_LB_UNIT_TEXT);
    Ok(ca.into_iter().chain([configuration, unit]).collect())
}

/// Makes the folder of node-lb's state.
pub(super) fn state(args: &NodeJoin, journal: &mut Journal) -> Result<(), JournalError> {
    journal.state(&args.root.join(STATE))
}

/// The certificates in a file, so that a file with other line breaks or comments is the same.
pub(super) fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).flatten().collect()
}
