//! `tombolo tenant register`: makes a tenant a cluster of a tunnel-server, with agents as pods of the host cluster.

use proto::admin::{CreateClusterRequest, Description, Texts, UpdateClusterRequest};

use super::agent_token::{self, TOKEN, TokenError};
use super::agents::{self, CallersError, KUBECONFIG};
use super::chart::{self, ChartError, ChartFolder, ServiceAddresses};
use super::created::{CreatedTenant, TenantError};
use super::embedded::AGENT;
use super::host::HostError;
use super::inside::InsideError;
use super::kubeconfig_text;
use super::objects;
use crate::admin::{Admin, AdminError};
use crate::args::TenantRegister;
use crate::print;
use crate::runtime::{self, RuntimeError};
use crate::site::NewSite;

/// A tenant was not registered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegisterError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Tenant(#[from] TenantError),
    #[error(transparent)]
    Chart(#[from] ChartError),
    #[error(transparent)]
    Callers(#[from] CallersError),
    #[error(transparent)]
    Inside(#[from] InsideError),
    #[error("the tunnel-server does not take the tenant as a cluster")]
    Admin(#[from] AdminError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(
        "the agents of the tenant {tenant} are installed but not connected within {limit}; see `kubectl --namespace {tenant} logs \
         deployment/tunnel-agent`"
    )]
    NotConnected {
        /// The name of the tenant.
        tenant: String,
        /// The limit for the wait.
        limit: crate::names::WaitTime,
        /// The reason that helm gives.
        #[source]
        source: HostError,
    },
    #[error("cannot print")]
    Print(#[from] std::io::Error),
}

/// Registers a tenant, or registers it again with other callers.
///
/// # Errors
/// [`RegisterError`]
pub(crate) fn register(args: &TenantRegister) -> Result<Vec<String>, RegisterError> {
    let name = args.name.as_str();
    let inside = agents::inside(args)?;
    let tenant = CreatedTenant::find(&args.host, name)?;
    let chart = ChartFolder::of(&AGENT, args.chart.as_deref())?;
    let mut values = chart::read_values(&args.values)?;
    let advertise = tenant.api_servers()?.into_iter().map(|(_, address)| address.to_string()).collect();
    let (site, token) = runtime::run(async |scope| {
        let mut admin = Admin::connect(args.admin.endpoint(), scope).await?;
        let mut api = tenant.connect(None, scope).await?;
        create_cluster(&mut admin, name, advertise).await?;
        for object in &inside {
            api.apply(object).await?;
        }
        let token = agent_token::wait(&mut api, TOKEN).await?;
        let site = NewSite::gather(&mut admin, args.name.clone(), args.token_ttl, &args.servers).await?;
        Ok::<_, RegisterError>((site, token))
    })??;
    print::note(&format!("the cluster {name} is known to the tunnel-server; installing its agents"))?;

    let CreatedTenant { host, record, roots } = tenant;
    let server = ServiceAddresses::read(&host, &record)?.url(&record);
    let ca = roots.cluster.trusted_pem();
    let kubeconfig = kubeconfig_text::with_token(&server, &ca, objects::SERVICE_ACCOUNT, &token);
    host.apply(&[
        objects::service_account(name),
        objects::secret(name, KUBECONFIG.0, [(KUBECONFIG.1, kubeconfig.as_str())]),
    ])?;
    chart::merge(&mut values, &agents::values(args, &site));
    let installed = host.install_agents(chart.chart(), &chart.values(&values)?, args.timeout);
    installed.map_err(|source| RegisterError::NotConnected {
        tenant: name.to_owned(),
        limit: args.timeout,
        source,
    })?;
    Ok(vec![
        format!("the tenant {name} is a cluster of the tunnel-server, and its agents are connected"),
        format!("next: tombolo kubeconfig --cluster {name} …, as for every cluster"),
    ])
}

/// Creates the cluster, or replaces the addresses that its agents may advertise.
async fn create_cluster(admin: &mut Admin, name: &str, advertise: Vec<String>) -> Result<(), AdminError> {
    if admin.list(vec![name.to_owned()]).await.is_ok_and(|found| !found.is_empty()) {
        let advertise = Some(Texts { texts: advertise });
        let request =
            UpdateClusterRequest { name: name.to_owned(), advertise, ..UpdateClusterRequest::default() };
        return admin.update_cluster(request).await;
    }
    let description = Some(Description { advertise, ..Description::default() });
    admin.create_cluster(CreateClusterRequest { name: name.to_owned(), description }).await
}
