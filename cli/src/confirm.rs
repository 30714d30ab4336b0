//! The question before a command that cannot be undone.

use std::io::{self, BufRead, IsTerminal as _, Write};

/// The reason why a command that cannot be undone did nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfirmError {
    #[error("nothing was changed, because the answer is not {name}")]
    OtherAnswer { name: String },
    #[error("nothing was changed: there is no terminal on which to ask. Give --yes if you are sure")]
    NoTerminal,
    #[error("the answer cannot be read")]
    Terminal(#[from] io::Error),
}

/// Asks the person at the terminal to type `name`, after the sentence `warning`. With `is_sure` (`--yes`) it
/// asks nothing.
pub(crate) fn by_name(warning: &str, name: &str, is_sure: bool) -> Result<(), ConfirmError> {
    if is_sure {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(ConfirmError::NoTerminal);
    }
    ask(warning, name, &mut io::stdin().lock(), &mut io::stderr().lock())
}

/// Asks through these two streams.
fn ask(
    warning: &str,
    name: &str,
    answers: &mut impl BufRead,
    screen: &mut impl Write,
) -> Result<(), ConfirmError> {
    write!(screen, "{warning} Type {name} to go on: ")?;
    screen.flush()?;
    let mut answer = String::new();
    answers.read_line(&mut answer)?;
    if answer.trim() == name { Ok(()) } else { Err(ConfirmError::OtherAnswer { name: name.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_name_confirms() {
        for (answer, is_confirmed) in [
            ("edge-a\n", true),
            ("  edge-a \n", true),
            ("edge\n", false),
            ("y\n", false),
            ("\n", false),
            ("", false),
        ] {
            let mut screen = Vec::new();

            let outcome = ask("It is gone then.", "edge-a", &mut answer.as_bytes(), &mut screen);

            assert_eq!(outcome.is_ok(), is_confirmed, "{answer:?}");
            assert_eq!(screen, b"It is gone then. Type edge-a to go on: ");
        }
    }
}
