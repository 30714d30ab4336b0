//! Writes an export into an empty etcd, in which a mark stands until everything is there.

use aws_lc_rs::rand;
use daemon::Scope;
use etcd::{Client, CommitError, Compare, KeyRange, Outcome, Revision, TRANSACTION_OPERATIONS_MAX, Write};
use records::export::{ExportReader, NotAnExport};
use records::layout::{IMPORT_KEY, SCHEMA, SCHEMA_KEY};
use tokio::sync::watch;

use super::source::{Contents, Source, SourceError};
use super::target::EtcdTarget;

/// Most bytes of the records of one transaction. etcd takes requests of 1.5 MiB.
const TRANSACTION_BYTES_MAX: usize = 512 * 1024;

/// Most times that a transaction is tried whose answer was lost.
const TRIES_MAX: usize = 5;

/// The error if the records were not imported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EtcdImportError {
    #[error(
        "etcd has {count} keys below {prefix} already, and an import is for an empty prefix; stop all servers, and remove them \
         (`etcdctl del --prefix {prefix}`), or use another directory.etcd.prefix"
    )]
    NotEmpty { prefix: String, count: usize },
    #[error(
        "an import below {prefix} goes on, or did not end; if nobody imports now, remove what it wrote \
         (`etcdctl del --prefix {prefix}`), and import again"
    )]
    Unfinished { prefix: String },
    #[error("etcd cannot be read, so nothing was written")]
    Read(#[source] Box<etcd::Error>),
    #[error("etcd has not taken everything; servers wait until the import is repeated: {}", advice(.prefix))]
    Incomplete { prefix: String, source: Box<CommitError> },
    #[error("somebody else has removed the mark of this import; {}", advice(.prefix))]
    Disturbed { prefix: String },
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("no random number")]
    Random,
}

fn advice(prefix: &str) -> String {
    format!("remove what was written (`etcdctl del --prefix {prefix}`), and import again")
}

/// An import under way. Every transaction of it depends on its mark.
struct Import<'t> {
    client: Client,
    prefix: &'t str,
    mark: Vec<u8>,
    /// The key that nobody else's import has.
    own: Vec<u8>,
}

/// Writes all records, unless it is a dry run. Returns the place where they are.
pub(super) async fn import(
    target: &EtcdTarget,
    scope: &Scope,
    source: &mut Source,
    contents: &Contents,
    is_dry_run: bool,
) -> Result<String, EtcdImportError> {
    let EtcdTarget { endpoints, tls, prefix } = target;
    let tls = tls.clone().map(|tls| watch::channel(tls).1);
    let mut own = [0; 16];
    rand::fill(&mut own).map_err(|_| EtcdImportError::Random)?;
    let own = own.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into_bytes();
    let client = Client::new(endpoints.clone(), tls, scope.clone());
    let import = Import { client, prefix, mark: format!("{prefix}{IMPORT_KEY}").into_bytes(), own };
    import.check_empty().await?;
    if !is_dry_run {
        let marked = import.begin().await?;
        import.write(marked, source, contents).await?;
        import.end(marked).await?;
    }
    Ok(format!("etcd below {prefix}"))
}

