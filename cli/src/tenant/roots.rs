//! The Secret with a tenant's CAs and its ServiceAccount key. It is made once, and changes only when all of them are exchanged in steps.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rcgen::KeyPair;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::Value;
use trust::Pin;

use super::host::{Host, HostError};
use super::objects::{ROOT_CA, file_of, secret};
use super::pki::{PkiError, TenantAuthority, TenantRoots};
use super::rotation::Rotation;
use crate::files::{self, ReadError};
use crate::names::RotationStep;

/// The name of the Secret.
pub(super) const ROOTS: &str = "tenant-roots";

/// The file in it that says how far an exchange of all CAs has come.
const ROTATION: &str = "rotation.json";

/// The names of the files of present and next CAs begin so.
const PRESENT: &str = "";
const NEXT: &str = "next-";

/// The CAs of a tenant as they are stored.
pub(super) struct StoredRoots {
    pub(super) present: TenantRoots,
    /// Those that follow, and how far the exchange has come.
    pub(super) next: Option<(TenantRoots, Rotation)>,
}

/// The CAs of a tenant cannot be read, or must not be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RootsError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{0} has no Secret {ROOTS}")]
    NoRoots(PathBuf),
    #[error(
        "{0} has the CAs of the tenant {1}; two tenants with one CA would let each other's administrators in"
    )]
    OfAnother(PathBuf, String),
    #[error(
        "the host cluster has other CAs of the tenant {1} than {0}; leave the file away to go on with those that are there"
    )]
    OtherPresent(PathBuf, String),
    #[error(
        "the Secret {ROOTS} of the tenant {0} lacks {1}; restore it from a backup, because new CAs would shut out every worker"
    )]
    Incomplete(String, String),
    #[error("the tenant {0} has no Secret {ROOTS}; `tombolo tenant create {0}` makes it")]
    Missing(String),
    #[error(
        "the Secret {ROOTS} of the tenant {0} has no steps of an exchange in {ROTATION} that this release knows"
    )]
    UnknownRotation(String),
    #[error(
        "the Secret {ROOTS} of the tenant {0} has the CA of the host cluster: with the tenant's key one could be anybody in the host \
         cluster. Delete the Secret, and run `tombolo tenant create` again"
    )]
    CaOfTheHost(String),
}

impl StoredRoots {
    /// The CAs of a new tenant.
    fn new(present: TenantRoots) -> Self {
        Self { present, next: None }
    }

    /// The CAs that issue now, with those that are trusted beside them.
    pub(super) fn in_force(self) -> TenantRoots {
        let Self { present, next } = self;
        match next {
            None => present,
            Some((next, rotation)) => match rotation.step {
                RotationStep::Trust => present.beside(&next),
                RotationStep::Issue => next.beside(&present),
                RotationStep::Finish => next,
            },
        }
    }

    /// The progress of an exchange that is under way.
    pub(super) fn rotation(&self) -> Option<&Rotation> {
        self.next.as_ref().map(|(_, rotation)| rotation)
    }

    /// All files of the Secret.
    fn files(&self) -> Vec<(String, String)> {
        let mut files = files_of(PRESENT, &self.present);
        if let Some((next, rotation)) = &self.next {
            files.extend(files_of(NEXT, next));
            // A step and a time are always JSON.
            files.push((ROTATION.to_owned(), serde_json::to_string(rotation).unwrap_or_default()));
        }
        files
    }

    fn parse(tenant: &str, secret: &Value) -> Result<Self, RootsError> {
        let present = parse(tenant, secret, PRESENT)?;
        let Some(rotation) = file_of(secret, ROTATION) else { return Ok(Self::new(present)) };
        let rotation = serde_json::from_str(&rotation);
        let rotation = rotation.map_err(|_| RootsError::UnknownRotation(tenant.to_owned()))?;
        Ok(Self { present, next: Some((parse(tenant, secret, NEXT)?, rotation)) })
    }
}

/// The progress of an exchange in the Secret; `None` if no exchange is under way that this release knows.
pub(super) fn rotation_in(secret: &Value) -> Option<Rotation> {
    serde_json::from_str(&file_of(secret, ROTATION)?).ok()
}

/// The CAs that the host cluster has for this tenant; `None` if it has none.
///
/// # Errors
/// [`RootsError`]
pub(super) fn find(host: &Host, tenant: &str) -> Result<Option<TenantRoots>, RootsError> {
    Ok(find_stored(host, tenant)?.map(|(_, stored)| stored.in_force()))
}

/// The Secret as the host cluster has it, and the CAs in it.
fn find_stored(host: &Host, tenant: &str) -> Result<Option<(Value, StoredRoots)>, RootsError> {
    let found = host.get(&["secret", ROOTS])?;
    if found.is_null() {
        return Ok(None);
    }
    let stored = StoredRoots::parse(tenant, &found)?;
    refuse_shared(host, tenant, &stored)?;
    Ok(Some((found, stored)))
}

