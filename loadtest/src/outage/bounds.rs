//! The bounds on outages, and the tables of their results.

use std::collections::BTreeMap;
use std::time::Duration;

use ::tests::outage::{Direction, OutageOutcome};

use crate::table::Table;

/// Longest time from the link's return to the first byte of each transfer.
const RESUMED_MAX: Duration = Duration::from_secs(1);
/// The same bound over TCP. The kernel pauses for a second between two attempts, and with BBR needs a second
/// attempt.
const RESUMED_OVER_TCP_MAX: Duration = Duration::from_secs(3);
/// Longest time until an outage is noticed, by a tunnel in use and by an idle one.
const NOTICED_MAX: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(8)];
/// Misses of one kind that are listed. The rest is counted.
const LISTED_MAX: usize = 5;

/// The name of a direction, with its longest time to the first byte for each length and kind of outage.
/// `None` if a byte never arrived.
pub type Slowest = (&'static str, Vec<(String, Option<Duration>)>);

/// Outages grouped by length and by whether the port was new.
type Groups<'a> = BTreeMap<(Duration, bool), Vec<&'a OutageOutcome>>;

/// The missed bounds, as sentences.
pub fn missed(outcomes: &[OutageOutcome], limit: Duration, is_over_tcp: bool) -> Vec<String> {
    let resumed_max = if is_over_tcp { RESUMED_OVER_TCP_MAX } else { RESUMED_MAX };
    let mut missed = Vec::new();
    for ((length, new_port), group) in groups(outcomes) {
        let mut sentences: Vec<String> = Vec::new();
        for outcome in group {
            let seed = outcome.plan.seed;
            let wrongs = if length < limit { wrongs(outcome, resumed_max) } else { outcome.wrongs_beyond() };
            sentences.extend(wrongs.into_iter().map(|wrong| format!("trial {seed}: {wrong}")));
        }
        let more = sentences.len().saturating_sub(LISTED_MAX);
        sentences.truncate(LISTED_MAX);
        let kind = kind(length, new_port);
        missed.extend(sentences.into_iter().map(|wrong| format!("{kind}: {wrong}")));
        missed.extend((more > 0).then(|| format!("{kind}: and {more} more")));
    }
    missed
}

/// The tables of the report.
pub fn tables(outcomes: &[OutageOutcome], limit: Duration) -> Vec<(String, Table)> {
    let groups = groups(outcomes);
    let mut over = Table::new(&[
        "dark for",
        "trials",
        "ended with an error",
        "truncated without error",
        "bytes wrong",
        "busy suspect, max s",
        "idle suspect, max s",
        "first byte p50 s",
        "max s",
        "slowest",
    ]);
    for ((length, new_port), group) in &groups {
        let directions = || group.iter().flat_map(|outcome| &outcome.directions);
        let broken = directions().filter(|it| it.broken.is_some()).count();
        let truncated = directions().filter(|it| it.truncated).count();
        let is_resumed = *length < limit;
        let wrong = directions().filter(|it| it.fault.is_some()).count();
        let noticed = [0, 1].map(|which| longest(group.iter().map(|outcome| outcome.noticed[which])));
        let slowest = directions().max_by_key(|it| it.resumed.unwrap_or(Duration::MAX));
        let mut resumed: Vec<_> = directions().filter_map(|it| it.resumed).collect();
        resumed.sort_unstable();
        over.row(vec![
            kind(*length, *new_port),
            group.len().to_string(),
            format!("{broken} of {}", directions().count()),
            truncated.to_string(),
            wrong.to_string(),
            noticed[0].clone(),
            noticed[1].clone(),
            resumed.get(resumed.len() / 2).map_or_else(|| "never".to_owned(), seconds),
            if is_resumed { longest(directions().map(|it| it.resumed)) } else { String::new() },
            slowest.filter(|_| is_resumed).map_or_else(String::new, |it| it.name.to_owned()),
        ]);
    }
    vec![
        ("Times since the link was interrupted and since it returned".to_owned(), over),
        (
            "First byte after the link's return, longest of all trials, in seconds".to_owned(),
            by_direction(&groups),
        ),
    ]
}

/// The longest time to the first byte of each direction.
pub fn by_direction_max(outcomes: &[OutageOutcome]) -> Vec<Slowest> {
    let groups = groups(outcomes);
    names(outcomes)
        .into_iter()
        .map(|name| {
            let of = |group: &Vec<&OutageOutcome>| {
                let all: Option<Vec<Duration>> =
                    group.iter().flat_map(|outcome| named(outcome, name)).map(|it| it.resumed).collect();
                all.and_then(|all| all.into_iter().max())
            };
            (name, groups.iter().map(|((length, port), group)| (kind(*length, *port), of(group))).collect())
        })
        .collect()
}

fn by_direction(groups: &Groups<'_>) -> Table {
    let kinds: Vec<String> = groups.keys().map(|(length, new_port)| kind(*length, *new_port)).collect();
    let heading: Vec<&str> = ["of"].into_iter().chain(kinds.iter().map(String::as_str)).collect();
    let mut table = Table::new(&heading);
    let all: Vec<OutageOutcome> = groups.values().flatten().map(|outcome| (*outcome).clone()).collect();
    for name in names(&all) {
        let cells = groups
            .values()
            .map(|group| longest(group.iter().flat_map(|outcome| named(outcome, name)).map(|it| it.resumed)));
        table.row([name.to_owned()].into_iter().chain(cells).collect());
    }
    table
}

fn wrongs(outcome: &OutageOutcome, resumed_max: Duration) -> Vec<String> {
    let mut wrongs = outcome.wrongs();
    for it in &outcome.directions {
        match it.resumed {
            Some(resumed) if resumed <= resumed_max => {}
            Some(resumed) => {
                wrongs.push(format!(
                    "{}: first byte {} s after the link's return",
                    it.name,
                    seconds(&resumed)
                ));
            }
            None => wrongs.push(format!("{}: no byte after the link's return", it.name)),
        }
    }
    for ((which, noticed), max) in ["busy", "idle"].into_iter().zip(outcome.noticed).zip(NOTICED_MAX) {
        // Shorter outages need not be noticed.
        if outcome.dark > max && noticed.is_none_or(|noticed| noticed > max) {
            wrongs.push(format!(
                "the {which} tunnel was suspect after {}, not within {max:?}",
                longest([noticed].into_iter())
            ));
        }
    }
    wrongs
}

fn groups(outcomes: &[OutageOutcome]) -> Groups<'_> {
    let mut groups = Groups::new();
    for outcome in outcomes {
        groups.entry((outcome.plan.length, outcome.plan.new_port)).or_default().push(outcome);
    }
    groups
}

