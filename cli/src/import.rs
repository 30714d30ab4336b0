//! `tombolo server import`: puts an export into the empty store of servers that do not run.

mod etcd_store;
mod source;
mod state_file;
mod target;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::args::ServerImport;
use crate::runtime::{self, RuntimeError};
use etcd_store::EtcdImportError;
use source::{Contents, Source, SourceError};
use state_file::StateImportError;
use target::{ImportTarget, TargetError, TargetStore};

/// The error if nothing was imported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImportError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(
        "{file} has the records of the trust domain {found}, and the servers here are of {expected}: their agents would not \
         be known"
    )]
    OtherDomain { file: PathBuf, found: String, expected: String },
    #[error(transparent)]
    State(#[from] StateImportError),
    #[error(transparent)]
    Etcd(#[from] EtcdImportError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// Checks the export and the store, writes the records unless it is a dry run, and returns lines about it.
pub(crate) fn put(args: &ServerImport) -> Result<Vec<String>, ImportError> {
    let mut source = Source::open(&args.export, args.keep_tokens)?;
    let contents = source.contents()?;
    let ImportTarget { store, trust_domain } = ImportTarget::of(args)?;
    let found = &contents.header.trust_domain;
    if *found != trust_domain {
        let (file, found, expected) = (args.export.clone(), found.clone(), trust_domain);
        return Err(ImportError::OtherDomain { file, found, expected });
    }
    let place = match store {
        TargetStore::StateDir(directory) => {
            state_file::import(&directory, &mut source, &contents, args.dry_run)?
        }
        TargetStore::Etcd(etcd) => {
            let imported = runtime::run(async |scope| {
                etcd_store::import(&etcd, scope, &mut source, &contents, args.dry_run).await
            });
            imported??
        }
    };
    Ok(lines(&place, &contents, args.dry_run))
}

/// Lines for people: what was written, what was left out, and what is to be done now.
fn lines(place: &str, contents: &Contents, is_dry_run: bool) -> Vec<String> {
    let Contents { header, summary, tables, unused_tokens } = contents;
    let tables: &BTreeMap<String, u64> = tables;
    let count: u64 = tables.values().sum();
    let each: Vec<_> = tables.iter().map(|(table, count)| format!("{count} {table}")).collect();
    let listed = if each.is_empty() { String::new() } else { format!(": {}", each.join(", ")) };
    let verb = if is_dry_run { "would get" } else { "has" };
    let mut lines = vec![
        format!("{place} {verb} {count} records{listed}"),
        format!("they are as of {}, and their digest is sha256 {}", header.taken, summary.sha256),
    ];
    if *unused_tokens > 0 {
        lines.push(format!(
            "{unused_tokens} enrollment tokens that were not used are left out, because they may have been used since: create \
             new ones"
        ));
    }
    lines.extend([
        "who was revoked since then is accepted again. Revoke again what this prints from the audit log of each server:".to_owned(),
        format!(
            "  jq -r 'select(.stage == \"ResponseComplete\" and .requestReceivedTimestamp >= \"{}\" and (.requestURI | \
             test(\"Admin/(Revoke|Delete)\"))) | [.requestReceivedTimestamp, .requestURI, \
             .annotations[\"tombolo.dev/detail\"]] | @tsv' audit.log",
            header.taken.trim_end_matches('Z')
        ),
    ]);
    lines
}
