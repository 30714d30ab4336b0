//! `tombolo token`: tokens with which agents enroll.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use proto::admin::{CreateTokenRequest, CreateTokenResponse, Token};

use crate::admin::{Admin, AdminError};
use crate::args::{TokenCreate, TokenList, TokenOutput, TokenRevoke};
use crate::print;
use crate::runtime::{self, RuntimeError};

/// The error if no token was created, listed or revoked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokensError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Admin(#[from] AdminError),
}

/// Creates a token, and formats it as instructions, as bare text, or as a Secret.
pub(crate) fn create(args: &TokenCreate) -> Result<String, TokensError> {
    let ttl = prost_types::Duration { seconds: args.ttl.duration().whole_seconds(), nanos: 0 };
    let request = CreateTokenRequest { cluster: args.cluster.to_string(), ttl: Some(ttl) };
    let made = runtime::run(async |scope| {
        Admin::connect(args.server.endpoint(), scope).await?.create_token(request).await
    })??;
    Ok(match args.output {
        None => instructions(args, &made),
        Some(TokenOutput::Token) => format!("{}\n", made.token),
        Some(TokenOutput::Manifest) => manifest(args, &made),
    })
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

fn instructions(args: &TokenCreate, made: &CreateTokenResponse) -> String {
    let (cluster, ttl) = (&args.cluster, args.ttl);
    let CreateTokenResponse { token, enrollment_address, pins, .. } = made;
    let pin = pins.first().map_or("", String::as_str);
    format!(
        "# A token for one agent of cluster {cluster}. It is valid for {ttl} and is shown once.\n\
         # On the agent's machine, type `(umask 077; cat > token)`, paste this line and end with Ctrl-D:\n\
         {token}\n\
         # Then start the agent, with the address at which it reaches the server:\n\
         tunnel-agent --cluster {cluster} --servers HOST:8443 --enrollment-server {enrollment_address} \\\n  \
         --enrollment-pin {pin} \\\n  \
         --enrollment-token-file token\n"
    )
}

/// The name of the Secret that the profiles of `tombolo rbac` let an agent read.
const SECRET: &str = "tunnel-agent";

/// The namespace of those profiles.
const NAMESPACE: &str = "tombolo";

/// A Secret with everything that a new agent needs to enroll.
fn manifest(args: &TokenCreate, made: &CreateTokenResponse) -> String {
    let CreateTokenResponse { token, enrollment_address, pins, .. } = made;
    let data = [
        ("token", token.as_str()),
        ("pin", pins.first().map_or("", String::as_str)),
        ("server", enrollment_address),
    ];
    let data: String =
        data.iter().map(|(name, text)| format!("  {name}: {}\n", BASE64.encode(text))).collect();
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {SECRET}\n  namespace: {NAMESPACE}\n  labels:\n    \
         tombolo.dev/cluster: {}\ntype: Opaque\ndata:\n{data}",
        args.cluster
    )
}
