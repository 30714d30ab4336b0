//! Reads of keys and of ranges of keys, each at one revision.

use crate::client::Client;
use crate::error::Error;
use crate::rpc::kv_client::KvClient;
use crate::rpc::{KeyValue, RangeRequest, RangeResponse};

/// Most keys of one answer. A longer range is read in pages, all at the revision of the first one.
pub const PAGE_KEYS: i64 = 500;

/// A number of etcd's history, which grows by one with each change. 0 is before the first change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub i64);

/// A key, or all keys with a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    pub(crate) key: Vec<u8>,
    pub(crate) end: Vec<u8>,
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// The revision that created the key.
    pub created: Revision,
    /// The revision that changed it last.
    pub changed: Revision,
}

/// Entries as they were at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The revision.
    pub revision: Revision,
    /// The ID of the etcd cluster, which a restored backup changes.
    pub cluster_id: u64,
    /// The entries, in the order of their keys.
    pub entries: Vec<Entry>,
}

impl KeyRange {
    /// One key.
    #[must_use]
    pub fn key(key: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), end: Vec::new() }
    }

    /// All keys that begin with `prefix`. An empty one is that of all keys.
    #[must_use]
    pub fn prefix(prefix: impl Into<Vec<u8>>) -> Self {
        let mut key: Vec<u8> = prefix.into();
        let mut end = key.clone();
        if key.is_empty() {
            // etcd refuses an empty key.
            key.push(0);
        }
        while end.last() == Some(&u8::MAX) {
            end.pop();
        }
        match end.last_mut() {
            Some(last) => *last += 1,
            // etcd's sign for "up to the last key of all".
            None => end = vec![0],
        }
        Self { key, end }
    }
}

impl Client {
    /// Reads a range, of now or at an earlier revision.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list(&self, range: &KeyRange, at: Option<Revision>) -> Result<Listing, Error> {
        let (mut all, mut rest) = self.list_page(range, at).await?;
        while let Some(next) = rest {
            let page;
            (page, rest) = self.list_page(&next, Some(all.revision)).await?;
            all.entries.extend(page.entries);
        }
        Ok(all)
    }

    /// Reads the first [`PAGE_KEYS`] entries of a range, of now or at an earlier revision. Returns the range of the entries
    /// that follow, too, if there are any: to be read at the revision of this page.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list_page(
        &self,
        range: &KeyRange,
        at: Option<Revision>,
    ) -> Result<(Listing, Option<KeyRange>), Error> {
        let request = RangeRequest {
            key: range.key.clone(),
            range_end: range.end.clone(),
            limit: PAGE_KEYS,
            revision: at.map_or(0, |at| at.0),
            count_only: false,
        };
        let RangeResponse { header, kvs, more, .. } = self.page(&request).await?;
        let header = header.ok_or(Error::Nonsense("it has no header"))?;
        let rest = match (more, kvs.last()) {
            (true, Some(last)) => {
                let mut key = last.key.clone();
                key.push(0);
                Some(KeyRange { key, end: range.end.clone() })
            }
            (true, None) => return Err(Error::Nonsense("a page has no keys, and more are to come")),
            (false, _) => None,
        };
        let listing = Listing {
            revision: at.unwrap_or(Revision(header.revision)),
            cluster_id: header.cluster_id,
            entries: kvs.into_iter().map(Entry::from).collect(),
        };
        Ok((listing, rest))
    }

    /// Counts the keys of a range.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn count(&self, range: &KeyRange) -> Result<usize, Error> {
        let request = RangeRequest {
            key: range.key.clone(),
            range_end: range.end.clone(),
            count_only: true,
            ..RangeRequest::default()
        };
        let RangeResponse { count, .. } = self.page(&request).await?;
        usize::try_from(count).map_err(|_| Error::Nonsense("a count is negative"))
    }

    async fn page(&self, request: &RangeRequest) -> Result<RangeResponse, Error> {
        self.read(|channel| {
            let request = request.clone();
            async move { Ok(KvClient::new(channel).range(request).await?.into_inner()) }
        })
        .await
    }
}

impl From<KeyValue> for Entry {
    fn from(found: KeyValue) -> Self {
        let KeyValue { key, value, create_revision, mod_revision, .. } = found;
        Self { key, value, created: Revision(create_revision), changed: Revision(mod_revision) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_of_a_prefix_ends_before_the_first_key_without_it() {
        for (prefix, end) in
            [(&b"/w/"[..], &b"/w0"[..]), (b"a\xff", b"b"), (b"\xff\xff", b"\0"), (b"", b"\0")]
        {
            assert_eq!(KeyRange::prefix(prefix).end, end, "{prefix:?}");
        }
    }

    #[test]
    fn the_range_of_the_empty_prefix_begins_with_the_first_key_of_all() {
        assert_eq!(KeyRange::prefix(b"").key, b"\0");
    }
}
