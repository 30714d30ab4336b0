//! A person's machine for tests: a home, a folder, programs and an `/etc/hosts` of its own, and bash.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use crate::network::NetworkNamespace;
use crate::process::{Invocation, Process, ProcessError, run};
use crate::scratch::Scratch;

/// The limit for the namespace to be set up.
const SET_UP_MAX: Duration = Duration::from_secs(20);
/// Pause between two looks whether it is.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The limit for one command. helm waits for pods up to 5 minutes by itself.
const COMMAND_MAX: Duration = Duration::from_secs(6 * 60);
/// The file that marks the namespace as set up.
const DONE: &str = "is-set-up";

/// The script of the process that holds the mount namespace; `$1` is the scratch folder.
///
/// Daemons that run as root write to `/run` and `/var/lib`, which are the workstation's own.
const SET_UP: &str = r#"set -e
mount -t tmpfs tmpfs /run
mount --bind "$1/lib" /var/lib
mount --bind "$1/hosts" /etc/hosts
: >"$1/is-set-up"
exec sleep infinity
"#;

/// A mount namespace in which commands run; all of them end when this is dropped.
#[derive(Debug)]
#[must_use = "the machine is gone when this is dropped"]
pub struct Workstation {
    holder: Process,
    scratch: Scratch,
}

/// A terminal at a workstation: commands run in one network, with one kubeconfig as the default.
#[derive(Debug)]
pub struct Terminal<'a> {
    workstation: &'a Workstation,
    network: PathBuf,
    kubeconfig: PathBuf,
}

impl Workstation {
    /// Sets up a machine with these programs by these names, and with this text as `/etc/hosts`.
    ///
    /// # Errors
    /// If files cannot be written.
    ///
    /// # Panics
    /// If no namespace can be made, which needs root, also of a user namespace.
    pub async fn new(hosts: &str, programs: &[(&str, &Path)]) -> io::Result<Self> {
        let scratch = Scratch::new("tombolo-workstation-")?;
        let folder = scratch.path();
        for name in ["bin", "home", "lib", "work"] {
            fs::create_dir(folder.join(name))?;
        }
        for (name, program) in programs {
            symlink(program, folder.join("bin").join(name))?;
        }
        fs::write(folder.join("hosts"), hosts)?;
        let unshare = Invocation::of("unshare")
            .arguments(["--mount", "--", "sh", "-c", SET_UP, "workstation"])
            .arguments([folder.display().to_string()]);
        let mut holder =
            Process::start(&unshare, &folder.join("holder.log")).await.map_err(io::Error::other)?;
        let deadline = Instant::now() + SET_UP_MAX;
        while !folder.join(DONE).exists() {
            assert!(holder.ended().is_none() && Instant::now() < deadline, "{}", holder.tail());
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(Self { holder, scratch })
    }

    /// The folder in which commands run, for files that the person has there.
    pub fn folder(&self) -> PathBuf {
        self.scratch.path().join("work")
    }

    /// Opens a terminal in a network, with a kubeconfig as `$KUBECONFIG`.
    pub fn terminal(&self, network: &NetworkNamespace, kubeconfig: &Path) -> Terminal<'_> {
        Terminal { workstation: self, network: network.path().to_owned(), kubeconfig: kubeconfig.to_owned() }
    }
}

impl Terminal<'_> {
    /// Runs a command by bash to its end, and returns both of its outputs.
    ///
    /// # Errors
    /// If it does not end in time.
    pub async fn output(&self, command: &str) -> Result<Output, ProcessError> {
        run(&self.invocation(command), COMMAND_MAX).await
    }

    /// Runs a command by bash, and returns its stdout.
    ///
    /// # Panics
    /// If it fails. A failing part of a pipe counts, too.
    pub async fn run(&self, command: &str) -> String {
        let output = self.output(command).await.unwrap_or_else(|error| panic!("{command}: {error}"));
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}\n{}\n{stdout}\n{stderr}", output.status);
        stdout
    }

    /// Starts a command that goes on; both of its outputs go to the file `log`.
    ///
    /// # Panics
    /// If bash does not start.
    pub async fn start(&self, command: &str, log: &Path) -> Process {
        let started = Process::start(&self.invocation(command), log).await;
        started.unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    // setpriv comes last for the same reason as in `Invocation`. nsenter would lead to the root folder, so
    // env goes back.
    fn invocation(&self, command: &str) -> Invocation {
        let holder = self.workstation.holder.id().expect("the namespace is held until this is dropped");
        let own = |name: &str| self.workstation.scratch.path().join(name).display().to_string();
        Invocation::of("nsenter")
            .arguments(["--target", &holder.to_string(), "--mount", "--"])
            .arguments(["setpriv", "--pdeathsig", "SIGKILL", "--"])
            .arguments(["env", "--ignore-environment", &format!("--chdir={}", own("work"))])
            .arguments([format!("HOME={}", own("home")), format!("PATH={}:/usr/bin:/bin", own("bin"))])
            .arguments([format!("KUBECONFIG={}", self.kubeconfig.display())])
            .arguments(["bash", "-o", "pipefail", "-c", command])
            .in_network_namespace(Some(self.network.clone()))
    }
}
