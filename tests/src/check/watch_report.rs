//! Compares a reflector's events with the emitted ones: each change once, in order, and nothing else.

use std::collections::BTreeSet;

use crate::check::reflector::Reflector;
use crate::fake_api::{Change, Emitted};

/// The result of a comparison. It is right where all lists are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchReport {
    /// Versions of changes that were emitted and not seen.
    pub lost: Vec<u64>,
    /// Versions of changes that were seen more than once.
    pub twice: Vec<u64>,
    /// Versions that came behind a later one.
    pub disordered: Vec<u64>,
    /// Events that nobody emitted so.
    pub invented: Vec<u64>,
    /// Observations that are wrong under any fault, and a view that differs from the collection.
    pub wrong: Vec<String>,
}

impl WatchReport {
    /// Compares a reflector that has come to its end with all that was emitted.
    pub fn of(reflector: &Reflector, emitted: &[Emitted]) -> Self {
        let mut found = Self::default();
        let mut before = BTreeSet::new();
        let mut latest = 0;
        for seen in reflector.seen() {
            let real = emitted.iter().find(|one| one.revision == seen.revision);
            let is_real = real.is_some_and(|one| {
                (one.change.word(), &one.name, &one.uid) == (seen.word.as_str(), &seen.name, &seen.uid)
            });
            if !is_real {
                found.invented.push(seen.revision);
            }
            if !before.insert(seen.revision) {
                found.twice.push(seen.revision);
            } else if seen.revision < latest {
                found.disordered.push(seen.revision);
            }
            latest = latest.max(seen.revision);
        }
        let due = emitted.iter().filter(|one| one.revision > reflector.started_at());
        let missing = due.map(|one| one.revision).filter(|revision| !before.contains(revision));
        found.lost = missing.filter(|revision| !reflector.leapt_over(*revision)).collect();
        found.wrong = reflector.wrong().iter().map(ToString::to_string).collect();
        if found.lost.is_empty() && !is_the_view(reflector, emitted) {
            found.wrong.push("the view is not what the collection holds".to_owned());
        }
        found
    }

    /// Returns true if the report has no finding.
    pub fn is_right(&self) -> bool {
        *self == Self::default()
    }
}

/// Returns true if the objects that are there, with their versions, are those that the changes leave.
fn is_the_view(reflector: &Reflector, emitted: &[Emitted]) -> bool {
    let mut expected = std::collections::BTreeMap::new();
    for one in emitted {
        match one.change {
            Change::Added | Change::Modified => {
                expected.insert(one.name.clone(), (one.uid.clone(), one.revision));
            }
            Change::Deleted => drop(expected.remove(&one.name)),
        }
    }
    *reflector.view() == expected
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_api::Store;

    #[test]
    fn a_complete_report_is_right() {
        let (store, reflector) = watched(|lines| lines.to_vec());
        assert!(WatchReport::of(&reflector, &store.emitted()).is_right());
    }

    #[test]
    fn a_missing_event_is_lost() {
        let (store, reflector) = watched(|lines| [&lines[..1], &lines[2..]].concat());
        assert_eq!(WatchReport::of(&reflector, &store.emitted()).lost, [102]);
    }

    #[test]
    fn a_repeated_event_is_found() {
        let (store, reflector) = watched(|lines| [&lines[..2], &lines[1..]].concat());
        let found = WatchReport::of(&reflector, &store.emitted());
        assert_eq!((found.twice, found.disordered), (vec![102], vec![]));
    }

    #[test]
    fn swapped_events_are_out_of_order() {
        let (store, reflector) = watched(|lines| vec![lines[1].clone(), lines[0].clone(), lines[2].clone()]);
        assert_eq!(WatchReport::of(&reflector, &store.emitted()).disordered, [101]);
    }

    #[test]
    fn an_event_that_nobody_emitted_is_invented() {
        let (store, reflector) = watched(|lines| {
            let invented = lines[2].replace("\"103\"", "\"104\"");
            [lines, &[invented]].concat()
        });
        assert_eq!(WatchReport::of(&reflector, &store.emitted()).invented, [104]);
    }

    #[test]
    fn a_view_of_its_own_is_wrong_even_where_each_event_is_right() {
        let store = Store::new();
        store.put("a", "1");
        let mut reflector = Reflector::default();
        // As if the list had forgotten an object.
        reflector.list(br#"{"metadata":{"resourceVersion":"101"},"items":[]}"#).unwrap();
        assert_eq!(WatchReport::of(&reflector, &store.emitted()).wrong.len(), 1);
    }

    /// Three changes, whose lines reach a reflector in the form that `tell` gives them.
    fn watched(change: impl Fn(&[String]) -> Vec<String>) -> (Store, Reflector) {
        let store = Store::new();
        let mut reflector = Reflector::default();
        reflector.list(br#"{"metadata":{"resourceVersion":"100"},"items":[]}"#).unwrap();
        store.put("a", "1");
        store.put("b", "1");
        store.put("a", "2");
        let lines: Vec<String> = store.emitted().iter().map(Emitted::text).collect();
        for line in change(&lines) {
            reflector.take(line.as_bytes());
        }
        (store, reflector)
    }
}
