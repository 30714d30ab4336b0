//! `tombolo ca issue`: certificates for servers, agents, callers, administrators and peers.

use proto::spiffe::AgentId;
use trust::{Role, Subject};

use super::leaf::{IssuedPair, LeafError, PairPaths};
use super::metadata::{self, MetadataError};
use super::paths::{self, certificate_use, key_use};
use crate::args::{IssueAdmin, IssueAgent, IssueCaller, IssuePeer, IssueServer, Placement};
use crate::files::{Existing, WriteError};
use crate::names::{Label, NoRandomness, ServerName, User, Validity};

/// The error if no certificate was issued.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IssueError {
    #[error(
        "{asked} is longer than the {max} that a certificate for {role} may be valid; ask for less with --validity"
    )]
    Validity { role: Role, asked: Validity, max: Validity },
    #[error("no id can be made of the name {0}; give one with --id")]
    NoId(ServerName),
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
    #[error(transparent)]
    Record(#[from] MetadataError),
    #[error(transparent)]
    Leaf(#[from] LeafError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Issues a server certificate for the gateway and the tunnel listener, with the SPIFFE URI that agents require.
pub(crate) fn issue_server(args: &IssueServer) -> Result<Vec<String>, IssueError> {
    let mut names = args.names.clone();
    names.extend(args.suffix.iter().flat_map(|suffix| suffix.names()));
    let id = match (&args.id, args.names.first()) {
        (Some(id), _) => id.clone(),
        (None, Some(first)) => {
            Label::like(&first.to_string()).ok_or_else(|| IssueError::NoId(first.clone()))?
        }
        // clap requires at least one name.
        (None, None) => Label::random()?,
    };
    let name = args.id.as_ref().map_or_else(|| "server".to_owned(), |id| format!("{id}-server"));
    let (_, mut lines) = issue(&args.placement, Subject::Server { id, names }, &name)?;
    lines.push(
        "next: give agents server-ca.crt, and issue their certificates with `tombolo ca issue agent`"
            .to_owned(),
    );
    Ok(lines)
}

/// Issues an agent certificate. Its only name is a SPIFFE URI with the cluster.
pub(crate) fn issue_agent(args: &IssueAgent) -> Result<Vec<String>, IssueError> {
    let cluster = &args.cluster;
    let id = args.id.clone().map_or_else(Label::random, Ok)?;
    // A dot is in no label, so CLUSTER.ID cannot be the name of another cluster.
    let name =
        args.id.as_ref().map_or_else(|| format!("{cluster}-agent"), |id| format!("{cluster}.{id}-agent"));
    let agent = AgentId::new(cluster.clone(), id.as_str()).ok_or(NoRandomness)?;
    let uri = agent.uri(metadata::trust_domain(&args.placement.dir)?.as_str());
    let (_, mut lines) = issue(&args.placement, Subject::Agent(agent), &name)?;
    lines.push(format!("names {uri}"));
    Ok(lines)
}

/// Issues a caller certificate with a user name and groups.
pub(crate) fn issue_caller(args: &IssueCaller) -> Result<Vec<String>, IssueError> {
    let subject = Subject::Caller { user: args.user.clone(), groups: args.groups.clone() };
    let name = format!("{}-caller", file_name(&args.user));
    let (written, mut lines) = issue(&args.placement, subject, &name)?;
    lines.push(format!(
        "next: tombolo kubeconfig --gateway https://HOST:8443 --ca {} --cert {} --key {} --cluster CLUSTER",
        paths::root_certificate(&args.placement.dir, Role::Server).display(),
        written.certificate.display(),
        written.key.display(),
    ));
    Ok(lines)
}

/// Issues an administrator certificate with the name to which server.yaml gives a role.
pub(crate) fn issue_admin(args: &IssueAdmin) -> Result<Vec<String>, IssueError> {
    let subject = Subject::Admin { name: args.name.clone() };
    let (written, mut lines) = issue(&args.placement, subject, &format!("{}-admin", args.name))?;
    lines.push(format!(
        "next: give {} a role in admin.tcp.roles of server.yaml, and ask with tombolo cluster list --server https://HOST:9443 --ca {} --cert {} --key {}",
        args.name,
        paths::root_certificate(&args.placement.dir, Role::Server).display(),
        written.certificate.display(),
        written.key.display(),
    ));
    Ok(lines)
}

/// Issues the certificate that a server shows when it dials the other servers.
pub(crate) fn issue_peer(args: &IssuePeer) -> Result<Vec<String>, IssueError> {
    let IssuePeer { placement, id } = args;
    let (_, mut lines) = issue(placement, Subject::Peer { id: id.clone() }, &format!("{id}-peer"))?;
    lines.push(format!(
        "next: name both in `peering` of the server.yaml with serverId {id}, and {} as peerCAFile of every server",
        paths::root_certificate(&placement.dir, Role::Peer).display(),
    ));
    Ok(lines)
}

fn issue(
    placement: &Placement,
    subject: Subject,
    name: &str,
) -> Result<(PairPaths, Vec<String>), IssueError> {
    let role = subject.role();
    let (validity, existing) = validity_and_existing(role, placement)?;
    metadata::trust_domain(&placement.dir)?;
    let pair = IssuedPair::issue(&placement.dir, subject, validity)?;
    let written = pair.write(placement.out.as_deref().unwrap_or(&placement.dir), name, existing)?;
    let lines = summary(&written, role, validity);
    Ok((written, lines))
}

/// The validity and what happens to existing files, from the flags or the defaults of the role.
///
/// # Errors
/// A validity that is longer than the role allows.
pub(super) fn validity_and_existing(
    role: Role,
    placement: &Placement,
) -> Result<(Validity, Existing), IssueError> {
    let asked = placement.validity.unwrap_or_else(|| validity_default(role));
    let max = validity_max(role);
    if asked > max {
        return Err(IssueError::Validity { role, asked, max });
    }
    Ok((asked, if placement.force { Existing::Replace } else { Existing::Keep }))
}

/// The validity of a certificate of this role without --validity.
///
/// Daemons get enough time for a renewal by hand, people get less.
fn validity_default(role: Role) -> Validity {
    match role {
        Role::Server | Role::Agent | Role::Peer => Validity::days(90),
        Role::Caller | Role::Admin => Validity::days(30),
    }
}

/// The longest validity that is issued for this role.
fn validity_max(role: Role) -> Validity {
    match role {
        // Apple's TLS refuses servers' certificates of more than 825 days, counted from the backdated beginning,
        // also from private roots: <https://support.apple.com/103769>.
        Role::Server => Validity::days(824),
        Role::Agent | Role::Caller | Role::Admin | Role::Peer => Validity::days(365),
    }
}

/// The user name as part of a file name. Characters that could leave the directory or need quoting become `-`.
fn file_name(user: &User) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._@+".contains(c);
    user.as_str().chars().map(|c| if plain(c) { c } else { '-' }).collect()
}

fn summary(paths: &PairPaths, role: Role, validity: Validity) -> Vec<String> {
    let (certificate, key) = (paths.certificate.display(), paths.key.display());
    vec![
        format!("wrote {certificate} (valid {validity}; for {})", certificate_use(role)),
        format!("wrote {key} (private; for {})", key_use(role)),
    ]
}
