//! `tombolo proxy`: serves a local proxy through the gateway, and writes a copy of a cluster's own kubeconfig that uses it.

mod gateway;
mod local_listener;

use std::env;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::error::Unspecified;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use daemon::listen::GuardedListener;
use daemon::{BindError, Scope, error_chain};
use http::uri::Authority;
use tokio::signal::unix::{SignalKind, signal};

use crate::args;
use crate::files::{self, ReadError, WriteError};
use crate::print;
use crate::runtime::{self, RuntimeError};
use crate::settings::{self, GatewayCredential, Settings, SettingsError};

use crate::kubeconfig::rewrite::{self, ProxiedKubeconfig, RewriteError};
use gateway::{GatewayClient, TargetScope};
use local_listener::{LocalListener, USER};

/// Random bytes in the password of the local proxy, which is new for each run.
const SECRET_BYTES: usize = 32;

/// The error if the proxy did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProxyError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Missing(#[from] settings::MissingSetting),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Kubeconfig(#[from] RewriteError),
    #[error("name the cluster to reach with --cluster, or its network with --network")]
    NoDestination,
    #[error("{0} is not an address of this machine alone: use 127.0.0.1:PORT or [::1]:PORT")]
    NotLoopback(SocketAddr),
    #[error(transparent)]
    Listen(#[from] BindError),
    #[error("the system gave no random bytes")]
    Random(#[from] Unspecified),
    #[error("no directory for the kubeconfig can be made; name a file with --output")]
    Directory(#[source] io::Error),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("cannot print, or cannot wait for a signal")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// The copy of the kubeconfig. A drop removes the file, because its password is useless once the proxy has ended.
struct KubeconfigCopy {
    path: PathBuf,
    _directory: Option<tempfile::TempDir>,
}

/// Serves until SIGINT or SIGTERM.
pub(crate) fn serve(args: args::ProxyArgs) -> Result<(), ProxyError> {
    runtime::run(async |scope| serve_in(args, scope).await)?
}

async fn serve_in(args: args::ProxyArgs, scope: &Scope) -> Result<(), ProxyError> {
    let args::ProxyArgs {
        gateway,
        ca,
        credential,
        cluster,
        network,
        kubeconfig,
        context,
        listen,
        socks5,
        output,
        force,
    } = args;
    let within = match (cluster, network) {
        (Some(cluster), _) => TargetScope::Cluster(cluster),
        (None, Some(network)) => TargetScope::Network(network),
        (None, None) => return Err(ProxyError::NoDestination),
    };
    let credential = GatewayCredential::from_flags(credential);
    let flags = Settings { gateway, certificate_authority: ca, credential, host_suffix: None };
    let settings = flags.or(Settings::from_environment()?).or(Settings::from_file()?);
    let gateway = Arc::new(GatewayClient {
        url: settings.required_gateway()?,
        ca: settings.required_ca()?,
        credential: settings.required_credential()?,
        within: within.clone(),
    });
    let text = files::read(&kubeconfig)?;
    if !listen.ip().is_loopback() {
        return Err(ProxyError::NotLoopback(listen));
    }
    let listener = GuardedListener::bind("--listen", listen, local_listener::LIMITS)?;
    let address = listener.address();
    let secret = secret()?;
    let scheme = if socks5 { "socks5" } else { "http" };
    let directory = kubeconfig.parent().unwrap_or_else(|| Path::new(""));
    let proxy = format!("{scheme}://{USER}:{secret}@{address}");
    let proxied = match &within {
        TargetScope::Cluster(_) => rewrite::with_proxy(&text, directory, context.as_deref(), &proxy, None),
        TargetScope::Network(_) => rewrite::with_proxy_for_all(&text, directory, context.as_deref(), &proxy),
    };
    let ProxiedKubeconfig { text, target } = proxied?;
    let copy = write_copy(&within, output, &text, force)?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let exports = [
        format!("export KUBECONFIG={}", copy.path.display()),
        format!("export KUBECACHEDIR={}", kubectl_cache(&within).display()),
    ];
    print::lines(&exports)?;
    print::note(&format!("{within} is reached through {address} until Ctrl-C"))?;
    scope.spawn(report_unreachable(Arc::clone(&gateway), target, scope.clone()));
    let local = Arc::new(LocalListener::new(&secret, gateway, scope.clone()));
    // All arms are cancel-safe: accepted connections are served by tasks of the scope.
    tokio::select! {
        () = local.serve(listener) => {}
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
    }
    drop(copy);
    Ok(())
}

/// Dials the API server once, and prints why it cannot be reached. The proxy serves on, because the cluster may connect later.
async fn report_unreachable(gateway: Arc<GatewayClient>, target: Authority, scope: Scope) {
    if let Err(error) = gateway.connect(&target, &scope).await {
        // A closed standard error is no reason to stop.
        let _ = print::note(&format!("{target} cannot be reached now: {}", error_chain(&error)));
    }
}

fn secret() -> Result<String, Unspecified> {
    let mut bytes = [0; SECRET_BYTES];
    aws_lc_rs::rand::fill(&mut bytes)?;
    Ok(BASE64.encode(bytes))
}

/// Writes the copy with mode 0600, to `output` or to a temporary directory.
fn write_copy(
    within: &TargetScope,
    output: Option<PathBuf>,
    text: &str,
    force: bool,
) -> Result<KubeconfigCopy, ProxyError> {
    let (path, directory) = match output {
        Some(path) => (path, None),
        None => {
            let directory = tempfile::Builder::new().prefix("tombolo-").tempdir();
            let directory = directory.map_err(ProxyError::Directory)?;
            (directory.path().join(format!("{}.kubeconfig", within.name())), Some(directory))
        }
    };
    files::write_private(&path, text, force)?;
    Ok(KubeconfigCopy { path, _directory: directory })
}

/// A cache directory for this cluster or network alone. kubectl keys its discovery cache by the server's address, which clusters
/// of other networks may share.
fn kubectl_cache(within: &TargetScope) -> PathBuf {
    let home = env::var_os("HOME").map_or_else(env::temp_dir, PathBuf::from);
    let folder = match within {
        TargetScope::Cluster(_) => "tombolo",
        TargetScope::Network(_) => "tombolo-networks",
    };
    home.join(".kube/cache").join(folder).join(within.name())
}

impl Drop for KubeconfigCopy {
    fn drop(&mut self) {
        // An error cannot be reported any more.
        let _ = std::fs::remove_file(&self.path);
    }
}
