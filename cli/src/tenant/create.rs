//! `tombolo tenant create`: makes a control plane, or goes on with one that an earlier run has begun.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use super::bootstrap::{self, BootstrapError};
use super::chart::{self, ChartError, ChartFolder, ServiceAddresses};
use super::created::CreatedTenant;
use super::embedded::CONTROL_PLANE;
use super::facts::{self, ControlPlaneNode, OwnNamespace};
use super::host::{Host, HostError};
use super::objects;
use super::parts::{self, PartsError};
use super::pki::{Files, PkiError, SECRETS, Secrets, TenantRoots};
use super::plan::{self, Refused, Wishes};
use super::record::{RecordError, TenantRecord};
use super::roots::{self, RootsError, StoredRoots};
use crate::args::TenantCreate;
use crate::files::{self, Existing, NewFile, WriteError};
use crate::print;
use crate::yaml;

/// A new namespace gets its ServiceAccount, without which no pod is admitted, within so many tries.
const ACCOUNT_TRIES: u32 = 20;
const ACCOUNT_PAUSE: Duration = Duration::from_millis(500);

/// The files of `--output`, beside the chart's folder.
const ROOTS_FILE: &str = "tenant-roots.yaml";
const SECRETS_FILE: &str = "secrets.yaml";
const VALUES_FILE: &str = "values.yaml";
const NAMESPACE_FILE: &str = "namespace.yaml";

/// A tenant was not created, or is not ready yet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Chart(#[from] ChartError),
    #[error(transparent)]
    Roots(#[from] RootsError),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    Parts(#[from] PartsError),
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("the objects could not be written as YAML")]
    Yaml(#[from] serde_saphyr::SerializeError),
    #[error(
        "the host cluster does not admit the pods of a control plane, which use the host's network and ports; allow that in the namespace {0}, or \
         choose another host cluster"
    )]
    NotAdmitted(String, #[source] HostError),
    #[error("cannot print")]
    Print(#[from] std::io::Error),
}

/// Creates a tenant, and returns the lines that say what comes next.
///
/// # Errors
/// [`CreateError`]
pub(crate) fn create(args: &TenantCreate) -> Result<Vec<String>, CreateError> {
    let begun = Instant::now();
    let name = args.tenant.name.as_str();
    let host = Host::find(&args.tenant.host, name)?;
    let chart = ChartFolder::new(args.chart.as_deref())?;
    let values = chart::read_values(&args.values)?;
    let backup = args.roots.as_deref().map(|file| roots::read_backup(&host, name, file)).transpose()?;
    let facts = facts::read(&host, name)?;
    let tenant = plan::plan(&wishes(args, &values), &facts)?;
    admit(&host, &tenant, facts.own == OwnNamespace::Absent)?;
    host.apply(&objects::services(&tenant))?;
    let services = ServiceAddresses::read(&host, &tenant)?;
    print::note(&format!(
        "the tenant {name} has the ports {} to {}",
        tenant.ports.first(),
        tenant.ports.last()
    ))?;

    let site = Site { args, host: &host, tenant: &tenant, services: &services, nodes: &facts.nodes };
    if let Some(folder) = &args.output {
        return site.write(folder, backup, values);
    }
    let roots = roots::find_or_make(&host, name, backup, SystemTime::now())?;
    let secrets = site.secrets(&roots)?;
    host.apply(&secret_objects(name, &secrets))?;
    let mut values = values;
    chart::merge(&mut values, &site.values(&secrets));
    host.install(chart.chart(), &[chart.values(&values)?])?;
    parts::wait(&host, args.timeout.duration())?;
    let created = CreatedTenant { host, record: tenant, roots };
    bootstrap::make(&created, args.tenant.server.as_deref())?;
    Ok(vec![
        format!("the tenant {name} is ready after {} s", begun.elapsed().as_secs()),
        format!("next: tombolo tenant kubeconfig {name} --output {name}.conf"),
        format!("next: tombolo tenant join-command {name}"),
    ])
}

fn wishes<'a>(args: &'a TenantCreate, values: &Value) -> Wishes<'a> {
    let class = |etcd: &str| match &args.storage_class {
        Some(class) => class.clone(),
        None => values["etcd"][etcd]["storageClassName"].as_str().unwrap_or_default().to_owned(),
    };
    Wishes {
        name: args.tenant.name.as_str(),
        members: args.members,
        ports: args.port_base,
        service_network: args.service_network,
        pod_network: args.pod_network,
        storage_classes: [class("data"), class("event")],
    }
}

/// Makes the namespace, and asks whether it admits the pods. If it does not, a new namespace is removed again.
fn admit(host: &Host, tenant: &TenantRecord, is_new: bool) -> Result<(), CreateError> {
    let namespace = objects::namespace(tenant);
    if is_new {
        host.create(&namespace)?;
    } else {
        host.apply(&[namespace])?;
    }
    let Err(error) = try_pod(host, tenant) else { return Ok(()) };
    if is_new {
        host.kubectl(&["delete", "namespace", &tenant.name, "--wait=false"], None)?;
    }
    Err(CreateError::NotAdmitted(tenant.name.clone(), error))
}

