//! `docs/security.md` and `docs/breaks.md` name tests that exist. No threat is left out without a reason.

use std::fs;

use daemon::StateFile;
use tests::sources;

/// Number of threats in each group of the catalogue.
const GROUPS: [(char, usize); 10] =
    [('A', 13), ('B', 11), ('C', 18), ('D', 9), ('E', 9), ('F', 12), ('G', 7), ('H', 6), ('I', 3), ('J', 8)];

/// The threats that are not shown, or not in full, and the reasons. A further entry takes back a promise.
const PENDING: &[(&str, &str)] = &[
    ("A12", "what kubelet and API server cut short themselves, beside the tunnel, too (decision 0045)"),
    ("B5", "letters of two scripts that look alike"),
    ("D8", "paths of API servers of other kinds, which are non-resource URLs"),
    ("E7", "by design: the gateway relays WebSockets and speaks none"),
    ("F6", "quinn lets the last datagram pass the threefold limit: fourfold at worst"),
    ("F12", "by design: streams of QUIC, no HTTP/3"),
];

#[test]
fn every_threat_has_existing_tests_or_is_listed_as_pending() {
    let page = fs::read_to_string(sources::workspace().join("docs/security.md")).expect("the page");
    let sources = sources::all();
    let of_group = |(group, count): (char, usize)| (1..=count).map(move |number| format!("{group}{number}"));
    let wanted: Vec<String> = GROUPS.into_iter().flat_map(of_group).collect();

    let (mut found, mut pending) = (Vec::new(), Vec::new());
    for row in page.lines().filter(|line| is_of_the_catalogue(line)) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [id, _, tests, missing] = cells.as_slice() else { panic!("four columns: {row}") };
        let tests: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        for test in &tests {
            assert!(sources::has_test(&sources, test), "{id}: there is no test {test}");
        }
        assert!(!tests.is_empty() || !missing.is_empty(), "{id}: neither a test nor why there is none");
        found.push((*id).to_owned());
        pending.extend((!missing.is_empty()).then_some((*id, *missing)));
    }
    assert_eq!(found, wanted);
    assert_eq!(pending, PENDING);
}

#[test]
fn every_break_is_noticed_by_existing_tests() {
    let page = fs::read_to_string(sources::workspace().join("docs/breaks.md")).expect("the page");
    let sources = sources::all();
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| broken |"));
    let mut count = 0;
    for row in rows {
        let (_, noticed_by) = row.trim_matches('|').split_once('|').expect("two columns");
        let tests: Vec<&str> = noticed_by.split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "noticed by nobody: {row}");
        for test in tests {
            assert!(sources::has_test(&sources, test), "there is no test {test}: {row}");
        }
        count += 1;
    }
    assert!(count > 40, "{count} rows");
}

/// The page names every file that a daemon keeps, and the cost that the daemon's own errors name.
#[test]
fn every_state_file_is_on_the_page_with_the_cost_of_its_loss() {
    let page = fs::read_to_string(sources::workspace().join("docs/security.md")).expect("the page");
    let (_, section) = page.split_once("## Files of the state directory").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("another section");
    let rows: Vec<(&str, &str)> = section
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
            Some((cells.next()?.trim_end_matches('`'), cells.nth(1)?))
        })
        .collect();

    let ours = StateFile::ALL.iter().map(|file| (file.name(), file.cost()));
    assert_eq!(rows[..StateFile::ALL.len()], ours.collect::<Vec<_>>());
    let audit: Vec<&str> = rows[StateFile::ALL.len()..].iter().map(|(file, _)| *file).collect();
    for file in [audit::CHECKPOINTS_FILE, audit::PUBLIC_KEY_FILE, "audit-NUMBER.log"] {
        assert!(audit.contains(&&*format!("audit/{file}")), "{file}: {audit:?}");
    }
}

/// Returns true if the line is a row `| A1 | …` of the catalogue.
fn is_of_the_catalogue(line: &str) -> bool {
    let id = line.strip_prefix("| ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    let number = id.strip_prefix(|first: char| first.is_ascii_uppercase());
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}
