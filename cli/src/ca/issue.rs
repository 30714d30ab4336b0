//! `tombolo ca issue`: certificates for servers, agents and callers.

use std::path::Path;

use rcgen::SanType;

use super::Role;
use super::authority::{Authority, AuthorityError};
use super::leaf::{self, Leaf, LeafError, Places};
use super::place;
use super::record::{self, RecordError};
use super::subject::{self, SubjectError};
use crate::args::{IssueAgent, IssueCaller, IssueServer, Placement};
use crate::files::{Existing, WriteError};
use crate::names::{GROUPS_MAX, Label, NoRandomness, ServerName, User, Validity};
use crate::pem;

/// Names beyond this make a certificate that costs every handshake.
const SERVER_NAMES_MAX: usize = 64;

/// Why no certificate was issued.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IssueError {
    #[error(
        "{asked} is longer than the {max} that a certificate for {role} may be valid; ask for less with --validity"
    )]
    Validity { role: &'static str, asked: Validity, max: Validity },
    #[error("more than {max} names in one certificate; issue several", max = SERVER_NAMES_MAX)]
    TooManyNames,
    #[error("more than {max} groups in one certificate", max = GROUPS_MAX)]
    TooManyGroups,
    #[error("no id can be made of the name {0}; give one with --id")]
    NoId(ServerName),
    #[error("the name {0} cannot stand in a certificate")]
    Name(String, #[source] rcgen::Error),
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Leaf(#[from] LeafError),
    #[error(transparent)]
    Subject(#[from] SubjectError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// One certificate for the gateway and for the listener of tunnels: all its names, and the URI that agents require.
pub(crate) fn issue_server(order: &IssueServer) -> Result<Vec<String>, IssueError> {
    let (validity, existing) = terms(Role::Server, &order.placement)?;
    let trust_domain = record::trust_domain(&order.placement.dir)?;
    let authority = Authority::load(&order.placement.dir, Role::Server)?;
    let Some(first) = order.names.first() else {
        return Err(IssueError::TooManyNames);
    };
    let id = match &order.id {
        Some(id) => id.clone(),
        None => Label::like(&first.to_string()).ok_or_else(|| IssueError::NoId(first.clone()))?,
    };
    let leaf = Leaf {
        role: Role::Server,
        common_name: id.to_string(),
        alternative_names: server_names(order, &format!("spiffe://{trust_domain}/server/{id}"))?,
    };
    let pair = leaf.issue(&authority, validity)?;
    let name = order.id.as_ref().map_or_else(|| "server".to_owned(), |id| format!("{id}-server"));
    let places = leaf::write(out(&order.placement), &name, &pair.certificate.pem(), &pair.key, existing)?;
    let mut lines = told(&places, Role::Server, validity);
    lines.push(
        "next: give agents server-ca.crt, and issue their certificates with `tombolo ca issue agent`"
            .to_owned(),
    );
    Ok(lines)
}

/// A certificate whose one name says which cluster the agent speaks for.
pub(crate) fn issue_agent(order: &IssueAgent) -> Result<Vec<String>, IssueError> {
    let (validity, existing) = terms(Role::Agent, &order.placement)?;
    let trust_domain = record::trust_domain(&order.placement.dir)?;
    let authority = Authority::load(&order.placement.dir, Role::Agent)?;
    let cluster = &order.cluster;
    let id = order.id.clone().map_or_else(Label::random, Ok)?;
    let uri = format!("spiffe://{trust_domain}/cluster/{cluster}/agent/{id}");
    let leaf = Leaf {
        role: Role::Agent,
        // For people only: the server reads the URI and nothing else.
        common_name: cluster.to_string(),
        alternative_names: vec![san_uri(&uri)?],
    };
    let pair = leaf.issue(&authority, validity)?;
    // A dot, which no label has: so no cluster's name can be taken for another's name with an id.
    let name =
        order.id.as_ref().map_or_else(|| format!("{cluster}-agent"), |id| format!("{cluster}.{id}-agent"));
    let places = leaf::write(out(&order.placement), &name, &pair.certificate.pem(), &pair.key, existing)?;
    let mut lines = told(&places, Role::Agent, validity);
    lines.push(format!("names {uri}"));
    Ok(lines)
}

/// A certificate that names a person or program and its groups.
pub(crate) fn issue_caller(order: &IssueCaller) -> Result<Vec<String>, IssueError> {
    let (validity, existing) = terms(Role::Caller, &order.placement)?;
    let authority = Authority::load(&order.placement.dir, Role::Caller)?;
    if order.groups.len() > GROUPS_MAX {
        return Err(IssueError::TooManyGroups);
    }
    let leaf =
        Leaf { role: Role::Caller, common_name: order.user.to_string(), alternative_names: Vec::new() };
    let pair = leaf.issue(&authority, validity)?;
    let certificate = subject::for_caller(&pair.certificate, &order.user, &order.groups, &authority.issuer)?;
    let name = format!("{}-caller", file_name(&order.user));
    let places =
        leaf::write(out(&order.placement), &name, &pem::certificate_text(&certificate), &pair.key, existing)?;
    let mut lines = told(&places, Role::Caller, validity);
    lines.push(format!(
        "next: tombolo kubeconfig --gateway https://HOST:8443 --ca {} --cert {} --key {} --cluster CLUSTER",
        Role::Server.root_certificate(&order.placement.dir).display(),
        places.certificate.display(),
        places.key.display(),
    ));
    Ok(lines)
}

/// How long, and whether old files give way.
fn terms(role: Role, placement: &Placement) -> Result<(Validity, Existing), IssueError> {
    let asked = placement.validity.unwrap_or_else(|| role.validity_default());
    let max = role.validity_max();
    if asked > max {
        return Err(IssueError::Validity { role: role.name(), asked, max });
    }
    Ok((asked, if placement.force { Existing::Replace } else { Existing::Keep }))
}

fn out(placement: &Placement) -> &Path {
    placement.out.as_deref().unwrap_or(&placement.dir)
}

/// The names in the order given, then the suffix with its wildcard, then the URI; none twice.
fn server_names(order: &IssueServer, uri: &str) -> Result<Vec<SanType>, IssueError> {
    let mut names = order.names.clone();
    if let Some(suffix) = &order.suffix {
        names.push(ServerName::Dns(suffix.to_string()));
        names.push(ServerName::Dns(format!("*.{suffix}")));
    }
    if names.len() > SERVER_NAMES_MAX {
        return Err(IssueError::TooManyNames);
    }
    let mut sans = Vec::new();
    for name in names {
        let san = match &name {
            ServerName::Dns(name) => SanType::DnsName(
                name.as_str().try_into().map_err(|error| IssueError::Name(name.clone(), error))?,
            ),
            ServerName::Ip(address) => SanType::IpAddress(*address),
        };
        if !sans.contains(&san) {
            sans.push(san);
        }
    }
    sans.push(san_uri(uri)?);
    Ok(sans)
}

fn san_uri(uri: &str) -> Result<SanType, IssueError> {
    uri.try_into().map(SanType::URI).map_err(|error| IssueError::Name(uri.to_owned(), error))
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
