//! Load balancers of a worker for API servers: node-lb, and what it is compared with, as people configure those.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

use crate::binaries::binary;
use crate::pki::Issued;
use crate::process::{Invocation, Process, ProcessError};
use crate::scratch::Scratch;

mod configuration;

/// The program of Debian's package haproxy.
const HAPROXY: &str = "/usr/sbin/haproxy";

/// The program of Debian's package nginx-light.
const NGINX: &str = "/usr/sbin/nginx";

/// The module of Debian's package libnginx-mod-stream.
const NGINX_STREAM: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// A load balancer with its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BalancerKind {
    /// The program of this project, with its defaults.
    NodeLb,
    /// haproxy that asks for `/readyz` every 0.5 s, and believes one check that fails.
    HaproxyQuick,
    /// haproxy that asks for `/readyz` with its default times: every 2 s, down after three checks that fail.
    HaproxyDefault,
    /// nginx's `stream`, which has no checks of its own.
    Nginx,
}

/// The place of a balancer in the network, and what it leads to.
#[derive(Debug, Clone)]
pub struct BalancerOptions<'a> {
    /// The API servers to begin with.
    pub api_servers: &'a [SocketAddr],
    /// The CA of the cluster, PEM.
    pub ca_pem: &'a str,
    /// The certificate by which node-lb reads the cluster's list; without it node-lb has `api_servers` alone.
    pub kubelet: Option<&'a Issued>,
    /// The network namespace of the worker; `None` is that of this process.
    pub network_namespace: Option<&'a Path>,
    /// The port of 127.0.0.1 for callers.
    pub port: u16,
    /// The port of 127.0.0.1 for node-lb's metrics.
    pub probes_port: u16,
}

/// A running balancer. It ends when this is dropped.
#[derive(Debug)]
#[must_use = "the balancer ends when this is dropped"]
pub struct Balancer {
    /// The program and its configuration.
    pub kind: BalancerKind,
    /// The address at which it accepts callers.
    pub address: SocketAddr,
    /// The address of node-lb's metrics.
    pub probes: SocketAddr,
    process: Process,
    _home: Scratch,
}

/// An error of starting a balancer.
#[derive(Debug, thiserror::Error)]
pub enum BalancerError {
    /// Its program is not installed.
    #[error("{name} is missing here: there is no {}. Install Debian's packages haproxy, nginx-light and libnginx-mod-stream", .path.display())]
    Missing {
        /// The name of the balancer.
        name: &'static str,
        /// The path of the file that is not there.
        path: PathBuf,
    },
    /// Its files cannot be written.
    #[error("the files of a balancer cannot be written")]
    Files(#[from] io::Error),
    /// Its process does not start.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

impl BalancerKind {
    /// node-lb, then all that it is compared with.
    pub const ALL: [Self; 4] = [Self::NodeLb, Self::HaproxyQuick, Self::HaproxyDefault, Self::Nginx];

    /// The name that reports have for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::NodeLb => "node-lb",
            Self::HaproxyQuick => "haproxy quick",
            Self::HaproxyDefault => "haproxy default",
            Self::Nginx => "nginx",
        }
    }

    /// Checks that its program is installed.
    ///
    /// # Errors
    /// [`BalancerError::Missing`].
    pub fn find(self) -> Result<(), BalancerError> {
        let files: &[&str] = match self {
            Self::NodeLb => &[],
            Self::HaproxyQuick | Self::HaproxyDefault => &[HAPROXY],
            Self::Nginx => &[NGINX, NGINX_STREAM],
        };
        match files.iter().find(|file| !Path::new(file).exists()) {
            Some(file) => Err(BalancerError::Missing { name: self.name(), path: file.into() }),
            None => Ok(()),
        }
    }

    /// Those whose programs are installed, and a sentence for each that is missing.
    pub fn installed() -> (Vec<Self>, Vec<String>) {
        let (mut installed, mut missing) = (Vec::new(), Vec::new());
        for kind in Self::ALL {
            match kind.find() {
                Ok(()) => installed.push(kind),
                Err(error) => missing.push(error.to_string()),
            }
        }
        (installed, missing)
    }
}

impl Balancer {
    /// Writes the files of a balancer, starts it, and returns at once.
    ///
    /// # Errors
    /// [`BalancerError`] for the step that failed.
    pub async fn start(kind: BalancerKind, options: &BalancerOptions<'_>) -> Result<Self, BalancerError> {
        kind.find()?;
        let home = Scratch::new("tombolo-balancer-")?;
        let path = |name: &str| home.path().join(name).display().to_string();
        fs::write(home.path().join("ca.crt"), options.ca_pem)?;
        if let Some(kubelet) = options.kubelet {
            // As kubelet keeps both in one file.
            let both = format!("{}{}", kubelet.certificate_pem, kubelet.key_pem);
            fs::write(home.path().join("kubelet.pem"), both)?;
        }
        let config = path("balancer.conf");
        fs::write(&config, configuration::configuration(kind, options, home.path()))?;
        let invocation = match kind {
            BalancerKind::NodeLb => Invocation::of(binary("node-lb"))
                .arguments(["--log-format=json".to_owned(), format!("--config={config}")]),
            BalancerKind::HaproxyQuick | BalancerKind::HaproxyDefault => {
                Invocation::of(HAPROXY).arguments(["-db".to_owned(), "-f".to_owned(), config])
            }
            BalancerKind::Nginx => Invocation::of(NGINX).arguments([
                "-e".to_owned(),
                "stderr".to_owned(),
                "-c".to_owned(),
                config,
            ]),
        };
        let invocation = invocation.in_network_namespace(options.network_namespace.map(Path::to_owned));
        let process = Process::start(&invocation, &home.path().join("balancer.log")).await?;
        let address = (Ipv4Addr::LOCALHOST, options.port).into();
        let probes = (Ipv4Addr::LOCALHOST, options.probes_port).into();
        Ok(Self { kind, address, probes, process, _home: home })
    }

    /// The process ids of the balancer and of its workers.
    pub fn process_ids(&self) -> Vec<u32> {
        let Some(first) = self.process.id() else { return Vec::new() };
        let children = fs::read_to_string(format!("/proc/{first}/task/{first}/children")).unwrap_or_default();
        let workers = children.split_whitespace().filter_map(|id| id.parse().ok());
        std::iter::once(first).chain(workers).collect()
    }

    /// All that the process wrote.
    pub fn log(&self) -> String {
        fs::read_to_string(self.process.output()).unwrap_or_default()
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let processes = self.process_ids();
        // First, because nginx starts workers anew. They outlive it, and would go on to listen.
        self.process.kill();
        for worker in processes.into_iter().skip(1) {
            if let Some(id) = i32::try_from(worker).ok().and_then(Pid::from_raw) {
                let _ = kill_process(id, Signal::KILL); // Ended already is as good as killed.
            }
        }
    }
}
