//! Remembers which profiles have no cluster any more, so that one odd answer of the gateway deletes nothing.

use std::collections::BTreeMap;

/// So many answers in turn leave out a cluster before its profile is deleted.
pub(super) const ANSWERS: u32 = 3;

/// The profiles without a cluster, and how many answers in turn have left it out.
#[derive(Debug, Default)]
pub(super) struct Missing(BTreeMap<String, u32>);

impl Missing {
    /// Notes an answer that leaves out the clusters of these profiles, and returns those that have been left out for long.
    pub(super) fn note(&mut self, names: Vec<String>) -> Vec<String> {
        let before = std::mem::take(&mut self.0);
        let count = |name: &String| before.get(name).copied().unwrap_or_default().saturating_add(1);
        self.0 = names.into_iter().map(|name| (name.clone(), count(&name))).collect();
        self.0.iter().filter(|(_, count)| **count >= ANSWERS).map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_goes_only_after_answers_in_turn() {
        let mut missing = Missing::default();
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();

        assert!(missing.note(names(&["a", "b"])).is_empty());
        assert!(missing.note(names(&["a"])).is_empty());
        assert_eq!(missing.note(names(&["a", "b"])), ["a"]);
        assert_eq!(missing.note(names(&["b"])).len(), 0);
        assert_eq!(missing.note(names(&["b"])), ["b"]);
    }
}
