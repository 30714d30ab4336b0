//! Watches against a model: whatever happens to objects and tunnels, a caller's view equals the store's, or
//! it received an error.

use std::collections::{BTreeMap, VecDeque};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::super::*;
use super::ALL;
use super::event_codec::{Form, events_in};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// The next step of a trial.
#[derive(Debug, Clone)]
enum ModelStep {
    /// An object is created, changed, or deleted if it exists and `deletes`.
    Write { name: usize, deletes: bool },
    /// The API server sends a bookmark to every watch that wants them.
    Bookmark,
    /// This many bytes reach each gateway, in pieces of `piece_bytes`.
    Move { bytes: usize, piece_bytes: usize },
    /// The tunnel of one watch is lost, with the bytes on their way.
    Lose { watch: usize },
    /// Versions older than now can no longer be watched from.
    Compact,
}

/// The objects that exist, and the history of their changes.
#[derive(Debug, Default)]
struct ModelStore {
    version: u64,
    /// From an object's name to its value and version.
    things: BTreeMap<&'static str, (u64, u64)>,
    history: Vec<(u64, Value)>,
    /// No watch may begin before this version.
    compacted: u64,
}

/// One caller's watch, with all state between it and the store.
struct CallerWatch {
    form: Form,
    query: Query,
    relay: Relay,
    sent: SentEvents,
    /// The bytes that the caller has received and not yet read.
    received: Vec<u8>,
    view: BTreeMap<String, (u64, u64)>,
    last_version: u64,
    /// Number of initial events that are still to come. They are not ordered by version.
    initial: usize,
    ended: Option<WatchEnd>,
    resumed: usize,
}

/// The bytes that the API server has sent and the gateway has not yet received.
#[derive(Default)]
struct SentEvents {
    bytes: VecDeque<u8>,
    events: usize,
    /// Number of changes of the history that this stream has sent.
    sent_changes: usize,
    wants_bookmarks: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchEnd {
    /// The connection broke, which the caller sees.
    Broken,
    /// The caller received an ERROR event.
    Error,
}

impl ModelStore {
    fn write(&mut self, name: &'static str, deletes: bool) {
        // Other resources share the version counter.
        self.version += 1 + self.version % 3;
        let version = self.version;
        let kind = match (self.things.contains_key(name), deletes) {
            (true, true) => "DELETED",
            (true, false) => "MODIFIED",
            (false, _) => "ADDED",
        };
        let value = if kind == "DELETED" { self.things[name].0 } else { version * 7 };
        if kind == "DELETED" {
            self.things.remove(name);
        } else {
            self.things.insert(name, (value, version));
        }
        self.history.push((version, event(kind, name, value, version)));
    }

    fn view(&self) -> BTreeMap<String, (u64, u64)> {
        self.things.iter().map(|(name, thing)| ((*name).to_owned(), *thing)).collect()
    }

    /// Answers a watch with the first bytes, or with a `Status` if its version is too old.
    fn watch(&self, form: Form, query: &str) -> Result<SentEvents, Value> {
        let value = |key| query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
        let wants_bookmarks = value("allowWatchBookmarks") == Some("true");
        let mut sent =
            SentEvents { wants_bookmarks, sent_changes: self.history.len(), ..SentEvents::default() };
        let version = value("resourceVersion").map_or(0, |text| text.parse().unwrap_or(u64::MAX));
        let streams = value("sendInitialEvents") == Some("true");
        assert!(streams == (value("resourceVersionMatch") == Some("NotOlderThan")), "{query}");
        if version > 0 && !streams {
            if version < self.compacted {
                return Err(json!({"kind": "Status", "apiVersion": "v1", "message": "too old", "code": 410}));
            }
            sent.sent_changes = self.history.iter().take_while(|(at, _)| *at <= version).count();
        } else {
            for (name, (value, version)) in &self.things {
                sent.event(form, &event("ADDED", name, *value, *version));
            }
            if streams && wants_bookmarks {
                sent.event(form, &bookmark(self.version, true));
            }
        }
        Ok(sent)
    }
}

impl SentEvents {
    fn event(&mut self, form: Form, event: &Value) {
        self.bytes.extend(form.event(event, self.events == 0));
        self.events += 1;
    }

