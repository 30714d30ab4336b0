//! Writes the results of a run into its section of `docs/measuring.md`.

use std::fs;
use std::io;
use std::path::Path;

use super::OutageFlags;
use crate::report::Report;

/// The heading of the section, which ends before the next heading of the same level.
const HEADING: &str = "## An outage, as it was measured\n";

/// Replaces the section of the page with the results of a run.
///
/// # Errors
/// The page cannot be read or written, or has no such section.
pub fn write(page: &Path, flags: &OutageFlags, report: &Report) -> io::Result<()> {
    let text = fs::read_to_string(page)?;
    let text = replace_section(&text, &section(flags, report)).ok_or_else(|| {
        io::Error::other(format!("{} has no section {:?}", page.display(), HEADING.trim_end()))
    })?;
    fs::write(page, text)
}

fn replace_section(page: &str, section: &str) -> Option<String> {
    let (before, old) = page.split_once(HEADING)?;
    let after = old.find("\n## ").map_or("", |at| &old[at..]);
    Some(format!("{before}{HEADING}\n{section}{after}"))
}

fn section(flags: &OutageFlags, report: &Report) -> String {
    let OutageFlags { lengths, trials, trials_beyond, limit, link, every, .. } = flags;
    let lengths = lengths.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    format!(
        "Written by `make chaos CHAOS_FLAGS=\"outage --lengths {lengths} --trials {trials} --trials-beyond {trials_beyond} \
         --limit {limit} --every {every} --seed {} --plots docs/plots --write docs/measuring.md\"`. Every site has a link of \
         its own (`{link}`), and its agents stand behind a masquerading node.\n\n{}\n\
         Delivered over time across an outage: [download](plots/outage-download.svg), [exec](plots/outage-exec.svg),\n\
         [watch](plots/outage-watch.svg); [the first byte of every trial](plots/outage-resumed.svg).\n",
        report.seed(),
        report.markdown(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_section_changes_wherever_it_stands() {
        for after in ["", "\n## More\n\nText.\n"] {
            let page = format!("# Page\n\n{HEADING}\nOld\n\n### Part\n{after}");

            let page = replace_section(&page, "New\n").unwrap();

            assert_eq!(page, format!("# Page\n\n{HEADING}\nNew\n{after}"));
        }
        assert_eq!(replace_section("# Page\n", "New\n"), None);
    }
}