fn names(outcomes: &[OutageOutcome]) -> Vec<&'static str> {
    outcomes.first().map(|outcome| outcome.directions.iter().map(|it| it.name).collect()).unwrap_or_default()
}

fn named<'a>(outcome: &'a OutageOutcome, name: &str) -> impl Iterator<Item = &'a Direction> {
    outcome.directions.iter().filter(move |it| it.name == name)
}

fn kind(length: Duration, new_port: bool) -> String {
    format!("{} s, {} port", length.as_secs(), if new_port { "new" } else { "same" })
}

fn longest(times: impl Iterator<Item = Option<Duration>>) -> String {
    let times: Option<Vec<Duration>> = times.collect();
    times.map_or_else(|| "never".to_owned(), |times| times.iter().max().map_or_else(String::new, seconds))
}

fn seconds(time: &Duration) -> String {
    format!("{:.3}", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use ::tests::outage::{Memory, OutagePlan};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(300);

    fn outcome(length: u64, direction: Direction) -> OutageOutcome {
        let length = Duration::from_secs(length);
        let plan = OutagePlan { length, new_port: false, seed: 7 };
        let noticed = [Some(Duration::from_secs(2)), Some(Duration::from_secs(7))];
        OutageOutcome { plan, dark: length, noticed, directions: vec![direction], memory: Memory::default() }
    }

    fn good() -> Direction {
        Direction {
            name: "download",
            resumed: Some(Duration::from_millis(300)),
            broken: None,
            truncated: false,
            fault: None,
            delivered: Vec::new(),
        }
    }

    #[test]
    fn every_missed_bound_is_named_with_its_trial() {
        assert_eq!(missed(&[outcome(30, good())], LIMIT, false), Vec::<String>::new());
        let broken = Some((Duration::from_secs(9), "reset".to_owned()));
        for (wrong, part) in [
            (Direction { resumed: Some(Duration::from_millis(1001)), ..good() }, "1.001 s after"),
            (Direction { resumed: None, ..good() }, "no byte after"),
            (Direction { truncated: true, ..good() }, "as if it were whole"),
            (Direction { fault: Some("3 bytes are missing".to_owned()), ..good() }, "3 bytes are missing"),
            (Direction { broken, ..good() }, "reset"),
        ] {
            let missed = missed(&[outcome(30, wrong)], LIMIT, false);
            assert!(missed.iter().any(|it| it.contains(part) && it.contains("trial 7")), "{missed:?}");
        }
        let late = OutageOutcome { noticed: [None, None], ..outcome(30, good()) };
        assert_eq!(missed(&[late], LIMIT, false).len(), 2);
    }

    #[test]
    fn beyond_the_limit_only_an_error_is_accepted() {
        assert!(missed(&[outcome(310, good())], LIMIT, false)[0].contains("no error"));
        let broken = Some((Duration::from_secs(301), "reset".to_owned()));
        assert!(missed(&[outcome(310, Direction { broken, ..good() })], LIMIT, false).is_empty());
        assert!(
            missed(&[outcome(310, Direction { truncated: true, ..good() })], LIMIT, false)[0]
                .contains("whole")
        );
    }

    #[test]
    fn many_misses_are_counted_and_not_all_listed() {
        let outcomes = vec![outcome(30, Direction { resumed: None, ..good() }); 9];
        let missed = missed(&outcomes, LIMIT, false);
        assert_eq!((missed.len(), missed[LISTED_MAX].contains("4 more")), (LISTED_MAX + 1, true));
    }
}