fn try_pod(host: &Host, tenant: &TenantRecord) -> Result<(), HostError> {
    let pod = objects::trial_pod(tenant);
    for _ in 1..ACCOUNT_TRIES {
        match host.create_dry(&pod) {
            Err(HostError::Failed(error)) if error.to_string().contains("serviceaccount") => {
                sleep(ACCOUNT_PAUSE)
            }
            done => return done,
        }
    }
    host.create_dry(&pod)
}

/// A tenant whose addresses are known.
struct Site<'a> {
    args: &'a TenantCreate,
    host: &'a Host,
    tenant: &'a TenantRecord,
    services: &'a ServiceAddresses,
    nodes: &'a [ControlPlaneNode],
}

impl Site<'_> {
    /// The Secrets of an earlier run if all are there, or else new ones.
    fn secrets(&self, roots: &TenantRoots) -> Result<Secrets, CreateError> {
        match present_secrets(self.host)? {
            Some(secrets) => Ok(secrets),
            None => self.new_secrets(roots),
        }
    }

    fn new_secrets(&self, roots: &TenantRoots) -> Result<Secrets, CreateError> {
        let nodes = self.nodes.iter().map(|node| node.address).collect();
        let addresses = self.services.in_certificates(self.tenant, nodes);
        Ok(roots.secrets(&addresses, &self.services.url(self.tenant), SystemTime::now())?)
    }

    fn values(&self, secrets: &Secrets) -> Value {
        let TenantCreate { kubernetes_version, storage_class, .. } = self.args;
        chart::own_values(self.tenant, self.services, secrets, *kubernetes_version, storage_class.as_deref())
    }

    /// Writes everything for GitOps, and installs nothing.
    fn write(
        &self,
        folder: &Path,
        backup: Option<StoredRoots>,
        mut values: Value,
    ) -> Result<Vec<String>, CreateError> {
        files::create_private_directory(folder)?;
        let name = &self.tenant.name;
        let file = |name: &str| folder.join(name);
        let roots_file = file(ROOTS_FILE);
        let stored = roots::find_or_make_in_file(self.host, name, &roots_file, backup, SystemTime::now())?;
        let written = roots::object(name, &stored);
        let secrets = self.secrets(&stored.in_force())?;
        chart::merge(&mut values, &self.values(&secrets));
        let chart = match &self.args.chart {
            Some(chart) => chart.clone(),
            None => CONTROL_PLANE.write(folder)?,
        };
        let mut before = vec![objects::namespace(self.tenant)];
        before.extend(objects::services(self.tenant));
        let document = |objects: &[Value]| {
            let all = objects.iter().map(yaml::document).collect::<Result<Vec<_>, _>>();
            Ok::<_, CreateError>(all?.join("\n---\n") + "\n")
        };
        let private = |name: &str, text: String| NewFile::private(file(name), text);
        let all = vec![
            private(ROOTS_FILE, document(&[written])?),
            private(SECRETS_FILE, document(&secret_objects(name, &secrets))?),
            private(VALUES_FILE, chart::text(&values)?),
            private(NAMESPACE_FILE, document(&before)?),
        ];
        files::write_all(all, Existing::Replace)?;
        Ok(next_lines(name, folder, &chart))
    }
}

fn next_lines(name: &str, folder: &Path, chart: &Path) -> Vec<String> {
    let folder = folder.display();
    vec![
        format!(
            "wrote {folder}; {ROOTS_FILE} and {SECRETS_FILE} have keys in plain text, so encrypt them before they leave this machine"
        ),
        format!("next: kubectl apply -f {folder}/{ROOTS_FILE} -f {folder}/{SECRETS_FILE}"),
        format!(
            "next: helm upgrade --install control-plane {} --namespace {name} --values {folder}/{VALUES_FILE}",
            chart.display()
        ),
        format!("next, once it runs: tombolo tenant bootstrap {name}"),
    ]
}

/// The Secrets of all parts as objects.
pub(super) fn secret_objects(tenant: &str, secrets: &Secrets) -> Vec<Value> {
    let files = |files: &'static str, all: &Files| {
        objects::secret(tenant, files, all.iter().map(|(name, text)| (*name, text.as_str())))
    };
    secrets.iter().map(|(name, all)| files(name, all)).collect()
}

/// The Secrets of all parts as the host cluster has them; `None` if one is missing or incomplete.
fn present_secrets(host: &Host) -> Result<Option<Secrets>, HostError> {
    let mut all = Secrets::new();
    for name in SECRETS {
        let secret = host.get(&["secret", name])?;
        let mut files = Files::new();
        for file in super::pki::files_of(name) {
            match objects::file_of(&secret, file) {
                Some(text) => files.insert(file, text),
                None => return Ok(None),
            };
        }
        all.insert(name, files);
    }
    Ok(Some(all))
}
