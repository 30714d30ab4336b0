//! A page of a program's commands, from the definition of its command line.

use clap::{Arg, ArgAction, Command};

/// The page: `head`, and then a section for each command that is not hidden. The command has to be built.
#[must_use]
pub fn commands_page(head: &str, command: &Command) -> String {
    let mut page = format!("{}\n", head.trim_end());
    section(command, command.get_name(), &mut page);
    page
}

fn section(command: &Command, words: &str, page: &mut String) {
    page.push_str(&format!("\n## {words}\n\n"));
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    page.push_str(&format!("{}\n\n```text\n{}\n```\n", sentences(&about), usage(command, words)));
    let below: Vec<&Command> = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set() && command.get_name() != "help")
        .collect();
    if !below.is_empty() {
        page.push_str("\n| command | does |\n|---|---|\n");
        for command in &below {
            let inner = format!("{words} {}", command.get_name());
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            page.push_str(&format!("| [{inner}](#{}) | {} |\n", inner.replace(' ', "-"), cell(&about)));
        }
    }
    let arguments: Vec<&Arg> = command.get_arguments().filter(|argument| is_shown(argument)).collect();
    if !arguments.is_empty() {
        page.push_str("\n| argument | meaning |\n|---|---|\n");
        for argument in arguments {
            page.push_str(&format!("| {} | {} |\n", spelled(argument), meaning(argument)));
        }
    }
    if let Some(after) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        page.push_str(&format!("\n```text\n{}\n```\n", after.to_string().trim_end()));
    }
    for command in below {
        section(command, &format!("{words} {}", command.get_name()), page);
    }
}

/// Help and version are everywhere. A global argument is shown where it is defined.
fn is_shown(argument: &Arg) -> bool {
    let is_help = matches!(
        argument.get_action(),
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    );
    !argument.is_hide_set() && !is_help
}

/// The line of usage, with the words by which a person types the command.
fn usage(command: &Command, words: &str) -> String {
    let usage = command.clone().bin_name(words).render_usage().to_string();
    usage.trim_start_matches("Usage:").lines().map(str::trim).collect::<Vec<_>>().join("\n")
}

fn spelled(argument: &Arg) -> String {
    let takes_value = argument.get_action().takes_values();
    let values =
        argument.get_value_names().into_iter().flatten().map(ToString::to_string).collect::<Vec<_>>();
    let values = if takes_value { values.join(" ") } else { String::new() };
    let long = argument.get_long().map(|long| format!("--{long}"));
    let short = argument.get_short().map(|short| format!("-{short}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    let text = if names.is_empty() { values } else { format!("{} {values}", names.join(", ")) };
    cell(&format!("`{}`", text.trim()))
}

fn meaning(argument: &Arg) -> String {
    let help = argument.get_long_help().or_else(|| argument.get_help());
    let mut parts = vec![sentences(&help.map(ToString::to_string).unwrap_or_default())];
    let words: Vec<String> = match argument.get_action().takes_values() {
        true => argument
            .get_possible_values()
            .iter()
            .filter(|word| !word.is_hide_set())
            .map(|word| format!("`{}`", word.get_name()))
            .collect(),
        false => Vec::new(),
    };
    if !words.is_empty() {
        parts.push(format!("One of {}.", words.join(", ")));
    }
    let defaults: Vec<String> =
        argument.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
    if !defaults.is_empty() && argument.get_action().takes_values() {
        parts.push(format!("Default: {}.", defaults.join(", ")));
    }
    if let Some(variable) = argument.get_env() {
        parts.push(format!("Variable: `{}`.", variable.to_string_lossy()));
    }
    if argument.is_required_set() {
        parts.push("Required.".to_owned());
    }
    cell(&parts.join(" "))
}

/// The paragraphs of a help text, whose first one has no full stop at its end.
fn sentences(help: &str) -> String {
    let help = escaped(help.trim());
    let paragraphs =
        help.split("\n\n").map(|text| match text.ends_with(['.', ':', '?']) || text.is_empty() {
            true => text.to_owned(),
            false => format!("{text}."),
        });
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

/// Text of a cell is one line, in which a bar would end the cell.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// Escapes the characters that Markdown would take for HTML or emphasis, outside of code.
fn escaped(text: &str) -> String {
    let mut is_code = false;
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        is_code ^= letter == '`';
        if !is_code && matches!(letter, '<' | '*' | '_' | '[') {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_each_visible_command_with_its_arguments() {
        let inner = Command::new("make").about("Make one").arg(
            Arg::new("size")
                .long("size")
                .short('s')
                .value_name("A|B")
                .help("The <size> of it")
                .default_value("1"),
        );
        let hidden = Command::new("old").hide(true);
        let mut command = Command::new("prog").about("Does things").subcommands([inner, hidden]);
        command.build();

        let page = commands_page("# Head", &command);

        for line in [
            "Does things.",
            "| [prog make](#prog-make) | Make one |",
            "## prog make",
            "| `-s, --size A\\|B` | The \\<size> of it. Default: `1`. |",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
        assert!(!page.contains("old"), "{page}");
    }
}