    fn catch_up(&mut self, form: Form, store: &ModelStore) {
        for (_, event) in &store.history[self.sent_changes..] {
            self.event(form, event);
        }
        self.sent_changes = store.history.len();
    }
}

impl CallerWatch {
    fn begin(form: Form, query: &str, store: &ModelStore) -> Self {
        let parsed = Query::parse(Some(query)).unwrap();
        let relay = Relay::new(form.encoding(), &parsed, 4096, &BufferBudget::new(1 << 20));
        let asked = parsed.with_bookmarks(query).unwrap_or_else(|| query.to_owned());
        let from_version = query.contains("resourceVersion=") && !query.contains("resourceVersion=0");
        let lists = from_version && !query.contains("sendInitialEvents");
        Self {
            form,
            query: parsed,
            relay,
            sent: store.watch(form, &asked).expect("nothing is too old yet"),
            received: Vec::new(),
            view: if lists { store.view() } else { BTreeMap::new() },
            last_version: if lists { store.version } else { 0 },
            initial: if lists { 0 } else { store.things.len() },
            ended: None,
            resumed: 0,
        }
    }

    /// Moves this many bytes through the tunnel, and reads what is passed on.
    fn receive(&mut self, bytes: usize, piece_bytes: usize) {
        let bytes = bytes.min(self.sent.bytes.len());
        let received: Vec<u8> = self.sent.bytes.drain(..bytes).collect();
        for piece in received.chunks(piece_bytes.max(1)) {
            self.received.extend_from_slice(&self.relay.pass(&Bytes::copy_from_slice(piece)));
        }
        self.read();
    }

    /// Loses the tunnel, and resumes the watch if it can be resumed.
    fn lose(&mut self, store: &ModelStore) {
        if self.ended.is_some() {
            return;
        }
        let Ok(version) = self.relay.resume_point().cloned() else {
            self.ended = Some(WatchEnd::Broken);
            return;
        };
        match store.watch(self.form, &self.query.resume_after(&version, None)) {
            Ok(sent) => {
                self.received.extend_from_slice(&self.relay.resume());
                self.sent = sent;
                self.resumed += 1;
            }
            Err(status) => {
                self.received.extend_from_slice(&self.relay.fail(&self.form.object(&status)));
                self.read();
                assert_eq!(self.ended, Some(WatchEnd::Error), "the error reached the caller");
            }
        }
    }

    /// Does what a reflector does, and checks that nothing comes twice or without being asked for.
    fn read(&mut self) {
        let (events, rest) = events_in(self.form, &self.received);
        assert_eq!(rest, 0, "part of an event was passed on");
        self.received.clear();
        for event in events {
            assert_eq!(self.ended, None, "something came after the end");
            self.take(&event);
        }
    }

