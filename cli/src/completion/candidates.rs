//! Candidates for an incomplete command line, in the form that kubectl reads from a plugin's completion.

use clap::{Arg, Command};

/// The last line if the shell offers nothing but the candidates (`ShellCompDirectiveNoFileComp` of cobra).
const NO_FILES: &str = ":4";

/// The last line if the shell offers the names of files (`ShellCompDirectiveDefault`).
const FILES: &str = ":0";

/// The candidates for the last of `words`, each with its description behind a tab, and a line with cobra's directive.
pub(crate) fn candidates(mut command: Command, words: &[String]) -> Vec<String> {
    command.build();
    let (typed, before) = match words.split_last() {
        Some((typed, before)) => (typed.as_str(), before),
        None => ("", words),
    };
    let (command, flag) = position(&command, before);
    if let Some(flag) = flag {
        return answer(values(flag, typed));
    }
    if let Some((flag, value)) = typed.strip_prefix("--").and_then(|typed| typed.split_once('=')) {
        let found = flag_of(command, flag).map(|flag| values(flag, value)).unwrap_or_default();
        return answer(found.into_iter().map(|value| format!("--{flag}={value}")).collect());
    }
    if typed.starts_with('-') {
        return answer(flags(command, typed));
    }
    let mut found = subcommands(command, typed);
    found.extend(command.get_positionals().flat_map(|argument| values(argument, typed)));
    answer(found)
}

/// The command that the words lead to, and the flag whose value comes next, if there is one.
fn position<'c>(command: &'c Command, words: &[String]) -> (&'c Command, Option<&'c Arg>) {
    let (mut command, mut flag) = (command, None);
    for word in words {
        if flag.take().is_some() {
            continue;
        }
        if let Some(long) = word.strip_prefix("--") {
            flag = flag_of(command, long);
        } else if let Some(short) = word.strip_prefix('-') {
            flag = command.get_arguments().find(|argument| is_short(argument, short));
        } else if let Some(next) = command.find_subcommand(word) {
            command = next;
        }
        flag = flag.filter(|flag| flag.get_action().takes_values());
    }
    (command, flag)
}

fn flag_of<'c>(command: &'c Command, long: &str) -> Option<&'c Arg> {
    command.get_arguments().find(|argument| argument.get_long() == Some(long))
}

fn is_short(argument: &Arg, written: &str) -> bool {
    argument.get_short().is_some_and(|short| written.chars().eq([short]))
}

fn subcommands(command: &Command, typed: &str) -> Vec<String> {
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    let matching = shown.filter(|command| command.get_name().starts_with(typed));
    matching.map(|command| described(command.get_name(), command.get_about())).collect()
}

fn flags(command: &Command, typed: &str) -> Vec<String> {
    let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let long = shown.filter_map(|argument| Some((format!("--{}", argument.get_long()?), argument)));
    let matching = long.filter(|(long, _)| long.starts_with(typed));
    matching.map(|(long, argument)| described(&long, argument.get_help())).collect()
}

fn values(argument: &Arg, typed: &str) -> Vec<String> {
    let possible = argument.get_possible_values();
    let shown = possible.iter().filter(|value| !value.is_hide_set() && value.get_name().starts_with(typed));
    shown.map(|value| described(value.get_name(), value.get_help())).collect()
}

fn described(name: &str, help: Option<&clap::builder::StyledStr>) -> String {
    match help.map(ToString::to_string).unwrap_or_default().lines().next() {
        Some(help) if !help.is_empty() => format!("{name}\t{help}"),
        Some(_) | None => name.to_owned(),
    }
}

fn answer(mut found: Vec<String>) -> Vec<String> {
    let directive = if found.is_empty() { FILES } else { NO_FILES };
    found.push(directive.to_owned());
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{self, Program};

    fn asked(line: &str) -> Vec<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let found = candidates(args::command(Program::KubectlPlugin), &words);
        found.iter().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn commands_flags_and_values_are_completed_and_files_left_to_the_shell() {
        for (line, expected) in [
            ("rb", &["rbac", NO_FILES][..]),
            ("user dial-token k", &["kubeconfig", NO_FILES]),
            ("rbac --pro", &["--profile", NO_FILES]),
            ("rbac --profile o", &["open", NO_FILES]),
            ("rbac --profile=o", &["--profile=open", NO_FILES]),
            ("clusters -o j", &["json", NO_FILES]),
            ("clusters -o json --wat", &["--watch", NO_FILES]),
            ("completion ba", &["bash", NO_FILES]),
            ("rbac --agent-config ", &[FILES]),
            ("nonsense --frob ", &["ca", "kubeconfig"]),
            ("man", &[FILES]),
        ] {
            let found = asked(line);
            assert!(
                found.starts_with(&expected.iter().map(|&word| word.to_owned()).collect::<Vec<_>>()),
                "{line}: {found:?}"
            );
        }
    }

    #[test]
    fn an_empty_line_lists_every_command_that_help_lists() {
        let found = asked("");

        let command = args::command(Program::KubectlPlugin);
        let listed = command.get_subcommands().filter(|command| !command.is_hide_set());
        assert!(listed.map(Command::get_name).all(|name| found.contains(&name.to_owned())), "{found:?}");
    }
}
