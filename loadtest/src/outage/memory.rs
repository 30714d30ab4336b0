//! The table of memory use during outages.

use std::collections::BTreeMap;
use std::time::Duration;

use ::tests::outage::{Memory, OutageOutcome, Resident};

use crate::spread::Spread;
use crate::table::Table;

/// One row for the agents of each length, and one for the server, which all trials share.
pub fn table(outcomes: &[OutageOutcome]) -> (String, Table) {
    let mut table = Table::new(&[
        "of",
        "trials",
        "streams",
        "buffered KiB",
        "before MiB",
        "dark MiB",
        "after MiB",
        "growth for each KiB",
    ]);
    let mut lengths: BTreeMap<Duration, Vec<Memory>> = BTreeMap::new();
    for outcome in outcomes {
        lengths.entry(outcome.plan.length).or_default().push(outcome.memory);
    }
    for (length, trials) in &lengths {
        let agent = |of: fn(&Memory) -> Resident| median(trials.iter().map(|it| of(it).agent));
        let growth = trials.iter().map(|it| it.dark.agent.saturating_sub(it.before.agent)).max();
        let resident = [agent(|it| it.before), agent(|it| it.dark), agent(|it| it.after)];
        let name = format!("an agent, dark for {} s", length.as_secs());
        table.row(row(name, trials, resident, growth.unwrap_or_default() as f64));
    }
    let trials: Vec<Memory> = lengths.into_values().flatten().collect();
    let server = |of: fn(&Memory) -> Resident| trials.iter().map(move |it| of(it).server);
    let least = server(|it| it.before).min().unwrap_or_default();
    let [dark, after] =
        [server(|it| it.dark).max(), server(|it| it.after).max()].map(|most| most.unwrap_or_default());
    let growth = dark.saturating_sub(least) as f64 / trials.len().max(1) as f64;
    let resident = [least, dark, after].map(|bytes| bytes as f64);
    table.row(row("the server".to_owned(), &trials, resident, growth));
    let title = "Resident memory under traffic, at the end of the outage, and under traffic again: the median of the agents, and \
                 the largest growth of one; for the server the minimum before and the maximum later, and its growth for \
                 each trial. Streams of all trials, and the most bytes that were buffered in one trial";
    (title.to_owned(), table)
}

fn row(name: String, trials: &[Memory], resident: [f64; 3], growth: f64) -> Vec<String> {
    let streams: u32 = trials.iter().map(|it| it.streams).sum();
    let buffered = trials.iter().map(|it| it.held_bytes).max().unwrap_or_default();
    let [before, dark, after] = resident.map(|bytes| format!("{:.1}", bytes / f64::from(1 << 20)));
    let kib = |bytes: f64| format!("{:.0}", bytes / 1024.0);
    vec![
        name,
        trials.len().to_string(),
        streams.to_string(),
        kib(buffered as f64),
        before,
        dark,
        after,
        kib(growth),
    ]
}

fn median(bytes: impl Iterator<Item = u64>) -> f64 {
    Spread::of(bytes.map(|bytes| bytes as f64)).map_or(0.0, |spread| spread.median)
}

#[cfg(test)]
mod tests {
    use ::tests::outage::OutagePlan;

    use super::*;

    #[test]
    fn agents_have_a_row_for_each_length_and_the_server_has_one() {
        let mib = |server: u64, agent: u64| Resident { server: server << 20, agent: agent << 20 };
        let outcome = |length, dark| {
            let plan = OutagePlan { length: Duration::from_secs(length), new_port: false, seed: 1 };
            let memory =
                Memory { before: mib(20, 8), dark, after: mib(21, 9), streams: 6, held_bytes: 3 << 20 };
            OutageOutcome { plan, dark: plan.length, noticed: [None; 2], directions: Vec::new(), memory }
        };

        let (_, table) = table(&[outcome(30, mib(22, 9)), outcome(30, mib(24, 11)), outcome(3, mib(23, 10))]);

        let text: Vec<String> =
            table.text().lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(text[1], "an agent, dark for 3 s 1 6 3072 8.0 10.0 9.0 2048");
        assert_eq!(text[2], "an agent, dark for 30 s 2 12 3072 8.0 10.0 9.0 3072");
        assert_eq!(text[3], "the server 3 18 3072 20.0 24.0 21.0 1365");
    }
}
