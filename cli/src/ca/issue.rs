//! `tombolo ca issue`: certificates for servers, agents, callers and administrators.

use proto::spiffe::AgentId;
use trust::{Role, Subject};

use super::leaf::{LeafError, Pair, Places};
use super::place;
use super::record::{self, RecordError};
use crate::args::{IssueAdmin, IssueAgent, IssueCaller, IssueServer, Placement};
use crate::files::{Existing, WriteError};
use crate::names::{Label, NoRandomness, ServerName, User, Validity};

/// Why no certificate was issued.
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
    Record(#[from] RecordError),
    #[error(transparent)]
    Leaf(#[from] LeafError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// One certificate for the gateway and for the listener of tunnels: all its names, and the URI that agents require.
pub(crate) fn issue_server(order: &IssueServer) -> Result<Vec<String>, IssueError> {
    let mut names = order.names.clone();
    names.extend(order.suffix.iter().flat_map(|suffix| suffix.names()));
    let id = match (&order.id, order.names.first()) {
        (Some(id), _) => id.clone(),
        (None, Some(first)) => {
            Label::like(&first.to_string()).ok_or_else(|| IssueError::NoId(first.clone()))?
        }
        // clap asks for one.
        (None, None) => Label::random()?,
    };
    let name = order.id.as_ref().map_or_else(|| "server".to_owned(), |id| format!("{id}-server"));
    let (_, mut lines) = issue(&order.placement, Subject::Server { id, names }, &name)?;
    lines.push(
        "next: give agents server-ca.crt, and issue their certificates with `tombolo ca issue agent`"
            .to_owned(),
    );
    Ok(lines)
}

/// A certificate whose one name says which cluster the agent speaks for.
pub(crate) fn issue_agent(order: &IssueAgent) -> Result<Vec<String>, IssueError> {
    let cluster = &order.cluster;
    let id = order.id.clone().map_or_else(Label::random, Ok)?;
    // A dot, which no label has: so no cluster's name can be taken for another's name with an id.
    let name =
        order.id.as_ref().map_or_else(|| format!("{cluster}-agent"), |id| format!("{cluster}.{id}-agent"));
    let agent = AgentId::new(cluster.clone(), id.as_str()).ok_or(NoRandomness)?;
    let uri = agent.uri(record::trust_domain(&order.placement.dir)?.as_str());
    let (_, mut lines) = issue(&order.placement, Subject::Agent(agent), &name)?;
    lines.push(format!("names {uri}"));
    Ok(lines)
}

/// A certificate that names a person or program and its groups.
pub(crate) fn issue_caller(order: &IssueCaller) -> Result<Vec<String>, IssueError> {
    let subject = Subject::Caller { user: order.user.clone(), groups: order.groups.clone() };
    let name = format!("{}-caller", file_name(&order.user));
    let (places, mut lines) = issue(&order.placement, subject, &name)?;
    lines.push(format!(
        "next: tombolo kubeconfig --gateway https://HOST:8443 --ca {} --cert {} --key {} --cluster CLUSTER",
        place::root_certificate(&order.placement.dir, Role::Server).display(),
        places.certificate.display(),
        places.key.display(),
    ));
    Ok(lines)
}

/// A certificate that names who runs the server.
pub(crate) fn issue_admin(order: &IssueAdmin) -> Result<Vec<String>, IssueError> {
    let subject = Subject::Admin { name: order.name.clone() };
    let (places, mut lines) = issue(&order.placement, subject, &format!("{}-admin", order.name))?;
    lines.push(format!(
        "next: give {} a role in admin.tcp.roles of server.yaml, and ask with tombolo clusters --server https://HOST:9443 --ca {} --cert {} --key {}",
        order.name,
        place::root_certificate(&order.placement.dir, Role::Server).display(),
        places.certificate.display(),
        places.key.display(),
    ));
    Ok(lines)
}

fn issue(placement: &Placement, subject: Subject, name: &str) -> Result<(Places, Vec<String>), IssueError> {
    let role = subject.role();
    let (validity, existing) = terms(role, placement)?;
    record::trust_domain(&placement.dir)?;
    let pair = Pair::issue(&placement.dir, subject, validity)?;
    let places = pair.write(placement.out.as_deref().unwrap_or(&placement.dir), name, existing)?;
    let lines = told(&places, role, validity);
    Ok((places, lines))
}

/// How long, and whether old files give way.
pub(super) fn terms(role: Role, placement: &Placement) -> Result<(Validity, Existing), IssueError> {
    let asked = placement.validity.unwrap_or_else(|| validity_default(role));
    let max = validity_max(role);
    if asked > max {
        return Err(IssueError::Validity { role, asked, max });
    }
    Ok((asked, if placement.force { Existing::Replace } else { Existing::Keep }))
}

/// How long a certificate of this role is valid where nothing is said.
///
/// Of a server and an agent, long enough not to be renewed in a hurry by hand; of a person, short.
fn validity_default(role: Role) -> Validity {
    match role {
        Role::Server | Role::Agent => Validity::days(90),
        Role::Caller | Role::Admin => Validity::days(30),
    }
}

/// The longest validity that is issued.
fn validity_max(role: Role) -> Validity {
    match role {
        // Apple's TLS refuses servers' certificates of more than 825 days, counted from the backdated beginning,
        // also from private roots: <https://support.apple.com/103769>.
        Role::Server => Validity::days(824),
        Role::Agent | Role::Caller | Role::Admin => Validity::days(365),
    }
}

/// The user as part of a file's name: what could lead elsewhere or need quoting becomes `-`.
fn file_name(user: &User) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._@+".contains(c);
    user.as_str().chars().map(|c| if plain(c) { c } else { '-' }).collect()
}

fn told(places: &Places, role: Role, validity: Validity) -> Vec<String> {
    let (certificate, key) = (places.certificate.display(), places.key.display());
    vec![
        format!("wrote {certificate} (valid {validity}; for {})", place::of_certificate(role)),
        format!("wrote {key} (private; for {})", place::of_key(role)),
    ]
}