impl Import<'_> {
    async fn check_empty(&self) -> Result<(), EtcdImportError> {
        if self.marked().await?.is_some() {
            return Err(EtcdImportError::Unfinished { prefix: self.prefix.to_owned() });
        }
        match self
            .client
            .count(&KeyRange::prefix(self.prefix))
            .await
            .map_err(|error| EtcdImportError::Read(Box::new(error)))?
        {
            0 => Ok(()),
            count => Err(EtcdImportError::NotEmpty { prefix: self.prefix.to_owned(), count }),
        }
    }

    /// Writes the mark, if there is still nothing. Returns its revision.
    async fn begin(&self) -> Result<Revision, EtcdImportError> {
        let schema = format!("{}{SCHEMA_KEY}", self.prefix).into_bytes();
        for _ in 0..TRIES_MAX {
            // Revision 0 is before the first change of all.
            let is_empty = Compare::NothingNewer(KeyRange::prefix(self.prefix), Revision(0));
            let writes = vec![
                Write::Put(self.mark.clone(), self.own.clone()),
                Write::Put(schema.clone(), SCHEMA.to_string().into()),
            ];
            match self.client.commit(vec![is_empty], writes).await {
                Ok(Outcome::Made(revision)) => return Ok(revision),
                Ok(Outcome::Conflict) | Err(CommitError::Unknown(_)) => match self.marked().await? {
                    Some((own, revision)) if own == self.own => return Ok(revision),
                    Some(_) | None => self.check_empty().await?,
                },
                Err(source) => return Err(self.incomplete(source)),
            }
        }
        Err(EtcdImportError::Unfinished { prefix: self.prefix.to_owned() })
    }

    async fn write(
        &self,
        marked: Revision,
        source: &mut Source,
        contents: &Contents,
    ) -> Result<(), EtcdImportError> {
        source.rewind()?;
        let keeps_tokens = source.keeps_tokens();
        let (mut reader, mut batch) = (ExportReader::default(), Batch::default());
        while let Some(piece) = source.piece()? {
            let read = reader.read(piece, |place, record| {
                if keeps_tokens || !place.is_unused_token(record) {
                    batch.add(format!("{}{place}", self.prefix), record);
                }
                Ok::<_, NotAnExport>(())
            });
            read.map_err(|error| source.refused(error))?;
            for writes in batch.take_full() {
                self.commit(marked, writes).await?;
            }
        }
        if !batch.writes.is_empty() {
            self.commit(marked, batch.writes).await?;
        }
        Ok(source.check_again(reader, contents)?)
    }

    /// Removes the mark, so that servers begin.
    async fn end(&self, marked: Revision) -> Result<(), EtcdImportError> {
        let mut last = None;
        for _ in 0..TRIES_MAX {
            let (condition, write) = (self.condition(marked), Write::Remove(self.mark.clone()));
            match self.client.commit(vec![condition], vec![write]).await {
                Ok(Outcome::Made(_)) => return Ok(()),
                // The answer to an earlier try may have been lost.
                Ok(Outcome::Conflict) if last.is_some() && self.marked().await?.is_none() => return Ok(()),
                Ok(Outcome::Conflict) => break,
                Err(error @ CommitError::Unknown(_)) => last = Some(error),
                Err(source) => return Err(self.incomplete(source)),
            }
        }
        Err(last.map_or_else(|| self.disturbed(), |source| self.incomplete(source)))
    }

    /// Makes some writes. They are the same at each try, so a lost answer is no harm.
    async fn commit(&self, marked: Revision, writes: Vec<Write>) -> Result<(), EtcdImportError> {
        let mut last = None;
        for _ in 0..TRIES_MAX {
            match self.client.commit(vec![self.condition(marked)], writes.clone()).await {
                Ok(Outcome::Made(_)) => return Ok(()),
                Ok(Outcome::Conflict) => return Err(self.disturbed()),
                Err(error @ CommitError::Unknown(_)) => last = Some(error),
                Err(source) => return Err(self.incomplete(source)),
            }
        }
        Err(last.map_or_else(|| self.disturbed(), |source| self.incomplete(source)))
    }

    fn condition(&self, marked: Revision) -> Compare {
        Compare::Unchanged(self.mark.clone(), marked)
    }

    /// The mark that is there, with its revision.
    async fn marked(&self) -> Result<Option<(Vec<u8>, Revision)>, EtcdImportError> {
        let found = self.client.list(&KeyRange::key(self.mark.clone()), None).await;
        let mut found = found.map_err(|error| EtcdImportError::Read(Box::new(error)))?;
        Ok(found.entries.pop().map(|entry| (entry.value, entry.changed)))
    }

    fn incomplete(&self, source: CommitError) -> EtcdImportError {
        EtcdImportError::Incomplete { prefix: self.prefix.to_owned(), source: Box::new(source) }
    }

    fn disturbed(&self) -> EtcdImportError {
        EtcdImportError::Disturbed { prefix: self.prefix.to_owned() }
    }
}

/// Writes that are gathered into transactions.
#[derive(Default)]
struct Batch {
    full: Vec<Vec<Write>>,
    writes: Vec<Write>,
    bytes: usize,
}

impl Batch {
    fn add(&mut self, key: String, record: &[u8]) {
        let bytes = key.len() + record.len();
        let is_full = self.writes.len() >= TRANSACTION_OPERATIONS_MAX
            || (!self.writes.is_empty() && self.bytes + bytes > TRANSACTION_BYTES_MAX);
        if is_full {
            self.full.push(std::mem::take(&mut self.writes));
            self.bytes = 0;
        }
        self.writes.push(Write::Put(key.into_bytes(), record.to_vec()));
        self.bytes += bytes;
    }

    /// The transactions that are as large as they may be.
    fn take_full(&mut self) -> Vec<Vec<Write>> {
        std::mem::take(&mut self.full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_limited_in_writes_and_bytes() {
        let sizes = |records: &[usize]| {
            let mut batch = Batch::default();
            for (number, size) in records.iter().enumerate() {
                batch.add(format!("{number:04}"), &vec![b'x'; *size]);
            }
            let full: Vec<usize> = batch.take_full().iter().map(Vec::len).collect();
            (full, batch.writes.len())
        };

        let most = TRANSACTION_OPERATIONS_MAX;
        assert_eq!(sizes(&vec![1; 2 * most]), (vec![most], most));
        assert_eq!(sizes(&vec![1; 2 * most + 1]), (vec![most, most], 1));
        let half = TRANSACTION_BYTES_MAX / 2 - 4;
        assert_eq!(sizes(&[half, half, 1]), (vec![2], 1));
        assert_eq!(sizes(&[TRANSACTION_BYTES_MAX * 2, 1]), (vec![1], 1));
    }
}
