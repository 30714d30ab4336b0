//! Parses the gauges of a daemon's `/metrics`.

use std::collections::BTreeMap;

/// Name endings of gauges that are not counts of resources in use, but amounts or limits.
const AMOUNTS: [&str; 7] = ["_seconds", "_bytes", "_ratio", "_info", "_depth", "_max", "_max_fds"];

/// The gauges of one scrape, by name with labels.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Gauges(BTreeMap<String, f64>);

impl Gauges {
    /// Parses the text format of Prometheus.
    pub fn parse(text: &str) -> Self {
        let mut gauges = BTreeMap::new();
        let mut names = Vec::new();
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("# TYPE ").and_then(|rest| rest.strip_suffix(" gauge")) {
                names.push(name.to_owned());
            }
        }
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let name = series.split('{').next().unwrap_or(series);
            if let (true, Ok(value)) = (names.iter().any(|known| known == name), value.parse()) {
                gauges.insert(series.to_owned(), value);
            }
        }
        Self(gauges)
    }

    /// The sum over all series of a gauge; 0 if there is none.
    pub fn sum(&self, name: &str) -> f64 {
        let is_of = |series: &str| series == name || series.starts_with(&format!("{name}{{"));
        self.0.iter().filter(|(series, _)| is_of(series)).map(|(_, value)| value).sum()
    }

    /// The sum over the series of a gauge whose labels begin with this text, such as `cluster="idle-`; 0 if
    /// there is none.
    pub fn sum_of(&self, name: &str, labels: &str) -> f64 {
        let begin = format!("{name}{{{labels}");
        self.0.iter().filter(|(series, _)| series.starts_with(&begin)).map(|(_, value)| value).sum()
    }

    /// The gauges that count resources in use, such as tasks, streams, connections and files, summed over
    /// their labels.
    pub fn in_use(&self) -> BTreeMap<String, f64> {
        let mut in_use = BTreeMap::new();
        for (series, value) in &self.0 {
            let name = series.split('{').next().unwrap_or(series);
            if !AMOUNTS.iter().any(|end| name.ends_with(end)) {
                *in_use.entry(name.to_owned()).or_insert(0.0) += value;
            }
        }
        in_use
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a_connected Tunnels.\n# TYPE a_connected gauge\na_connected{cluster=\"x\"} 2\n\
                        a_connected{cluster=\"y\"} 1\n\n# TYPE b_total counter\nb_total 7\n\
                        # TYPE rss_bytes gauge\nrss_bytes 4096\n# TYPE c gauge\nc 5\n";

    #[test]
    fn a_gauge_is_summed_over_its_labels_and_a_counter_is_none() {
        let gauges = Gauges::parse(TEXT);
        assert_eq!(gauges.sum("a_connected"), 3.0);
        assert_eq!(gauges.sum("b_total"), 0.0);
        assert_eq!(gauges.sum_of("a_connected", "cluster=\"x"), 2.0);
    }

    #[test]
    fn resources_in_use_leave_out_amounts() {
        let in_use = Gauges::parse(TEXT).in_use();
        assert_eq!(in_use, BTreeMap::from([("a_connected".to_owned(), 3.0), ("c".to_owned(), 5.0)]));
    }
}
