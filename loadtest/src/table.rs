//! Tables of text, for terminals and for Markdown.

/// Rows under a heading. All columns but the first are right-aligned.
#[derive(Debug)]
pub struct Table(Vec<Vec<String>>);

impl Table {
    /// A table with this heading and no rows.
    pub fn new(heading: &[&str]) -> Self {
        Self(vec![heading.iter().map(|&cell| cell.to_owned()).collect()])
    }

    /// Adds a row of as many cells as the heading has.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.0[0].len(), "{cells:?}");
        self.0.push(cells);
    }

    /// The table as aligned text lines.
    pub fn text(&self) -> String {
        let width = |column: usize| self.0.iter().map(|row| row[column].len()).max().unwrap_or_default();
        let mut text = String::new();
        for row in &self.0 {
            let mut line = format!("  {:<1$}", row[0], width(0));
            for (column, cell) in row.iter().enumerate().skip(1) {
                line += &format!("  {:>1$}", cell, width(column));
            }
            text += &format!("{}\n", line.trim_end());
        }
        text
    }

    /// The table in Markdown's syntax.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = format!("|{}\n", "---|".repeat(self.0[0].len()));
        line(&self.0[0]) + &rule + &self.0[1..].iter().map(|row| line(row)).collect::<String>()
    }
}

/// Formats bytes as megabytes (10^6) with one decimal.
pub fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}
