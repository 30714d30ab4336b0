//! The number of agents by the version of their software, written at each scrape.
//!
//! Agents choose what they claim, so the number of versions that have a series of their own is bounded, at each
//! scrape and over time.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use daemon::metrics::exposition::Exposition;

const AGENTS: &str = "tombolo_server_agents_by_version";

/// Most versions that have a series of their own. All further ones count as [`OTHER`].
const VERSIONS_MAX: usize = 20;

/// A version keeps its series for this time after its last agent. So an agent that changes its version again
/// and again makes no more than [`VERSIONS_MAX`] series in an hour.
const VERSION_KEPT: Duration = Duration::from_secs(3600);

/// The label of agents that claim no version, and of those whose version has no series of its own.
const OTHER: &str = "other";

/// The versions that have a series of their own, with the last scrape that found an agent of each.
#[derive(Debug, Default)]
pub struct AgentVersions(Mutex<BTreeMap<String, Instant>>);

impl AgentVersions {
    /// Writes the number of agents for each version. `counts` has the agents that are connected now; the empty
    /// version stands for agents that claim none.
    pub fn write(&self, lines: &mut Exposition, counts: &BTreeMap<&str, usize>, now: Instant) {
        let help = "Agents that have a tunnel now, by the version of their software; other for versions beyond the limit.";
        let mut agents = lines.gauge(AGENTS, help);
        for (version, count) in self.bounded(counts, now) {
            agents.sample(&[("version", version.as_str())], count);
        }
    }

    /// The count of each version with a series of its own, and that of all others last.
    fn bounded(&self, counts: &BTreeMap<&str, usize>, now: Instant) -> Vec<(String, usize)> {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shown.retain(|version, last| {
            if counts.contains_key(version.as_str()) {
                *last = now;
            }
            now.saturating_duration_since(*last) < VERSION_KEPT
        });
        let mut new: Vec<(&str, usize)> = counts.iter().map(|(version, count)| (*version, *count)).collect();
        new.retain(|(version, _)| !version.is_empty() && *version != OTHER && !shown.contains_key(*version));
        // The versions of most agents first, so that a single agent cannot push them out.
        new.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        new.truncate(VERSIONS_MAX - shown.len());
        shown.extend(new.iter().map(|(version, _)| ((*version).to_owned(), now)));
        let own = |version: &String| counts.get(version.as_str()).copied().unwrap_or_default();
        let mut bounded: Vec<(String, usize)> =
            shown.keys().map(|version| (version.clone(), own(version))).collect();
        let listed: usize = bounded.iter().map(|(_, count)| count).sum();
        bounded.push((OTHER.to_owned(), counts.values().sum::<usize>() - listed));
        bounded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_without_a_version_count_as_other() {
        let versions = AgentVersions::default();
        assert_eq!(
            versions.bounded(&BTreeMap::from([("", 3), ("0.1.0", 2)]), Instant::now()),
            [("0.1.0".to_owned(), 2), ("other".to_owned(), 3)]
        );
    }

    #[test]
    fn versions_beyond_the_limit_count_as_other_and_the_largest_do_not() {
        let names: Vec<String> = (0..VERSIONS_MAX * 2).map(|number| format!("0.{number:02}.0")).collect();
        let mut counts: BTreeMap<&str, usize> = names.iter().map(|name| (name.as_str(), 1)).collect();
        counts.insert("9.0.0", 7);

        let bounded = AgentVersions::default().bounded(&counts, Instant::now());

        assert_eq!(bounded.len(), VERSIONS_MAX + 1);
        assert!(bounded.contains(&("9.0.0".to_owned(), 7)), "{bounded:?}");
        assert_eq!(bounded.last(), Some(&("other".to_owned(), names.len() - (VERSIONS_MAX - 1))));
    }

    #[test]
    fn changing_versions_make_no_more_series_than_the_limit_in_an_hour() {
        let (versions, began) = (AgentVersions::default(), Instant::now());
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..VERSIONS_MAX * 3 {
            let claimed = format!("0.{number}.0");
            let scraped = versions.bounded(&BTreeMap::from([(claimed.as_str(), 1)]), began);
            seen.extend(scraped.into_iter().map(|(version, _)| version));
        }
        assert_eq!(seen.len(), VERSIONS_MAX + 1, "{seen:?}");

        let later = versions.bounded(&BTreeMap::from([("1.0.0", 1)]), began + VERSION_KEPT);
        assert_eq!(later, [("1.0.0".to_owned(), 1), ("other".to_owned(), 0)], "the old ones are forgotten");
    }

    #[test]
    fn a_version_that_the_last_agent_has_left_shows_zero_for_a_while() {
        let (versions, began) = (AgentVersions::default(), Instant::now());
        versions.bounded(&BTreeMap::from([("0.1.0", 1)]), began);
        let upgraded = versions.bounded(&BTreeMap::from([("0.2.0", 1)]), began + VERSION_KEPT / 2);
        assert_eq!(upgraded[..2], [("0.1.0".to_owned(), 0), ("0.2.0".to_owned(), 1)]);
    }
}
