//! `tombolo token`: tokens with which agents enroll.

use std::io;
use std::path::Path;

use proto::admin::Token;

use crate::admin::{Admin, AdminError};
use crate::args::{CHART_DEFAULT, SiteArgs, TokenCreate, TokenList, TokenOutput, TokenRevoke};
use crate::files::WriteError;
use crate::print;
use crate::runtime::{self, RuntimeError};
use crate::site::{self, NewSite, UnnamedCallers};

/// The error if no token was created, listed or revoked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokensError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error("the token was created, and could not be written")]
    Write(#[from] WriteError),
    #[error("{flag} has no effect on {output}; leave it out, or choose another --output")]
    NoEffect { flag: &'static str, output: &'static str },
    #[error("cannot print")]
    Print(#[from] io::Error),
}

/// Creates a token, and formats what its site needs: as shell commands, as files, or as the flags say.
pub(crate) fn create(args: TokenCreate) -> Result<String, TokensError> {
    let TokenCreate { cluster, ttl, output, dir, force, site: flags, server } = args;
    let form = SiteForm::choose(output, dir.as_deref());
    // Before the token is made, of which one is enough.
    if let Some(flag) = form.flag_without_effect(&flags) {
        return Err(TokensError::NoEffect { flag, output: form.as_str() });
    }
    let site = runtime::run(async |scope| {
        let mut admin = Admin::connect(server.endpoint(), scope).await?;
        NewSite::gather(&mut admin, cluster, ttl, &flags.servers).await
    })??;
    let note = |unnamed| site::note_on_callers(&flags, unnamed).map_or(Ok(()), print::note);
    Ok(match form {
        SiteForm::Directory(directory) => {
            let text = site::write(&flags, &site, directory, force)?;
            note(UnnamedCallers::Prefixed)?;
            text
        }
        SiteForm::Commands => {
            note(UnnamedCallers::Prefixed)?;
            site::commands(&flags, &site)
        }
        SiteForm::Helm => {
            note(UnnamedCallers::Nobody)?;
            site::helm(&flags, &site)
        }
        SiteForm::Token => format!("{}\n", site.token),
        SiteForm::AgentConfig => site::agent_config(&flags, &site),
        SiteForm::Manifest => site::secret(&site),
    })
}

/// The form in which a site gets what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SiteForm<'a> {
    Commands,
    Directory(&'a Path),
    Helm,
    Token,
    AgentConfig,
    Manifest,
}

impl<'a> SiteForm<'a> {
    /// clap refuses `--dir` together with `--output`.
    fn choose(output: Option<TokenOutput>, dir: Option<&'a Path>) -> Self {
        match (output, dir) {
            (None, None) => Self::Commands,
            (None, Some(directory)) => Self::Directory(directory),
            (Some(TokenOutput::Helm), _) => Self::Helm,
            (Some(TokenOutput::Token), _) => Self::Token,
            (Some(TokenOutput::AgentConfig), _) => Self::AgentConfig,
            (Some(TokenOutput::Manifest), _) => Self::Manifest,
        }
    }

    /// The form in an error message.
    fn as_str(self) -> &'static str {
        match self {
            Self::Commands => "the printed commands",
            Self::Directory(_) => "the files of --dir",
            Self::Helm => "-o helm",
            Self::Token => "-o token",
            Self::AgentConfig => "-o agent-config",
            Self::Manifest => "-o manifest",
        }
    }

    /// A flag that is given and is not part of this form.
    fn flag_without_effect(self, flags: &SiteArgs) -> Option<&'static str> {
        let (has_callers, has_role, has_servers, has_chart) = match self {
            Self::Commands | Self::Directory(_) => (true, true, true, false),
            Self::Helm => (true, true, true, true),
            Self::AgentConfig => (true, false, true, false),
            Self::Token | Self::Manifest => (false, false, false, false),
        };
        let SiteArgs { users, groups, cluster_role, servers, chart, values } = flags;
        [
            (has_callers, !users.is_empty(), "--user"),
            (has_callers, !groups.is_empty(), "--group"),
            (has_role, cluster_role.is_some(), "--cluster-role"),
            (has_servers, !servers.is_empty(), "--servers"),
            (has_chart, chart != CHART_DEFAULT, "--chart"),
            (has_chart, !values.is_empty(), "--set"),
        ]
        .into_iter()
        .find(|(has, is_given, _)| *is_given && !has)
        .map(|(.., flag)| flag)
    }
}

/// A table of the tokens, without their secrets.
pub(crate) fn list(args: &TokenList) -> Result<Vec<String>, TokensError> {
    let tokens =
        runtime::run(async |scope| Admin::connect(args.server.endpoint(), scope).await?.tokens().await)??;
    if tokens.is_empty() {
        return Ok(Vec::new());
    }
    let mut rows = vec![["ID", "CLUSTER", "EXPIRES", "USED BY"].map(str::to_owned)];
    rows.extend(tokens.into_iter().map(|token| {
        let Token { id, cluster, created: _, expires, used_by } = token;
        let expires = expires.map_or_else(print::none, |expires| expires.to_string());
        [id, cluster, expires, if used_by.is_empty() { "<nobody>".to_owned() } else { used_by }]
    }));
    Ok(print::columns(&rows))
}

/// Revokes a token that was not used yet.
pub(crate) fn revoke(args: &TokenRevoke) -> Result<Vec<String>, TokensError> {
    let id = args.id.clone();
    runtime::run(async |scope| Admin::connect(args.server.endpoint(), scope).await?.revoke_token(id).await)??;
    Ok(vec![format!("token {} is revoked", args.id)])
}
