//! Prints to standard output and standard error. No other module prints.

use std::error::Error;
use std::io::{self, ErrorKind, Write};

use proto::name_text::is_invisible;

/// Prints the lines. A reader that has stopped (`| head`) is no error.
pub(crate) fn lines(lines: &[String]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    forgive_hang_up(
        lines.iter().try_for_each(|line| writeln!(out, "{}", visible_lines(line))).and_then(|()| out.flush()),
    )
}

/// Prints the lines of a watch. `false` if the reader has stopped.
pub(crate) fn still_read(lines: &[String]) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    match lines
        .iter()
        .try_for_each(|line| writeln!(out, "{}", visible_lines(line)))
        .and_then(|()| out.flush())
    {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

/// Prints a note for people to standard error, apart from the output for programs.
pub(crate) fn note(text: &str) -> io::Result<()> {
    forgive_hang_up(writeln!(io::stderr().lock(), "{}", visible_lines(text)))
}

/// Prints a document unchanged, without a further line end.
pub(crate) fn document(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    forgive_hang_up(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Prints bytes that no terminal shows. Unlike for texts, a reader that has stopped is an error.
pub(crate) fn bytes(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush())
}

/// Aligns the columns of the rows, and returns them as lines.
pub(crate) fn columns<R: AsRef<[String]>>(rows: &[R]) -> Vec<String> {
    let visible_row = |row: &R| row.as_ref().iter().map(|cell| visible(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(visible_row).collect();
    let mut widths = vec![0; rows.iter().map(Vec::len).max().unwrap_or(0)];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("   ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// The text of an empty cell in a table.
pub(crate) fn none() -> String {
    "<none>".to_owned()
}

/// A text that may be missing, in one cell of a table.
pub(crate) fn or_none(text: &str) -> String {
    if text.is_empty() { none() } else { text.to_owned() }
}

/// A list in one cell of a table.
pub(crate) fn listed(names: &[String]) -> String {
    if names.is_empty() { none() } else { names.join(",") }
}

/// Escapes control and invisible characters of untrusted text, which must neither steer the terminal, nor begin a line,
/// nor look like another text. Valid JSON keeps its meaning.
pub(crate) fn visible(text: &str) -> String {
    let mut units = [0; 2];
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_invisible(character) {
            // As JSON escapes it: one escape for each unit of UTF-16.
            shown.extend(character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Escapes control characters in each line, and keeps the line ends.
fn visible_lines(text: &str) -> String {
    text.split_inclusive('\n')
        .map(|line| match line.strip_suffix('\n') {
            Some(line) => visible(line) + "\n",
            None => visible(line),
        })
        .collect()
}

/// Prints an error with its causes to standard error.
pub(crate) fn failure(error: &dyn Error) {
    let mut text = format!("error: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    // A closed standard error cannot be reported; the exit code still tells of the failure.
    let _ = writeln!(io::stderr().lock(), "{}", visible_lines(&text));
}

fn forgive_hang_up(printed: io::Result<()>) -> io::Result<()> {
    match printed {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
