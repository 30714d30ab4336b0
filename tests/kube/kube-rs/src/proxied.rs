//! A client that says user and password of its proxy, which kube does not take out of `proxy-url`.

use std::error::Error;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{HeaderValue, Uri};
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt;
use kube::{Client, Config};
use tower::{BoxError, Service, ServiceBuilder};

use crate::Failure;

/// A client with kube's own parts around a connector of its own.
pub fn client(config: Config, proxy: Uri) -> Result<Client, Failure> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let authority = proxy.authority().ok_or("a proxy has a host")?.as_str().to_owned();
    let (credential, _) = authority.rsplit_once('@').ok_or("a proxy with a credential")?;
    match proxy.scheme_str() {
        Some("http") => {
            let basic = HeaderValue::from_str(&format!("Basic {}", BASE64.encode(credential)))?;
            through(config, Tunnel::new(proxy, tcp).with_auth(basic))
        }
        Some("socks5") => {
            let (user, password) = credential.split_once(':').ok_or("a user and a password")?;
            through(config, SocksV5::new(proxy, tcp).with_auth(user.to_owned(), password.to_owned()))
        }
        other => Err(format!("no connector for a proxy by {other:?}").into()),
    }
}

fn through<H>(config: Config, connector: H) -> Result<Client, Failure>
where
    H: Service<Uri> + Clone + Send + Sync + 'static,
    H::Response: Connection + Read + Write + Send + Unpin + 'static,
    H::Future: Send + 'static,
    H::Error: Error + Send + Sync + 'static,
{
    let https = config.rustls_https_connector_with_connector(connector)?;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .map_err(BoxError::from)
        .service(hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(https));
    Ok(Client::new(service, config.default_namespace))
}
