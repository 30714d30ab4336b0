//! The commands in `tombolo --help`, grouped by the people who type them.

use clap::Command;

/// The commands of one kind of people, and of one heading.
struct CommandGroup {
    heading: &'static str,
    /// Each command by its words, such as `doctor server`.
    commands: &'static [&'static str],
}

const GROUPS: [CommandGroup; 6] = [
    CommandGroup {
        heading: "Callers, who use kubectl:",
        commands: &["kubeconfig", "credential", "summarize", "proxy", "passthrough", "vip", "doctor"],
    },
    CommandGroup {
        heading: "Operators, who run the server:",
        commands: &["cluster", "token", "agent", "user", "policy", "audit", "ca", "server", "doctor server"],
    },
    CommandGroup { heading: "Sites, where agents run:", commands: &["rbac", "doctor agent"] },
    CommandGroup { heading: "Host clusters, which carry control planes:", commands: &["tenant"] },
    CommandGroup { heading: "Workers, where node-lb runs:", commands: &["node", "doctor node"] },
    CommandGroup { heading: "Everybody:", commands: &["completion", "version", "help"] },
];

/// Columns of the help, as wide as a terminal at least.
const HELP_COLUMNS: usize = 80;

/// The text of `help`, which clap adds by itself when it parses.
const HELP_ABOUT: &str = "Print the help of a command";

/// The same command with a help that lists its subcommands in groups. Each of these has its own help as before.
pub(super) fn with_groups(command: Command) -> Command {
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}{}\n{{options}}{{after-help}}",
        groups(&command),
        heading(&command, "Options:"),
    );
    command.help_template(template)
}

fn groups(command: &Command) -> String {
    let width = GROUPS.iter().flat_map(|group| group.commands).map(|words| words.len()).max().unwrap_or(0);
    let literal = command.get_styles().get_literal();
    let mut text = String::new();
    for CommandGroup { heading: title, commands } in &GROUPS {
        text.push_str(&heading(command, title));
        for words in *commands {
            let about = about(command, words);
            let mut lines = wrapped(&about, HELP_COLUMNS - width - 4).into_iter();
            let first = lines.next().unwrap_or_default();
            text.push_str(&format!("\n  {literal}{words}{literal:#}{:1$}  {first}", "", width - words.len()));
            for line in lines {
                text.push_str(&format!("\n{:1$}{line}", "", width + 4));
            }
        }
        text.push_str("\n\n");
    }
    text
}

fn heading(command: &Command, text: &str) -> String {
    let style = command.get_styles().get_header();
    format!("{style}{text}{style:#}")
}

/// The short help of a command, which is given by its words.
fn about(command: &Command, words: &str) -> String {
    let found = words.split(' ').try_fold(command, |command, word| command.find_subcommand(word));
    found.and_then(Command::get_about).map_or_else(|| HELP_ABOUT.to_owned(), ToString::to_string)
}

/// Breaks a text into lines of at most `columns`, between words.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;
    use crate::args::CommandLine;

    #[test]
    fn every_visible_command_is_in_one_group_and_every_entry_is_one() {
        let command = CommandLine::command();
        let listed: Vec<&str> = GROUPS.iter().flat_map(|group| group.commands).copied().collect();
        let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(Command::get_name);

        let expected: BTreeSet<&str> = visible.chain(["help"]).collect();

        let whole = listed.iter().copied().filter(|words| !words.contains(' '));
        assert_eq!(whole.collect::<BTreeSet<_>>(), expected);
        assert_eq!(listed.iter().collect::<BTreeSet<_>>().len(), listed.len(), "one is there twice");
        for words in listed {
            let is_there =
                words.split(' ').try_fold(&command, |found, word| found.find_subcommand(word)).is_some();
            assert!(is_there || words == "help", "{words}");
        }
    }

    #[test]
    fn lines_break_between_words_and_keep_every_word() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("incomprehensible", 3), ["incomprehensible"]);
        assert_eq!(wrapped("", 3), [""]);
    }
}
