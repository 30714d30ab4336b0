//! Child processes that never outlive the test that started them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// The part of a program's output that an error quotes, in bytes.
const TAIL_BYTES_MAX: u64 = 4 * 1024;
/// The limit for a killed process to be gone. A longer time means a stuck kernel thread.
const REAP_MAX: Duration = Duration::from_secs(5);
/// Spawns that may wait for the spawning thread.
const SPAWNS_QUEUED_MAX: usize = 64;

/// A command to run: a program, its arguments, its environment, its network namespace and its `/etc/hosts`.
#[derive(Debug, Clone)]
pub struct Invocation {
    program: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    network_namespace: Option<PathBuf>,
    hosts: Option<PathBuf>,
    directory: Option<PathBuf>,
}

/// A running program whose output goes to a file; it is killed when this is dropped or when the test process
/// dies.
#[derive(Debug)]
#[must_use = "the process is killed when this is dropped"]
pub struct Process {
    name: String,
    child: Child,
    output: PathBuf,
}

/// An error of running a program.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The program, or `setpriv` or `nsenter` in front of it, could not be executed.
    #[error("could not start {name} (setpriv and nsenter of util-linux must be installed)")]
    Spawn {
        /// The file name of the program.
        name: String,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The program was still running at its deadline and was killed.
    #[error("{name} did not end within {limit:?}; its output ended with:\n{tail}")]
    Deadline {
        /// The file name of the program.
        name: String,
        /// The time that was allowed.
        limit: Duration,
        /// The end of what it wrote.
        tail: String,
    },
    /// A file or signal operation failed.
    #[error("could not {act} {name}")]
    Io {
        /// The operation that was tried.
        act: &'static str,
        /// The file name of the program.
        name: String,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
}

impl Invocation {
    /// Runs `program` with no arguments in this process's network namespace.
    pub fn of(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            variables: Vec::new(),
            network_namespace: None,
            hosts: None,
            directory: None,
        }
    }

    /// Adds arguments to the command line.
    #[must_use]
    pub fn arguments<A: Into<String>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of the program's environment.
    #[must_use]
    pub fn variable(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    /// Runs the program in the network namespace bound at a path, such as `/run/netns/NAME`.
    #[must_use]
    pub fn in_network_namespace(mut self, path: Option<PathBuf>) -> Self {
        self.network_namespace = path;
        self
    }

    /// Runs the program in a mount namespace of its own, in which this file is `/etc/hosts`. The machine's
    /// own stays unchanged.
    ///
    /// Needs root, also of a user namespace.
    #[must_use]
    pub fn with_hosts(mut self, file: Option<PathBuf>) -> Self {
        self.hosts = file;
        self
    }

    /// Runs the program in this directory.
    #[must_use]
    pub fn in_directory(mut self, path: &Path) -> Self {
        self.directory = Some(path.to_owned());
        self
    }

    /// The name of the program and its arguments, as a person types them.
    pub fn command_line(&self) -> String {
        let words = std::iter::once(self.name()).chain(self.arguments.iter().cloned());
        words.collect::<Vec<_>>().join(" ")
    }

    fn name(&self) -> String {
        self.program
            .file_name()
            .map_or_else(|| self.program.display().to_string(), |name| name.to_string_lossy().into_owned())
    }

    // setpriv comes last: entering a namespace must not clear the death signal that it sets.
    fn command(&self) -> Command {
        let mut words: Vec<String> = Vec::new();
        if let Some(path) = &self.network_namespace {
            words.extend(["nsenter".to_owned(), format!("--net={}", path.display()), "--".to_owned()]);
        }
        if let Some(hosts) = &self.hosts {
            let bind = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
            words.extend(["unshare", "--mount", "--", "sh", "-c", bind].map(str::to_owned));
            words.push(hosts.display().to_string());
        }
        words.extend(["setpriv", "--pdeathsig", "SIGKILL", "--"].map(str::to_owned));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(&self.program).args(&self.arguments);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        // A group of its own: Ctrl-C in a terminal must reach this process alone, which then ends the others
        // in order.
        command.stdin(Stdio::null()).kill_on_drop(true).process_group(0);
        command
    }
}

impl Process {
    /// Starts a program; what it writes to stdout and stderr is appended to the file `output`.
    pub async fn start(invocation: &Invocation, output: &Path) -> Result<Self, ProcessError> {
        Self::start_command(invocation.name(), invocation.command(), output).await
    }

    /// The same, with what the program reads at its stdin; dropping that ends it.
    pub async fn start_listening(
        invocation: &Invocation,
        output: &Path,
    ) -> Result<(Self, ChildStdin), ProcessError> {
        let mut command = invocation.command();
        command.stdin(Stdio::piped());
        let mut process = Self::start_command(invocation.name(), command, output).await?;
        let stdin = process.child.stdin.take().expect("it is piped");
        Ok((process, stdin))
    }

    /// The same, with what the program writes to stdout at hand, too; what it writes to stderr goes to the
    /// file `output`.
    pub async fn start_talking(
        invocation: &Invocation,
        output: &Path,
    ) -> Result<(Self, ChildStdin, ChildStdout), ProcessError> {
        let name = invocation.name();
        let mut command = invocation.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(appended(&name, output)?);
        let mut process = Self::spawn(name, command, output).await?;
        let stdin = process.child.stdin.take().expect("it is piped");
        let stdout = process.child.stdout.take().expect("it is piped");
        Ok((process, stdin, stdout))
    }

    async fn start_command(name: String, mut command: Command, output: &Path) -> Result<Self, ProcessError> {
        command.stdout(appended(&name, output)?).stderr(appended(&name, output)?);
        Self::spawn(name, command, output).await
    }

    async fn spawn(name: String, command: Command, output: &Path) -> Result<Self, ProcessError> {
        let child =
            spawn(command).await.map_err(|source| ProcessError::Spawn { name: name.clone(), source })?;
        Ok(Self { name, child, output: output.to_owned() })
    }

    /// The process id, or `None` once the process has ended.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Memory of the process that is in RAM now.
    pub fn resident_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// The most memory of the process that ever was in RAM at once.
    pub fn peak_bytes(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    fn status_bytes(&self, line: &str) -> u64 {
        status_bytes(self.id().expect("the process runs"), line)
    }

    /// The file with everything that the process wrote.
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// The last 4 KiB of what the process wrote.
    pub fn tail(&self) -> String {
        tail(&self.output)
    }

    /// Returns the exit status of the process if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for the process to end by itself, and leaves it running if it does not within `limit`.
    pub async fn wait(&mut self, limit: Duration) -> Result<ExitStatus, ProcessError> {
        match timeout(limit, self.child.wait()).await {
            Ok(Ok(status)) => Ok(status),
            Ok(Err(source)) => Err(self.io("wait for", source)),
            Err(_) => Err(ProcessError::Deadline { name: self.name.clone(), limit, tail: self.tail() }),
        }
    }

    /// Sends a signal; a process that has ended already is an error.
    pub fn signal(&self, signal: Signal) -> Result<(), ProcessError> {
        let pid = self.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let Some(pid) = pid else {
            return Err(self.io("signal", io::Error::new(io::ErrorKind::NotFound, "it has ended already")));
        };
        kill_process(pid, signal).map_err(|source| self.io("signal", source.into()))
    }

    /// Sends SIGTERM and waits; a process that is still there after `grace` is killed, which is an error.
    pub async fn stop(mut self, grace: Duration) -> Result<ExitStatus, ProcessError> {
        if let Some(status) = self.ended() {
            return Ok(status);
        }
        self.signal(Signal::TERM)?;
        self.wait(grace).await
    }

    /// Sends SIGKILL and returns once the process is gone.
    pub fn kill(&mut self) {
        let _ = self.child.start_kill(); // Ended already is as good as killed.
        let deadline = Instant::now() + REAP_MAX;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn io(&self, act: &'static str, source: io::Error) -> ProcessError {
        ProcessError::Io { act, name: self.name.clone(), source }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Memory of a process that is in RAM now.
///
/// # Panics
/// If the process has ended.
pub fn resident_bytes(id: u32) -> u64 {
    status_bytes(id, "VmRSS:")
}

fn status_bytes(id: u32, line: &str) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{id}/status")).expect("a running process has a status");
    let line = status.lines().find_map(|text| text.strip_prefix(line)).expect("proc_pid_status(5)");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("proc_pid_status(5)") * 1024
}

/// Runs a program to its end and returns what it wrote; at the deadline it is killed.
pub async fn run(invocation: &Invocation, limit: Duration) -> Result<Output, ProcessError> {
    let name = invocation.name();
    let mut command = invocation.command();
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = spawn(command).await.map_err(|source| ProcessError::Spawn { name: name.clone(), source })?;
    match timeout(limit, child.wait_with_output()).await {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(source)) => Err(ProcessError::Io { act: "read the output of", name, source }),
        Err(_) => Err(ProcessError::Deadline { name, limit, tail: "(nothing was kept)".to_owned() }),
    }
}

type Spawn = (Command, oneshot::Sender<io::Result<Child>>);

// A death signal fires when the *thread* that spawned the child ends, and tests run on threads that end long
// before the test process does. So one thread, which lives as long as the process, spawns everything.
async fn spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<Spawn>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (send, receive) = mpsc::channel(SPAWNS_QUEUED_MAX);
        thread::Builder::new()
            .name("spawner".to_owned())
            .spawn(|| serve(receive))
            .expect("a thread can be started");
        send
    });
    let gone = || io::Error::other("the spawning thread has ended");
    let (reply, child) = oneshot::channel();
    spawner.send((command, reply)).await.map_err(|_| gone())?;
    child.await.map_err(|_| gone())?
}

fn serve(mut spawns: mpsc::Receiver<Spawn>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    runtime.block_on(async {
        while let Some((mut command, reply)) = spawns.recv().await {
            // A caller that has given up drops the child, which kills it.
            let _ = reply.send(command.spawn());
        }
    });
}

fn appended(name: &str, output: &Path) -> Result<File, ProcessError> {
    let file = OpenOptions::new().create(true).append(true).open(output);
    file.map_err(|source| ProcessError::Io { act: "open the output file of", name: name.to_owned(), source })
}

fn tail(path: &Path) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES_MAX)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("(its output could not be read: {error})"),
    }
}
