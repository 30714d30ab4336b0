//! A reflector like client-go's: it processes a list and the watches that follow it, without any I/O.

use std::collections::BTreeMap;

use serde_json::Value;

/// One event of a watch, bookmarks and errors excepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The event's type: `ADDED`, `MODIFIED` or `DELETED`.
    pub word: String,
    /// The `metadata.name` of the object.
    pub name: String,
    /// The `metadata.uid` of the object.
    pub uid: String,
    /// The resource version of the object.
    pub revision: u64,
}

/// An observation that is wrong under any fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReflectorError {
    /// The last line had no end, although the body ended cleanly.
    #[error("a clean end came behind {0} bytes of an event that is not whole")]
    PartialThenClean(usize),
    /// A line that is no event.
    #[error("a line that is no event: {0:?}")]
    NoEvent(String),
}

/// A view of a collection, and how it came about.
#[derive(Debug, Default)]
pub struct Reflector {
    started_at: Option<u64>,
    revision: u64,
    view: BTreeMap<String, (String, u64)>,
    seen: Vec<Seen>,
    /// From and up to which version a list stood in for events: the first excluded, the second included.
    leaps: Vec<(u64, u64)>,
    partial: Vec<u8>,
    bookmarks: usize,
    is_expired: bool,
    wrong: Vec<ReflectorError>,
}

impl Reflector {
    /// Takes a list, which replaces the view.
    pub fn list(&mut self, body: &[u8]) -> Result<(), serde_json::Error> {
        let list: Value = serde_json::from_slice(body)?;
        let revision = version(&list);
        match self.started_at {
            None => self.started_at = Some(revision),
            Some(_) => self.leaps.push((self.revision, revision)),
        }
        let items = list["items"].as_array().into_iter().flatten();
        self.view = items.map(|one| (text(one, "name"), (text(one, "uid"), version(one)))).collect();
        (self.revision, self.is_expired) = (revision, false);
        Ok(())
    }

    /// Takes bytes of a watch as they come.
    pub fn take(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            self.event(&line);
        }
    }

    /// A watch has ended: cleanly, or cut off.
    pub fn ended(&mut self, is_clean: bool) {
        let partial = std::mem::take(&mut self.partial).len();
        if is_clean && partial > 0 {
            self.wrong.push(ReflectorError::PartialThenClean(partial));
        }
    }

    /// The version from which the next watch goes on; `None` where a list has to come first.
    pub fn resumes_at(&self) -> Option<u64> {
        self.started_at.filter(|_| !self.is_expired).map(|_| self.revision)
    }

    /// The version that the first list was at.
    pub fn started_at(&self) -> u64 {
        self.started_at.unwrap_or(0)
    }

    /// All events in the order of their arrival.
    pub fn seen(&self) -> &[Seen] {
        &self.seen
    }

    /// The objects that are there: by name their uid and version.
    pub fn view(&self) -> &BTreeMap<String, (String, u64)> {
        &self.view
    }

    /// Returns true if a list stood in for the event of a version.
    pub fn leapt_over(&self, revision: u64) -> bool {
        self.leaps.iter().any(|(from, to)| (from + 1..=*to).contains(&revision))
    }

    /// Number of bookmarks that have come.
    pub fn bookmarks(&self) -> usize {
        self.bookmarks
    }

    /// All observations that are wrong under any fault.
    pub fn wrong(&self) -> &[ReflectorError] {
        &self.wrong
    }

    fn event(&mut self, line: &[u8]) {
        let event: Value = serde_json::from_slice(line).unwrap_or_default();
        let (word, object) = (event["type"].as_str().unwrap_or_default(), &event["object"]);
        match word {
            "BOOKMARK" => self.bookmarks += 1,
            "ERROR" => return self.is_expired = true,
            "ADDED" | "MODIFIED" | "DELETED" => self.change(word, object),
            _ => return self.wrong.push(ReflectorError::NoEvent(String::from_utf8_lossy(line).into_owned())),
        }
        self.revision = version(object);
    }

    fn change(&mut self, word: &str, object: &Value) {
        let (name, uid, revision) = (text(object, "name"), text(object, "uid"), version(object));
        if word == "DELETED" {
            self.view.remove(&name);
        } else {
            self.view.insert(name.clone(), (uid.clone(), revision));
        }
        self.seen.push(Seen { word: word.to_owned(), name, uid, revision });
    }
}

fn version(object: &Value) -> u64 {
    text(object, "resourceVersion").parse().unwrap_or(0)
}

fn text(object: &Value, key: &str) -> String {
    object["metadata"][key].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_counts_once_its_line_is_complete_and_advances_the_version() {
        let mut reflector = listed(100);
        let line = added("a", 101);
        reflector.take(&line.as_bytes()[..20]);
        assert_eq!((reflector.seen().len(), reflector.resumes_at()), (0, Some(100)));
        reflector.take(&line.as_bytes()[20..]);
        assert_eq!((reflector.seen().len(), reflector.resumes_at()), (1, Some(101)));
        assert_eq!(reflector.view()["a"], ("u-a".to_owned(), 101));
    }

    #[test]
    fn a_clean_end_behind_half_an_event_is_wrong_and_a_cut_is_not() {
        for (is_clean, wrong) in [(true, vec![ReflectorError::PartialThenClean(5)]), (false, vec![])] {
            let mut reflector = listed(100);
            reflector.take(b"{\"typ");
            reflector.ended(is_clean);
            assert_eq!(reflector.wrong(), wrong);
        }
    }

    #[test]
    fn an_expired_version_asks_for_a_list_which_leaps_over_what_was_missed() {
        let mut reflector = listed(100);
        reflector.take(b"{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n");
        assert_eq!(reflector.resumes_at(), None);
        reflector.list(br#"{"metadata":{"resourceVersion":"105"},"items":[]}"#).unwrap();
        assert_eq!(reflector.resumes_at(), Some(105));
        assert!(reflector.leapt_over(101) && reflector.leapt_over(105) && !reflector.leapt_over(106));
    }

    #[test]
    fn a_line_that_is_no_event_is_wrong() {
        let mut reflector = listed(100);
        reflector.take(b"<html>\n");
        assert_eq!(reflector.wrong(), [ReflectorError::NoEvent("<html>\n".to_owned())]);
    }

    fn listed(revision: u64) -> Reflector {
        let mut reflector = Reflector::default();
        let list = format!(r#"{{"metadata":{{"resourceVersion":"{revision}"}},"items":[]}}"#);
        reflector.list(list.as_bytes()).unwrap();
        reflector
    }

    fn added(name: &str, revision: u64) -> String {
        format!(
            r#"{{"type":"ADDED","object":{{"metadata":{{"name":"{name}","uid":"u-{name}","resourceVersion":"{revision}"}}}}}}"#
        ) + "\n"
    }
}
