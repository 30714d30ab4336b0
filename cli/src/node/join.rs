//! `tombolo node join --only-lb`: gives a machine a load balancer for the API servers of a cluster, so that kubeadm can join it.

use std::fs;
use std::io;
use std::net::TcpStream as BlockingStream;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api_servers::list::NODE_LB_API_SERVERS_MAX;
use daemon::Scope;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::time::sleep;

use super::cluster_info::ClusterInfo;
use super::discovery::{self, DiscoveryError};
use super::journal::{Journal, JournalError, Step};
use crate::args::NodeJoin;
use crate::files::{self, NewFile, ReadError};
use crate::names::BootstrapToken;
use crate::print;
use crate::runtime::{self, RuntimeError};

/// The paths, below the root of the machine.
const CA: &str = "etc/kubernetes/pki/ca.crt";
const CONFIGURATION: &str = "etc/tombolo/node-lb.yaml";
const UNIT_FILE: &str = "etc/systemd/system/node-lb.service";
const STATE: &str = "var/lib/tombolo/node-lb";
const KUBELET_KUBECONFIG: &str = "etc/kubernetes/kubelet.conf";
const PROGRAM: &str = "usr/bin/node-lb";

/// The unit of systemd, as it is shipped.
const UNIT: &str = include_str!("../../../deploy/systemd/node-lb.service");
pub(super) const UNIT_NAME: &str = "node-lb.service";

/// The ports of node-lb on this machine.
const PORTS: [&str; 2] = ["127.0.0.1:7443", "127.0.0.1:9092"];

/// Longest wait for node-lb to relay to an API server.
const RELAYS_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The error if the machine has no load balancer yet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeJoinError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("only root can write the files of a worker; run the same command by sudo")]
    NotRoot,
    #[error("{0} is there: this machine has joined a cluster already. Leave it first (kubeadm reset)")]
    AlreadyJoined(PathBuf),
    #[error("{0} is not there; install node-lb first, from the archive of a release")]
    NoProgram(PathBuf),
    #[error("another program listens at {0}, which node-lb needs; see who by: ss -ltnp")]
    PortTaken(&'static str),
    #[error("{0} is there, and holds another CA than that of the cluster")]
    OtherCa(PathBuf),
    #[error("{0} API servers are named, and node-lb takes at most {NODE_LB_API_SERVERS_MAX}")]
    TooMany(usize),
    #[error("neither --token nor --token-file is given")]
    NoToken,
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{0} holds no bootstrap token")]
    TokenFile(PathBuf),
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("`systemctl {words}` failed: {output}")]
    Systemctl {
        /// The arguments of the command.
        words: String,
        /// The output of the command.
        output: String,
    },
    #[error("node-lb runs, and relays to no API server within {} s; see `journalctl --unit node-lb` and `tombolo doctor node`", RELAYS_MAX.as_secs())]
    RelaysNothing,
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

/// Joins, or goes on with an interrupted join. Returns the lines that say what to do next.
pub(crate) fn join(args: &NodeJoin) -> Result<Vec<String>, NodeJoinError> {
    let token = token(args)?;
    if args.api_servers.len() > NODE_LB_API_SERVERS_MAX {
        return Err(NodeJoinError::TooMany(args.api_servers.len()));
    }
    let mut journal = Journal::open(&args.root)?;
    preflight(args, &journal)?;
    print::note("asking the API servers for their cluster")?;
    runtime::run(async |scope| {
        let info = discovery::discover(&args.api_servers, &token, &args.ca_hash, scope).await?;
        let files = Files::new(args, &info)?;
        if args.dry_run {
            return Ok(files.shown());
        }
        files.write(&mut journal)?;
        if args.no_start {
            return Ok(vec![
                "the files are written; start node-lb by: systemctl daemon-reload && systemctl enable --now node-lb".to_owned(),
            ]);
        }
        journal.note(Step::Unit { name: UNIT_NAME.to_owned() })?;
        systemctl(&["daemon-reload"])?;
        systemctl(&["enable", "--now", UNIT_NAME])?;
        print::note("waiting until node-lb relays to an API server")?;
        relays(&info, scope).await?;
        Ok(vec!["node-lb relays 127.0.0.1:7443 to the cluster's API servers".to_owned()])
    })?
}

