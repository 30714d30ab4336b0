//! Writes state at a scrape, in Prometheus' text exposition format.

use std::fmt::{Display, Write as _};

use metrics_exporter_prometheus::formatting::{sanitize_label_value, write_help_line, write_type_line};

/// The text of one scrape. Each metric family is written once, with all of its series.
#[derive(Debug, Default)]
pub struct Exposition(String);

/// A metric family that is being written.
#[derive(Debug)]
pub struct Family<'a> {
    text: &'a mut String,
    name: &'a str,
}

impl Exposition {
    /// Begins a gauge with its name and its help text.
    pub fn gauge<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        self.family(name, help, "gauge")
    }

    /// Begins a counter with its name, which ends in `_total`, and its help text.
    pub fn counter<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        self.family(name, help, "counter")
    }

    /// The complete text of the scrape.
    pub(super) fn into_text(self) -> String {
        self.0
    }

    fn family<'a>(&'a mut self, name: &'a str, help: &str, kind: &str) -> Family<'a> {
        write_help_line(&mut self.0, name, None, None, help);
        write_type_line(&mut self.0, name, None, None, kind);
        Family { text: &mut self.0, name }
    }
}

impl Family<'_> {
    /// Writes one series: its labels and its value.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) -> &mut Self {
        self.text.push_str(self.name);
        for (n, (label, word)) in labels.iter().enumerate() {
            self.text.push(if n == 0 { '{' } else { ',' });
            self.text.push_str(label);
            self.text.push_str("=\"");
            self.text.push_str(&sanitize_label_value(word));
            self.text.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{end} {value}");
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_written_as_prometheus_reads_them() {
        let mut text = Exposition::default();

        text.gauge("a", "What \"it\" is.").sample(&[], 0.25);
        text.counter("b_total", "Two.")
            .sample(&[("x", "1"), ("y", "q\"\n")], 7)
            .sample(&[("x", "2"), ("y", "")], u64::MAX);

        assert_eq!(
            text.into_text(),
            "# HELP a What \"it\" is.\n# TYPE a gauge\na 0.25\n\
             # HELP b_total Two.\n# TYPE b_total counter\nb_total{x=\"1\",y=\"q\\\"\\n\"} 7\n\
             b_total{x=\"2\",y=\"\"} 18446744073709551615\n"
        );
    }
}