/// Refuses CAs of which one is that of the host cluster.
fn refuse_shared(host: &Host, tenant: &str, stored: &StoredRoots) -> Result<(), RootsError> {
    let of_host = host.get(&["configmap", ROOT_CA, "--namespace", "default"])?;
    let of_host = of_host["data"]["ca.crt"].as_str().unwrap_or_default();
    let next = stored.next.iter().map(|(next, _)| next);
    if std::iter::once(&stored.present).chain(next).any(|roots| is_shared(roots, of_host)) {
        return Err(RootsError::CaOfTheHost(tenant.to_owned()));
    }
    Ok(())
}

/// The CAs of a tenant that has been created.
///
/// # Errors
/// [`RootsError`]
pub(super) fn read(host: &Host, tenant: &str) -> Result<TenantRoots, RootsError> {
    find(host, tenant)?.ok_or_else(|| RootsError::Missing(tenant.to_owned()))
}

/// The CAs of a tenant as they are stored.
///
/// # Errors
/// [`RootsError`]
pub(super) fn read_stored(host: &Host, tenant: &str) -> Result<StoredRoots, RootsError> {
    let found = find_stored(host, tenant)?.ok_or_else(|| RootsError::Missing(tenant.to_owned()))?;
    Ok(found.1)
}

/// Changes the stored CAs. If somebody else has changed them since they were read, nothing is written.
///
/// # Errors
/// [`RootsError`] as one of the caller's, and the error of `change`.
pub(super) fn change<E: From<RootsError>>(
    host: &Host,
    tenant: &str,
    change: impl FnOnce(StoredRoots) -> Result<StoredRoots, E>,
) -> Result<(), E> {
    let found = find_stored(host, tenant)?.ok_or_else(|| RootsError::Missing(tenant.to_owned()))?;
    let (mut secret, stored) = found;
    let changed = change(stored)?;
    secret["data"] = object(tenant, &changed)["data"].take();
    Ok(host.replace(&secret).map_err(RootsError::from)?)
}

/// The CAs in a backup of the Secret. The host cluster has none of this tenant, or the same.
///
/// # Errors
/// [`RootsError`]
pub(super) fn read_backup(host: &Host, tenant: &str, file: &Path) -> Result<StoredRoots, RootsError> {
    let stored = read_file(tenant, file)?;
    refuse_shared(host, tenant, &stored)?;
    match find_stored(host, tenant)? {
        Some((_, present)) if present.files() != stored.files() => {
            Err(RootsError::OtherPresent(file.to_owned(), tenant.to_owned()))
        }
        Some(_) | None => Ok(stored),
    }
}

/// The CAs that the host cluster has, or else those of a backup, or else new ones. The host cluster has them before anybody else sees them.
///
/// # Errors
/// [`RootsError`]
pub(super) fn find_or_make(
    host: &Host,
    tenant: &str,
    backup: Option<StoredRoots>,
    now: SystemTime,
) -> Result<TenantRoots, RootsError> {
    if let Some(roots) = find(host, tenant)? {
        return Ok(roots);
    }
    let stored = or_new(backup, now)?;
    // Not applied: if somebody else has made it meanwhile, this fails.
    host.create(&object(tenant, &stored))?;
    Ok(stored.in_force())
}

/// The CAs of the host cluster, or else of a file that an earlier run has written, or else those of a backup, or else new ones.
///
/// # Errors
/// [`RootsError`]
pub(super) fn find_or_make_in_file(
    host: &Host,
    tenant: &str,
    file: &Path,
    backup: Option<StoredRoots>,
    now: SystemTime,
) -> Result<StoredRoots, RootsError> {
    if let Some((_, stored)) = find_stored(host, tenant)? {
        return Ok(stored);
    }
    if file.exists() { read_file(tenant, file) } else { or_new(backup, now) }
}

fn or_new(backup: Option<StoredRoots>, now: SystemTime) -> Result<StoredRoots, RootsError> {
    match backup {
        Some(stored) => Ok(stored),
        None => Ok(StoredRoots::new(TenantRoots::generate(now)?)),
    }
}

/// Reads a file with the Secret of this tenant, as YAML or JSON.
fn read_file(tenant: &str, file: &Path) -> Result<StoredRoots, RootsError> {
    let text = files::read(file)?;
    let object: Value = serde_saphyr::from_str(&text).map_err(|_| RootsError::NoRoots(file.to_owned()))?;
    let metadata = &object["metadata"];
    if object["kind"] != "Secret" || metadata["name"] != ROOTS {
        return Err(RootsError::NoRoots(file.to_owned()));
    }
    match metadata["namespace"].as_str() {
        Some(namespace) if namespace == tenant => StoredRoots::parse(tenant, &object),
        other => Err(RootsError::OfAnother(file.to_owned(), other.unwrap_or_default().to_owned())),
    }
}

/// The Secret of these CAs.
pub(super) fn object(tenant: &str, stored: &StoredRoots) -> Value {
    let files = stored.files();
    secret(tenant, ROOTS, files.iter().map(|(name, text)| (name.as_str(), text.as_str())))
}