    fn take(&mut self, event: &Value) {
        let kind = event["type"].as_str().unwrap();
        let (object, cells) = match event["object"]["rows"].get(0) {
            Some(row) => (&row["object"], Some(&row["cells"][1])),
            None => (&event["object"], None),
        };
        let metadata = &object["metadata"];
        if kind == "ERROR" {
            assert_eq!(event["object"]["code"], 410);
            self.ended = Some(WatchEnd::Error);
            return;
        }
        let version: u64 = metadata["resourceVersion"].as_str().unwrap().parse().unwrap();
        if kind == "BOOKMARK" {
            assert!(self.query.bookmarks, "a bookmark that nobody asked for");
            assert!(version >= self.last_version, "a bookmark that goes back");
            return;
        }
        let name = metadata["name"].as_str().unwrap().to_owned();
        let value = cells.unwrap_or_else(|| &object["value"]).as_str().unwrap().parse().unwrap();
        let was = match kind {
            "DELETED" => self.view.remove(&name),
            _ => self.view.insert(name.clone(), (value, version)),
        };
        assert_eq!(
            was.is_some(),
            kind != "ADDED",
            "{kind} {name} in version {version}: a gap or a duplicate"
        );
        if self.initial > 0 {
            self.initial -= 1;
        } else {
            assert!(version > self.last_version, "{version} came twice or late");
        }
        self.last_version = self.last_version.max(version);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn a_callers_view_is_the_stores_or_it_received_an_error(
        before in vec((0..NAMES.len(), any::<bool>()), 1..12),
        turns in vec(turn(), 0..60),
        watches in vec((select(ALL.to_vec()), select(QUERIES.to_vec()), any::<bool>()), 1..4),
    ) {
        run(&before, &turns, &watches);
    }
}

#[test]
fn the_loss_of_a_tunnel_at_any_byte_is_not_noticed() {
    let before = [(3, false), (1, false), (0, false)];
    for form in ALL {
        for query in QUERIES {
            for bookmarks in [false, true] {
                let (mut resumed, mut length) = (0, 0);
                let mut cut = 0;
                while cut <= length {
                    let mut store = store(&before);
                    let mut watch = begin(&store, (form, query, bookmarks));
                    grow(&mut store);
                    watch.sent.catch_up(watch.form, &store);
                    watch.sent.event(watch.form, &bookmark(store.version, false));
                    length = watch.sent.bytes.len();
                    watch.receive(cut, 500);
                    watch.lose(&store);
                    store.write("e", false);
                    settle(&mut watch, &store);
                    resumed += watch.resumed;
                    cut += 1;
                }
                let is_safe_at_once = query.starts_with("resourceVersion=NOW");
                let least = if is_safe_at_once { length + 1 } else { 1 };
                assert!(resumed >= least, "{form:?} {query}: {resumed} of {length}");
            }
        }
    }
}

/// Tried with and without `allowWatchBookmarks=true`. `NOW` is the version at the beginning of the watch.
const QUERIES: [&str; 5] = [
    "resourceVersion=NOW",
    "resourceVersion=0",
    "watch=1",
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=NOW",
];

type Chosen = (Form, &'static str, bool);

fn turn() -> impl Strategy<Value = ModelStep> {
    prop_oneof![
        4 => (0..NAMES.len(), any::<bool>()).prop_map(|(name, deletes)| ModelStep::Write { name, deletes }),
        1 => Just(ModelStep::Bookmark),
        6 => (0..600usize, 1..200usize).prop_map(|(bytes, piece_bytes)| ModelStep::Move { bytes, piece_bytes }),
        2 => (0..4usize).prop_map(|watch| ModelStep::Lose { watch }),
        1 => Just(ModelStep::Compact),
    ]
}

fn run(before: &[(usize, bool)], turns: &[ModelStep], watches: &[Chosen]) {
    let mut store = store(before);
    let mut watches: Vec<CallerWatch> = watches.iter().map(|chosen| begin(&store, *chosen)).collect();
    for turn in turns {
        match *turn {
            ModelStep::Write { name, deletes } => store.write(NAMES[name], deletes),
            ModelStep::Compact => store.compacted = store.version,
            ModelStep::Lose { watch } => {
                let count = watches.len();
                watches[watch % count].lose(&store);
            }
            ModelStep::Bookmark => {
                for watch in &mut watches {
                    watch.sent.catch_up(watch.form, &store);
                    if watch.sent.wants_bookmarks {
                        watch.sent.event(watch.form, &bookmark(store.version, false));
                    }
                }
            }
            ModelStep::Move { bytes, piece_bytes } => {
                for watch in watches.iter_mut().filter(|watch| watch.ended.is_none()) {
                    watch.sent.catch_up(watch.form, &store);
                    watch.receive(bytes, piece_bytes);
                }
            }
        }
    }
    watches.iter_mut().for_each(|watch| settle(watch, &store));
}

/// Lets all sent bytes arrive, and compares the views.
fn settle(watch: &mut CallerWatch, store: &ModelStore) {
    if watch.ended.is_none() {
        watch.sent.catch_up(watch.form, store);
        watch.receive(usize::MAX, 300);
    }
    if watch.ended.is_none() {
        assert_eq!(watch.view, store.view(), "{:?}", watch.form);
    }
}

fn store(before: &[(usize, bool)]) -> ModelStore {
    let mut store = ModelStore { version: 8, ..ModelStore::default() };
    before.iter().for_each(|(name, deletes)| store.write(NAMES[*name], *deletes));
    store
}

fn grow(store: &mut ModelStore) {
    store.write("b", false);
    store.write("a", true);
    store.write("c", false);
}

fn begin(store: &ModelStore, (form, query, bookmarks): Chosen) -> CallerWatch {
    let query = query.replace("NOW", &store.version.to_string());
    let query = if bookmarks { format!("{query}&allowWatchBookmarks=true") } else { query };
    CallerWatch::begin(form, &query, store)
}

fn event(kind: &str, name: &str, value: u64, version: u64) -> Value {
    json!({"type": kind, "object": {"kind": "Thing", "apiVersion": "v1", "value": value.to_string(),
        "metadata": {"name": name, "resourceVersion": version.to_string()}}})
}

fn bookmark(version: u64, ends_initial_events: bool) -> Value {
    let mut event = event("BOOKMARK", "", 0, version);
    if ends_initial_events {
        event["object"]["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    event
}
