//! The Secret with a tenant's CAs and its ServiceAccount key, which is made once and never replaced.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rcgen::KeyPair;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::Value;
use trust::Pin;

use super::host::{Host, HostError};
use super::objects::{file_of, secret};
use super::pki::{PkiError, TenantAuthority, TenantRoots};
use crate::files::{self, ReadError};

/// The name of the Secret.
pub(super) const ROOTS: &str = "tenant-roots";

/// The CAs of a tenant cannot be read, or must not be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RootsError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{0} has no CAs of a tenant")]
    NoRoots(PathBuf),
    #[error(
        "the Secret {ROOTS} of the tenant {0} lacks {1}; restore it from a backup, because new CAs would shut out every worker"
    )]
    Incomplete(String, &'static str),
    #[error("the tenant {0} has no Secret {ROOTS}; `tombolo tenant create {0}` makes it")]
    Missing(String),
    #[error(
        "the Secret {ROOTS} of the tenant {0} has the CA of the host cluster: with the tenant's key one could be anybody in the host \
         cluster. Delete the Secret, and run `tombolo tenant create` again"
    )]
    CaOfTheHost(String),
}

/// The CAs that the host cluster has for this tenant; `None` if it has none.
///
/// # Errors
/// [`RootsError`]
pub(super) fn find(host: &Host, tenant: &str) -> Result<Option<TenantRoots>, RootsError> {
    let found = host.get(&["secret", ROOTS])?;
    if found.is_null() {
        return Ok(None);
    }
    let roots = parse(tenant, &found)?;
    let of_host = host.get(&["configmap", "kube-root-ca.crt", "--namespace", "default"])?;
    let of_host = of_host["data"]["ca.crt"].as_str().unwrap_or_default();
    if is_shared(&roots, of_host) {
        return Err(RootsError::CaOfTheHost(tenant.to_owned()));
    }
    Ok(Some(roots))
}

/// The CAs of a tenant that has been created.
///
/// # Errors
/// [`RootsError`]
pub(super) fn read(host: &Host, tenant: &str) -> Result<TenantRoots, RootsError> {
    find(host, tenant)?.ok_or_else(|| RootsError::Missing(tenant.to_owned()))
}

/// The CAs that the host cluster has, or else new ones, which it has before anybody else sees them.
///
/// # Errors
/// [`RootsError`]
pub(super) fn find_or_make(host: &Host, tenant: &str, now: SystemTime) -> Result<TenantRoots, RootsError> {
    if let Some(roots) = find(host, tenant)? {
        return Ok(roots);
    }
    let roots = TenantRoots::generate(now)?;
    // Not applied: if somebody else has made it meanwhile, this fails.
    host.create(&object(tenant, &roots))?;
    Ok(roots)
}

/// The CAs of the host cluster, or else of a file that an earlier run has written, or else new ones.
///
/// # Errors
/// [`RootsError`]
pub(super) fn find_or_make_in_file(
    host: &Host,
    tenant: &str,
    file: &Path,
    now: SystemTime,
) -> Result<TenantRoots, RootsError> {
    if let Some(roots) = find(host, tenant)? {
        return Ok(roots);
    }
    if !file.exists() {
        return Ok(TenantRoots::generate(now)?);
    }
    let text = files::read(file)?;
    let object: Value = serde_saphyr::from_str(&text).map_err(|_| RootsError::NoRoots(file.to_owned()))?;
    parse(tenant, &object)
}

/// The Secret of these CAs.
pub(super) fn object(tenant: &str, roots: &TenantRoots) -> Value {
    let keys = [roots.cluster.key_pem(), roots.front_proxy.key_pem(), roots.etcd.key_pem()];
    let accounts = roots.accounts.serialize_pem();
    let files = [
        ("ca.crt", roots.cluster.certificate_pem()),
        ("ca.key", &keys[0]),
        ("front-proxy-ca.crt", roots.front_proxy.certificate_pem()),
        ("front-proxy-ca.key", &keys[1]),
        ("etcd-ca.crt", roots.etcd.certificate_pem()),
        ("etcd-ca.key", &keys[2]),
        ("sa.key", &accounts),
    ];
    secret(tenant, ROOTS, files)
}

fn parse(tenant: &str, secret: &Value) -> Result<TenantRoots, RootsError> {
    let file = |name| file_of(secret, name).ok_or_else(|| RootsError::Incomplete(tenant.to_owned(), name));
    let authority =
        |certificate, key| Ok::<_, RootsError>(TenantAuthority::parse(&file(certificate)?, &file(key)?)?);
    Ok(TenantRoots {
        cluster: authority("ca.crt", "ca.key")?,
        front_proxy: authority("front-proxy-ca.crt", "front-proxy-ca.key")?,
        etcd: authority("etcd-ca.crt", "etcd-ca.key")?,
        accounts: KeyPair::from_pem(&file("sa.key")?).map_err(PkiError::from)?,
    })
}

/// Returns true if one of the tenant's CAs has the key of a CA in this bundle.
fn is_shared(roots: &TenantRoots, bundle_pem: &str) -> bool {
    let pins = |pem: &str| -> Vec<Pin> {
        CertificateDer::pem_slice_iter(pem.as_bytes()).flatten().filter_map(|ca| Pin::of_ca(&ca)).collect()
    };
    let of_host = pins(bundle_pem);
    let own = [&roots.cluster, &roots.front_proxy, &roots.etcd];
    own.iter().flat_map(|ca| pins(ca.certificate_pem())).any(|pin| of_host.contains(&pin))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn the_secret_has_all_that_is_needed_to_go_on() {
        let roots = TenantRoots::generate(SystemTime::UNIX_EPOCH).unwrap();
        let object = object("acme", &roots);

        let again = parse("acme", &object).unwrap();

        assert_eq!(again.cluster.certificate_pem(), roots.cluster.certificate_pem());
        assert_eq!(again.accounts.serialize_pem(), roots.accounts.serialize_pem());
        for file in ["ca.key", "front-proxy-ca.crt", "etcd-ca.key", "sa.key"] {
            let mut without = object.clone();
            without["data"][file] = Value::Null;
            let message = parse("acme", &without).err().unwrap().to_string();
            assert!(message.contains(&format!("lacks {file}")), "{message}");
        }
    }

    #[test]
    fn a_ca_of_the_host_is_noticed_among_several() {
        let roots = TenantRoots::generate(SystemTime::UNIX_EPOCH).unwrap();
        let other = TenantRoots::generate(SystemTime::UNIX_EPOCH).unwrap();
        let bundle = other.cluster.certificate_pem().to_owned() + roots.etcd.certificate_pem();

        assert!(is_shared(&roots, &bundle));
        assert!(!is_shared(&roots, other.cluster.certificate_pem()));
        assert!(!is_shared(&roots, ""));
    }
}