/// The token of the command line, or that of the file.
fn token(args: &NodeJoin) -> Result<BootstrapToken, NodeJoinError> {
    match (&args.token, &args.token_file) {
        (Some(token), _) => Ok(token.clone()),
        (None, Some(path)) => {
            files::read(path)?.trim().parse().map_err(|_| NodeJoinError::TokenFile(path.clone()))
        }
        (None, None) => Err(NodeJoinError::NoToken),
    }
}

/// Refuses a machine that cannot be joined, before anything is written.
fn preflight(args: &NodeJoin, journal: &Journal) -> Result<(), NodeJoinError> {
    let NodeJoin { root, dry_run, no_start, .. } = args;
    if *dry_run {
        return Ok(());
    }
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !is_root {
        return Err(NodeJoinError::NotRoot);
    }
    let kubelet = root.join(KUBELET_KUBECONFIG);
    if kubelet.exists() {
        return Err(NodeJoinError::AlreadyJoined(kubelet));
    }
    if *no_start {
        return Ok(());
    }
    let program = root.join(PROGRAM);
    if !program.exists() {
        return Err(NodeJoinError::NoProgram(program));
    }
    // An earlier run may have started it.
    if !journal.has(&Step::Unit { name: UNIT_NAME.to_owned() }) {
        for address in PORTS {
            if BlockingStream::connect(address).is_ok() {
                return Err(NodeJoinError::PortTaken(address));
            }
        }
    }
    Ok(())
}

/// The files of the load balancer.
struct Files {
    root: PathBuf,
    /// `None` if the same CA is there already.
    ca: Option<String>,
    configuration: String,
}

impl Files {
    fn new(args: &NodeJoin, info: &ClusterInfo) -> Result<Self, NodeJoinError> {
        let path = args.root.join(CA);
        let ca = match path.exists() {
            // An earlier run, or the owner of the machine, wrote it.
            true if certificates(&files::read(&path)?) == info.roots => None,
            true => return Err(NodeJoinError::OtherCa(path)),
            false => Some(info.ca_pem.clone()),
        };
        let named: Vec<String> = args.api_servers.iter().map(|address| format!("\"{address}\"")).collect();
        let configuration = format!(
            "# Written by tombolo node join.\napiVersion: tombolo.dev/v1alpha1\nkind: NodeLBConfig\napiServers: [{}]\ncaFile: \
             /etc/kubernetes/pki/ca.crt\nclientCertificateFile: /var/lib/kubelet/pki/kubelet-client-current.pem\n",
            named.join(", ")
        );
        Ok(Self { root: args.root.clone(), ca, configuration })
    }

    fn all(&self) -> Vec<(PathBuf, &str)> {
        let ca = self.ca.as_deref().map(|ca| (self.root.join(CA), ca));
        let configuration = (self.root.join(CONFIGURATION), self.configuration.as_str());
        ca.into_iter().chain([configuration, (self.root.join(UNIT_FILE), UNIT)]).collect()
    }

    /// The files as lines, for a dry run.
    fn shown(&self) -> Vec<String> {
        let all = self.all().into_iter();
        all.flat_map(|(path, text)| {
            std::iter::once(format!("# {}", path.display()))
                .chain(text.lines().map(str::to_owned))
                .collect::<Vec<_>>()
        })
        .collect()
    }

    fn write(&self, journal: &mut Journal) -> Result<(), NodeJoinError> {
        for (path, text) in self.all() {
            journal.file(NewFile::public(path, text))?;
        }
        Ok(journal.state(&self.root.join(STATE))?)
    }
}

/// The certificates in a file, so that a file with other line breaks or comments is the same.
fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).flatten().collect()
}

/// Runs `systemctl` with these arguments.
pub(super) fn systemctl(words: &[&str]) -> Result<(), NodeJoinError> {
    let failed = |output: String| NodeJoinError::Systemctl { words: words.join(" "), output };
    match Command::new("systemctl").args(words).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Waits until an API server shows its certificate through node-lb.
async fn relays(info: &ClusterInfo, scope: &Scope) -> Result<(), NodeJoinError> {
    let config = discovery::verified(info)?;
    let deadline = Instant::now() + RELAYS_MAX;
    while Instant::now() < deadline {
        if discovery::connect(PORTS[0], Arc::clone(&config), scope).await.is_ok() {
            return Ok(());
        }
        sleep(LOOK_EVERY).await;
    }
    Err(NodeJoinError::RelaysNothing)
}

/// The root of a machine that is not an image: `/`.
pub(super) fn is_this_machine(root: &Path) -> bool {
    root == Path::new("/")
}
