//! The objects of a collection, and every change that led to them.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};

use super::line;

/// The resource version before the first change: as if the collection were not the first thing in its etcd.
const FIRST_REVISION: u64 = 100;

/// A kind of change to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The object was created by this change.
    Added,
    /// The object was modified by this change.
    Modified,
    /// The object was deleted by this change.
    Deleted,
}

/// One change, as watches received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emitted {
    /// The kind of the change.
    pub change: Change,
    /// The `metadata.name` of the object.
    pub name: String,
    /// The object's uid; an object that is created again has another one.
    pub uid: String,
    /// The resource version of the change.
    pub revision: u64,
    /// The `data.mark` of the object.
    pub mark: String,
    /// The line of the event.
    pub(super) line: Bytes,
}

/// The state of the collection and its changes.
#[derive(Debug)]
pub(super) struct History {
    revision: u64,
    compacted: u64,
    objects: BTreeMap<String, Value>,
    emitted: Vec<Emitted>,
    bookmarked: u64,
}

impl Change {
    /// The type of an event with this change.
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

impl Emitted {
    /// The event's line, as every watch was sent it.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.line).into_owned()
    }
}

impl Default for History {
    fn default() -> Self {
        Self {
            revision: FIRST_REVISION,
            compacted: 0,
            objects: BTreeMap::new(),
            emitted: Vec::new(),
            bookmarked: 0,
        }
    }
}

impl History {
    pub(super) fn put(&mut self, name: &str, data: Value) -> u64 {
        let (change, uid) = match self.objects.get(name) {
            Some(known) => {
                (Change::Modified, known["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
            }
            None => (Change::Added, format!("uid-{}", self.revision + 1)),
        };
        self.emit(change, name, &uid, data)
    }

    pub(super) fn delete(&mut self, name: &str) -> Option<u64> {
        let known = self.objects.get(name)?;
        let uid = known["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let data = known["data"].clone();
        Some(self.emit(Change::Deleted, name, &uid, data))
    }

    pub(super) fn compact(&mut self, revision: u64) {
        self.compacted = self.compacted.max(revision);
    }

    pub(super) fn bookmark(&mut self) {
        self.bookmarked += 1;
    }

    /// Number of bookmarks that were requested so far.
    pub(super) fn bookmarks(&self) -> u64 {
        self.bookmarked
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn is_compacted(&self, revision: u64) -> bool {
        revision < self.compacted
    }

    pub(super) fn emitted(&self) -> &[Emitted] {
        &self.emitted
    }

    /// The first change after a resource version.
    pub(super) fn after(&self, revision: u64) -> Option<&Emitted> {
        self.emitted.get(self.emitted.partition_point(|one| one.revision <= revision))
    }

    pub(super) fn object(&self, name: &str) -> Option<Value> {
        self.objects.get(name).cloned()
    }

    /// All objects, sorted by name.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Value> {
        self.objects.values()
    }

    pub(super) fn list(&self) -> Value {
        json!({
            "kind": "ConfigMapList", "apiVersion": "v1",
            "metadata": { "resourceVersion": self.revision.to_string() },
            "items": self.objects().collect::<Vec<_>>(),
        })
    }

    fn emit(&mut self, change: Change, name: &str, uid: &str, data: Value) -> u64 {
        self.revision += 1;
        let mark = data["mark"].as_str().unwrap_or_default().to_owned();
        let object = json!({
            "kind": "ConfigMap", "apiVersion": "v1", "data": data,
            "metadata": {
                "name": name, "namespace": "default", "uid": uid, "resourceVersion": self.revision.to_string(),
            },
        });
        self.emitted.push(Emitted {
            change,
            name: name.to_owned(),
            uid: uid.to_owned(),
            revision: self.revision,
            mark,
            line: line(change.word(), &object),
        });
        match change {
            Change::Added | Change::Modified => drop(self.objects.insert(name.to_owned(), object)),
            Change::Deleted => drop(self.objects.remove(name)),
        }
        self.revision
    }
}
