//! Reads the blocks marked `console` in Markdown pages: their commands, and the reasons why some are not run.

use crate::language::TextFile;
use crate::layers::Violation;

/// Opens the comment before a block that no test runs. The reason follows, and ends with a full stop.
const NOT_RUN: &str = "<!-- not run:";
/// Closes any comment of HTML.
const COMMENT_END: &str = "-->";
/// Opens and closes a block of code.
const FENCE: &str = "```";
/// The word behind the first fence of a block that is read.
const LANGUAGE: &str = "console";
/// The prompt before a command. Other lines of a block show the output.
const PROMPT: &str = "$ ";
/// A shorter reason for not running a block explains nothing.
const REASON_WORDS_MIN: usize = 4;

/// The pages whose blocks a test runs in order, and the name of that test.
pub const SCENARIOS: [(&str, &str); 2] = [
    ("README.md", "the_readme_reaches_a_site_in_five_commands_after_installation"),
    ("docs/start/without-kubernetes.md", "the_page_without_kubernetes_works_as_it_is_written"),
];

/// A block of commands that a reader types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleBlock {
    /// The line of its first fence, from 1.
    pub line: usize,
    /// The heading above it, without its marks.
    pub section: String,
    /// The reason why no test runs it, if it has one.
    pub not_run: Option<String>,
    /// The commands without their prompts, each with its continuation lines.
    pub commands: Vec<String>,
}

/// All blocks of a page, in order.
///
/// # Errors
/// A block without a command, a reason that is not a sentence, or a reason that stands before something else.
pub fn blocks(page: &TextFile) -> Result<Vec<ConsoleBlock>, Violation> {
    let fault = |line: usize, says: &str| Err(Violation::at(&page.path, line, says));
    let mut lines = page.text.lines().zip(1..).map(|(text, line)| (line, text.trim()));
    let (mut found, mut section, mut marker) = (Vec::new(), String::new(), None);
    while let Some((line, text)) = lines.next() {
        if let Some(begin) = text.strip_prefix(NOT_RUN) {
            let reason = comment(begin, &mut lines);
            if !is_sentence(&reason) {
                return fault(line, "the reason for not running a block is a sentence of four words or more");
            }
            marker = Some((line, reason));
        } else if text == [FENCE, LANGUAGE].concat() {
            let commands = commands(&mut lines);
            if commands.is_empty() {
                return fault(line, "a console block has a line that begins with `$ `");
            }
            let not_run = marker.take().map(|(_, reason)| reason);
            found.push(ConsoleBlock { line, section: section.clone(), not_run, commands });
        } else if let Some((line, _)) = marker.as_ref().filter(|_| !text.is_empty()) {
            return fault(*line, "a reason for not running a block stands directly before a console block");
        } else if text.starts_with(FENCE) {
            lines.by_ref().take_while(|(_, text)| *text != FENCE).for_each(drop);
        } else if text.starts_with('#') {
            text.trim_start_matches('#').trim().clone_into(&mut section);
        }
    }
    match marker {
        Some((line, _)) => {
            fault(line, "a reason for not running a block stands directly before a console block")
        }
        None => Ok(found),
    }
}

/// The text of a comment, which may have several lines.
fn comment<'a>(begin: &str, lines: &mut impl Iterator<Item = (usize, &'a str)>) -> String {
    let mut text = begin.trim().to_owned();
    while !text.ends_with(COMMENT_END) {
        let Some((_, line)) = lines.next() else { break };
        text.push(' ');
        text.push_str(line);
    }
    text.trim_end_matches(COMMENT_END).trim().to_owned()
}

/// The commands up to the second fence of a block, which is consumed.
fn commands<'a>(lines: &mut impl Iterator<Item = (usize, &'a str)>) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut goes_on = false;
    for (_, line) in lines.by_ref().take_while(|(_, line)| *line != FENCE) {
        match line.strip_prefix(PROMPT) {
            Some(command) => commands.push(command.to_owned()),
            None if goes_on => {
                let command = commands.last_mut().expect("a line before it goes on");
                command.push_str("\n    ");
                command.push_str(line);
            }
            None => continue,
        }
        goes_on = line.ends_with('\\');
    }
    commands
}

fn is_sentence(text: &str) -> bool {
    let begins = text.starts_with(|first: char| first.is_uppercase() || first == '`');
    begins && text.ends_with('.') && text.split_whitespace().count() >= REASON_WORDS_MIN
}

#[cfg(test)]
mod tests;