fn files_of(prefix: &str, roots: &TenantRoots) -> Vec<(String, String)> {
    let pem = |authority: &TenantAuthority| (authority.certificate_pem().to_owned(), authority.key_pem());
    let [cluster, front_proxy, etcd] = [&roots.cluster, &roots.front_proxy, &roots.etcd].map(pem);
    let files = [
        ("ca.crt", cluster.0),
        ("ca.key", cluster.1),
        ("front-proxy-ca.crt", front_proxy.0),
        ("front-proxy-ca.key", front_proxy.1),
        ("etcd-ca.crt", etcd.0),
        ("etcd-ca.key", etcd.1),
        ("sa.key", roots.accounts.serialize_pem()),
    ];
    files.into_iter().map(|(name, text)| (format!("{prefix}{name}"), text)).collect()
}

fn parse(tenant: &str, secret: &Value, prefix: &str) -> Result<TenantRoots, RootsError> {
    let file = |name: &str| {
        let name = format!("{prefix}{name}");
        file_of(secret, &name).ok_or_else(|| RootsError::Incomplete(tenant.to_owned(), name))
    };
    let authority =
        |certificate, key| Ok::<_, RootsError>(TenantAuthority::parse(&file(certificate)?, &file(key)?)?);
    Ok(TenantRoots {
        cluster: authority("ca.crt", "ca.key")?,
        front_proxy: authority("front-proxy-ca.crt", "front-proxy-ca.key")?,
        etcd: authority("etcd-ca.crt", "etcd-ca.key")?,
        accounts: KeyPair::from_pem(&file("sa.key")?).map_err(PkiError::from)?,
        accounts_beside: String::new(),
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
        let rotation = Rotation::begun(RotationStep::Issue);
        let next = (TenantRoots::generate_next(SystemTime::UNIX_EPOCH).unwrap(), rotation.clone());
        let stored = StoredRoots { next: Some(next), ..stored() };
        let object = object("acme", &stored);

        let again = StoredRoots::parse("acme", &object).unwrap();

        assert_eq!(again.files(), stored.files());
        assert_eq!(again.rotation(), Some(&rotation));
        for file in ["ca.key", "front-proxy-ca.crt", "etcd-ca.key", "sa.key", "next-ca.crt", "next-sa.key"] {
            let mut without = object.clone();
            without["data"][file] = Value::Null;
            let message = StoredRoots::parse("acme", &without).err().unwrap().to_string();
            assert!(message.contains(&format!("lacks {file}")), "{message}");
        }
        let mut finished = object;
        finished["data"][ROTATION] = Value::Null;
        assert_eq!(StoredRoots::parse("acme", &finished).unwrap().rotation(), None);
    }

    /// The CA that issues stands first, and the other one is trusted until the last step.
    #[test]
    fn each_step_has_the_roots_that_issue_and_those_that_are_trusted() {
        for (step, issuer, trusted) in [
            (RotationStep::Trust, "present", vec!["present", "next"]),
            (RotationStep::Issue, "next", vec!["next", "present"]),
            (RotationStep::Finish, "next", vec!["next"]),
        ] {
            let present = stored().present;
            let next = TenantRoots::generate_next(SystemTime::UNIX_EPOCH).unwrap();
            let (old, new) = (files_of(PRESENT, &present), files_of(PRESENT, &next));
            let public = |roots: &TenantRoots| roots.accounts.public_key_pem();
            let (old_key, new_key) = (public(&present), public(&next));

            let stored = StoredRoots { present, next: Some((next, Rotation::begun(step))) };
            let in_force = stored.in_force();

            let of = |who: &str| if who == "present" { (&old, &old_key) } else { (&new, &new_key) };
            assert_eq!(&files_of(PRESENT, &in_force), of(issuer).0, "{step}");
            for (ca, place) in [(&in_force.cluster, 0), (&in_force.front_proxy, 2), (&in_force.etcd, 4)] {
                let all: String = trusted.iter().map(|who| of(who).0[place].1.as_str()).collect();
                assert_eq!(ca.trusted_pem(), all, "{step}");
            }
            let keys: String = trusted.iter().map(|who| of(who).1.as_str()).collect();
            assert_eq!(public(&in_force) + &in_force.accounts_beside, keys, "{step}");
        }
    }

    fn stored() -> StoredRoots {
        StoredRoots::new(TenantRoots::generate(SystemTime::UNIX_EPOCH).unwrap())
    }

    /// A backup is the Secret as kubectl prints it, of this tenant.
    #[test]
    fn a_backup_is_the_secret_of_the_same_tenant() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("backup.yaml");
        let stored = stored();
        let secret = object("acme", &stored);
        let read = |object: &Value, tenant: &str| {
            std::fs::write(&file, crate::yaml::document(object).unwrap()).unwrap();
            read_file(tenant, &file)
        };

        assert_eq!(read(&secret, "acme").ok().unwrap().files(), stored.files());

        let refused = |object: &Value, tenant: &str| read(object, tenant).err().unwrap().to_string();
        assert!(refused(&secret, "other").contains("has the CAs of the tenant acme"));
        let mut renamed = secret.clone();
        renamed["metadata"]["name"] = "apiserver".into();
        let mut list = secret;
        list["kind"] = "List".into();
        for other in [renamed, list] {
            assert!(refused(&other, "acme").contains("has no Secret tenant-roots"));
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
