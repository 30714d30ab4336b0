//! Exchanges what the agents of a tenant have of its CAs and keys: the CAs in their kubeconfig, and their token.

use super::agent_token::{self, TOKEN, TokenError};
use super::agents::KUBECONFIG;
use super::chart::{ChartError, ServiceAddresses};
use super::created::{CreatedTenant, TenantError};
use super::host::HostError;
use super::inside::InsideError;
use super::kubeconfig_text;
use super::objects::{SERVICE_ACCOUNT, file_of, secret};
use crate::kubeconfig::reader::Kubeconfig;
use crate::names::{RotationStep, WaitTime};
use crate::print;
use crate::runtime::{self, RuntimeError};

/// The agents in the host cluster.
const AGENTS: &str = "deployment/tunnel-agent";

/// The Secret whose token the agents have while that of [`TOKEN`] is exchanged.
const TOKEN_MEANWHILE: &str = "tunnel-agent-token-meanwhile";

/// The agents do not have what they need.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentAccessError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Tenant(#[from] TenantError),
    #[error(transparent)]
    Inside(#[from] InsideError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Chart(#[from] ChartError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(
        "the Secret {secret} of the host cluster has no kubeconfig with a token in {file}; run `tombolo tenant register` again",
        secret = KUBECONFIG.0, file = KUBECONFIG.1
    )]
    NoToken,
    #[error("cannot print")]
    Print(#[from] std::io::Error),
}

/// Gives the agents what this step is about, if the tenant has agents. It returns once they use it.
///
/// # Errors
/// [`AgentAccessError`]
pub(super) fn exchange(
    tenant: &CreatedTenant,
    server: Option<&str>,
    step: RotationStep,
    limit: WaitTime,
) -> Result<(), AgentAccessError> {
    let present = tenant.host.get(&["secret", KUBECONFIG.0])?;
    if present.is_null() {
        return Ok(());
    }
    print::note("giving the agents their part")?;
    let present = file_of(&present, KUBECONFIG.1).and_then(|text| token_in(&text));
    let agents = Agents { tenant, server, limit };
    match step {
        RotationStep::Trust => agents.take(&present.ok_or(AgentAccessError::NoToken)?)?,
        RotationStep::Issue => agents.exchange_token()?,
        // They have the new token, and need not be restarted to forget a CA.
        RotationStep::Finish => return agents.write(&present.ok_or(AgentAccessError::NoToken)?),
    }
    Ok(())
}

struct Agents<'a> {
    tenant: &'a CreatedTenant,
    /// The URL of the tenant's API server, if it is not reached by kubectl.
    server: Option<&'a str>,
    limit: WaitTime,
}

impl Agents<'_> {
    /// Exchanges the token. An API server takes the token of a Secret only as long as it is there, so the agents have another one
    /// meanwhile.
    fn exchange_token(&self) -> Result<(), AgentAccessError> {
        let key = agent_token::key_id(&self.tenant.roots.accounts);
        let (present, meanwhile) = runtime::run(async |scope| {
            let mut api = self.tenant.connect(self.server, scope).await?;
            let present = agent_token::wait(&mut api, TOKEN).await?;
            api.apply(&agent_token::secret(TOKEN_MEANWHILE)).await?;
            let meanwhile = agent_token::wait(&mut api, TOKEN_MEANWHILE).await?;
            Ok::<_, AgentAccessError>((present, meanwhile))
        })??;
        let new = if agent_token::key_id_in(&present).as_deref() == Some(key.as_str()) {
            present
        } else {
            self.take(&meanwhile)?;
            runtime::run(async |scope| {
                let mut api = self.tenant.connect(self.server, scope).await?;
                api.delete(&agent_token::path(TOKEN)).await?;
                api.apply(&agent_token::secret(TOKEN)).await?;
                Ok::<_, AgentAccessError>(agent_token::wait(&mut api, TOKEN).await?)
            })??
        };
        self.take(&new)?;
        runtime::run(async |scope| {
            let mut api = self.tenant.connect(self.server, scope).await?;
            Ok(api.delete(&agent_token::path(TOKEN_MEANWHILE)).await?)
        })?
    }

    /// Writes their kubeconfig, and restarts the agents one after the other.
    fn take(&self, token: &str) -> Result<(), AgentAccessError> {
        self.write(token)?;
        let host = &self.tenant.host;
        if host.get(&[AGENTS])?.is_null() {
            return Ok(());
        }
        host.kubectl(&["rollout", "restart", AGENTS], None)?;
        let limit = format!("--timeout={}s", self.limit.duration().as_secs());
        host.kubectl(&["rollout", "status", AGENTS, &limit], None)?;
        Ok(())
    }

    fn write(&self, token: &str) -> Result<(), AgentAccessError> {
        let CreatedTenant { host, record, roots } = self.tenant;
        let server = ServiceAddresses::read(host, record)?.url(record);
        let ca = roots.cluster.trusted_pem();
        let kubeconfig = kubeconfig_text::with_token(&server, &ca, SERVICE_ACCOUNT, token);
        host.apply(&[secret(&record.name, KUBECONFIG.0, [(KUBECONFIG.1, kubeconfig.as_str())])])?;
        Ok(())
    }
}

fn token_in(kubeconfig: &str) -> Option<String> {
    Kubeconfig::parse(kubeconfig).ok()?.select(None).ok()?.user?.token.clone()
}
