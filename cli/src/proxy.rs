//! `tombolo proxy`: a kubeconfig of a cluster's own works from here, through the gateway, with nothing in it changed but its proxy.

mod door;
mod gateway;
pub(crate) mod rewritten;

use std::env;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::error::Unspecified;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use daemon::{Scope, chain};
use http::uri::Authority;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::args;
use crate::files::{self, ReadError, WriteError};
use crate::print;
use crate::runtime::{self, NoRuntime};
use crate::settings::{self, Credential, Settings, SettingsError};

use door::{Door, USER};
use gateway::{Gateway, Within};
use rewritten::Rewritten;

pub(crate) use rewritten::NotRewritten;

/// Random bytes of a run's secret.
const SECRET_BYTES: usize = 32;

/// Why there is no proxy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProxyError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Missing(#[from] settings::Missing),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Kubeconfig(#[from] NotRewritten),
    #[error("name the cluster to reach with --cluster, or its network with --network")]
    Nowhere,
    #[error("{0} is not an address of this machine alone: use 127.0.0.1:PORT or [::1]:PORT")]
    NotLocal(SocketAddr),
    #[error("cannot listen on {0}; choose another port with --listen, or 0 for a free one")]
    Listen(SocketAddr, #[source] io::Error),
    #[error("the system gave no random bytes")]
    Random(#[from] Unspecified),
    #[error("no directory for the kubeconfig can be made; name a file with --output")]
    Directory(#[source] io::Error),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("cannot print, or cannot wait for a signal")]
    Io(#[from] io::Error),
    #[error(transparent)]
    NoRuntime(#[from] NoRuntime),
}

/// Where the kubeconfig is; gone when this is dropped, because what stands in it is of no use then.
struct Kept {
    path: PathBuf,
    _directory: Option<tempfile::TempDir>,
}

/// `host:port` of the API server of a kubeconfig's context, or of its current one.
pub(crate) fn asked(kubeconfig: &str, context: Option<&str>) -> Result<Authority, NotRewritten> {
    rewritten::asked(kubeconfig, context)
}

/// The name for which the API server of a kubeconfig's context, or of its current one, has to show a certificate, if anybody looks.
pub(crate) fn verified(kubeconfig: &str, context: Option<&str>) -> Result<Option<String>, NotRewritten> {
    rewritten::verified(kubeconfig, context)
}

/// Serves until a signal ends it.
pub(crate) fn serve(order: args::Proxy) -> Result<(), ProxyError> {
    runtime::run(async |scope| served(order, scope).await)?
}

async fn served(order: args::Proxy, scope: &Scope) -> Result<(), ProxyError> {
    let args::Proxy {
        gateway,
        ca,
        cert,
        key,
        token_file,
        cluster,
        network,
        kubeconfig,
        context,
        listen,
        socks5,
        output,
        force,
    } = order;
    let within = match (cluster, network) {
        (Some(cluster), _) => Within::Cluster(cluster),
        (None, Some(network)) => Within::Network(network),
        (None, None) => return Err(ProxyError::Nowhere),
    };
    let credential = Credential::of(cert, key, token_file);
    let flags = Settings { gateway, certificate_authority: ca, credential, host_suffix: None };
    let settings = flags.or(Settings::of_environment()?).or(Settings::of_file()?);
    let gateway = Arc::new(Gateway {
        url: settings.the_gateway()?,
        authority: settings.the_authority()?,
        credential: settings.the_credential()?,
        within: within.clone(),
    });
    let text = files::read(&kubeconfig)?;
    if !listen.ip().is_loopback() {
        return Err(ProxyError::NotLocal(listen));
    }
    let listener = TcpListener::bind(listen).await.map_err(|error| ProxyError::Listen(listen, error))?;
    let address = listener.local_addr()?;
    let secret = secret()?;
    let scheme = if socks5 { "socks5" } else { "http" };
    let directory = kubeconfig.parent().unwrap_or_else(|| Path::new(""));
    let proxy = format!("{scheme}://{USER}:{secret}@{address}");
    let proxied = match &within {
        Within::Cluster(_) => rewritten::with_proxy(&text, directory, context.as_deref(), &proxy, None),
        Within::Network(_) => rewritten::with_proxy_for_all(&text, directory, context.as_deref(), &proxy),
    };
    let Rewritten { text, target } = proxied?;
    let kept = keep(&within, output, &text, force)?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let told = [
        format!("export KUBECONFIG={}", kept.path.display()),
        format!("export KUBECACHEDIR={}", cache(&within).display()),
    ];
    print::lines(&told)?;
    print::note(&format!("{within} is reached through {address} until Ctrl-C"))?;
    scope.spawn(tried(Arc::clone(&gateway), target, scope.clone()));
    let door = Arc::new(Door::new(&secret, gateway, scope.clone()));
    // All arms are cancel-safe: what is accepted is served by a task of the scope.
    tokio::select! {
        () = door.serve(listener) => {}
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
    }
    drop(kept);
    Ok(())
}

/// Says at once, and not by the first kubectl, if the cluster cannot be reached; it may as well come later.
async fn tried(gateway: Arc<Gateway>, target: Authority, scope: Scope) {
    if let Err(refused) = gateway.connect(&target, &scope).await {
        // Who does not read does not want to know.
        let _ = print::note(&format!("{target} cannot be reached now: {}", chain(&refused)));
    }
}

fn secret() -> Result<String, Unspecified> {
    let mut bytes = [0; SECRET_BYTES];
    aws_lc_rs::rand::fill(&mut bytes)?;
    Ok(BASE64.encode(bytes))
}

/// Writes the kubeconfig where only this user reads it.
fn keep(within: &Within, output: Option<PathBuf>, text: &str, force: bool) -> Result<Kept, ProxyError> {
    let (path, directory) = match output {
        Some(path) => (path, None),
        None => {
            let directory = tempfile::Builder::new().prefix("tombolo-").tempdir();
            let directory = directory.map_err(ProxyError::Directory)?;
            (directory.path().join(format!("{}.kubeconfig", within.name())), Some(directory))
        }
    };
    files::write_private(&path, text, force)?;
    Ok(Kept { path, _directory: directory })
}

/// A cache of the cluster's or the network's own: kubectl keys what it has discovered by the server's address alone, which clusters of
/// other networks may share.
fn cache(within: &Within) -> PathBuf {
    let home = env::var_os("HOME").map_or_else(env::temp_dir, PathBuf::from);
    let folder = match within {
        Within::Cluster(_) => "tombolo",
        Within::Network(_) => "tombolo-networks",
    };
    home.join(".kube/cache").join(folder).join(within.name())
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Nobody is left to tell.
        let _ = std::fs::remove_file(&self.path);
    }
}
