//! Runs kubectl and helm of the person, with texts for their input, and forwards a port while a value lives.

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A program failed, or is not there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramFailed {
    #[error("{0} is not in PATH")]
    Missing(&'static str),
    #[error("`{command}` failed: {output}")]
    Failed {
        /// The command without its input, which may have keys.
        command: String,
        /// The errors that it printed.
        output: String,
    },
}

/// A port of a pod at this machine's loopback address, for as long as this lives.
#[derive(Debug)]
pub(super) struct PortForward {
    child: Child,
    port: u16,
    // kubectl writes a line for each connection, and dies of SIGPIPE if nobody can read it.
    _output: BufReader<ChildStdout>,
}

/// Runs a program, and returns its output.
///
/// # Errors
/// [`ProgramFailed`]
pub(super) fn run(
    program: &'static str,
    words: &[OsString],
    input: Option<&str>,
) -> Result<String, ProgramFailed> {
    let start = || {
        let mut command = Command::new(program);
        let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut child =
            command.args(words).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
            match stdin.write_all(input.as_bytes()) {
                // It has ended without reading all, and says why.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                written => written?,
            }
        }
        child.wait_with_output()
    };
    match start() {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => Err(failed(program, words, &String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(not_run(program, words, &error)),
    }
}

impl PortForward {
    /// Starts `kubectl port-forward`, and waits until it says its port.
    ///
    /// # Errors
    /// [`ProgramFailed`]
    pub(super) fn start(words: &[OsString]) -> Result<Self, ProgramFailed> {
        const KUBECTL: &str = "kubectl";
        let mut command = Command::new(KUBECTL);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| not_run(KUBECTL, words, &error))?;
        let mut line = String::new();
        let mut output = child.stdout.take().map(BufReader::new);
        if let Some(output) = &mut output {
            // It says one line for each address, or ends and says why.
            let _ = output.read_line(&mut line);
        }
        match forwarded_port(&line).zip(output) {
            Some((port, output)) => Ok(Self { child, port, _output: output }),
            None => {
                let _ = child.kill();
                let errors = child.wait_with_output().map(|output| output.stderr).unwrap_or_default();
                Err(failed(KUBECTL, words, &String::from_utf8_lossy(&errors)))
            }
        }
    }

    /// The forwarded port, at 127.0.0.1.
    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for PortForward {
    fn drop(&mut self) {
        // It is gone if both fail, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The port in `Forwarding from 127.0.0.1:41234 -> 16440`.
fn forwarded_port(line: &str) -> Option<u16> {
    let (address, _) = line.strip_prefix("Forwarding from ")?.split_once(" -> ")?;
    address.rsplit_once(':')?.1.parse().ok()
}

fn not_run(program: &'static str, words: &[OsString], error: &io::Error) -> ProgramFailed {
    if error.kind() == ErrorKind::NotFound {
        return ProgramFailed::Missing(program);
    }
    failed(program, words, &error.to_string())
}

fn failed(program: &str, words: &[OsString], output: &str) -> ProgramFailed {
    let shown: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    ProgramFailed::Failed { command: format!("{program} {}", shown.join(" ")), output: without_log(output) }
}

/// The errors without the lines of kubectl's own log, such as `E1128 03:05:37.128368 …`, which say the same thing again and again.
fn without_log(errors: &str) -> String {
    let is_log = |line: &&str| {
        let (level, rest) = (line.as_bytes().first(), line.as_bytes().get(1..5).unwrap_or_default());
        matches!(level, Some(b'E' | b'W' | b'I')) && rest.len() == 4 && rest.iter().all(u8::is_ascii_digit)
    };
    let kept: Vec<&str> = errors.trim().lines().filter(|line| !is_log(line)).collect();
    if kept.is_empty() { errors.trim().to_owned() } else { kept.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forwarded_port_is_read_from_the_line_of_kubectl() {
        assert_eq!(forwarded_port("Forwarding from 127.0.0.1:41234 -> 16440\n"), Some(41234));
        assert_eq!(forwarded_port("Forwarding from [::1]:1 -> 2"), Some(1));
        for none in ["", "error: pod not found", "Forwarding from 127.0.0.1 -> 1"] {
            assert_eq!(forwarded_port(none), None, "{none}");
        }
    }

    #[test]
    fn lines_of_kubectls_log_are_left_out_if_anything_else_is_said() {
        let log = "E1128 03:05:37.128368 1 memcache.go:265] refused";
        assert_eq!(
            without_log(&format!("{log}\nThe connection was refused\n")),
            "The connection was refused"
        );
        assert_eq!(without_log(&format!("{log}\n")), log);
        assert_eq!(without_log("Error: x\nE12"), "Error: x\nE12");
    }

    #[test]
    fn a_failure_has_the_command_and_the_errors_and_not_the_input() {
        let words = ["-c", "cat > /dev/null; echo broken >&2; exit 3"].map(OsString::from);

        let error = run("sh", &words, Some("a key")).unwrap_err().to_string();

        assert!(error.contains("`sh -c") && error.ends_with("failed: broken"), "{error}");
        assert!(!error.contains("a key"), "{error}");
        let missing = run("tombolo-no-such-program", &[], None).unwrap_err();
        assert!(matches!(missing, ProgramFailed::Missing("tombolo-no-such-program")));
    }
}
