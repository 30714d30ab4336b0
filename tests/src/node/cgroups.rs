//! A node's folder in each hierarchy of control groups, and its removal.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The folder of all hierarchies.
const ROOT: &str = "/sys/fs/cgroup";
/// The prefix of all our folders' names. The process ID follows.
const PREFIX: &str = "tombolo-node-";
/// The limit for the last process of a killed node to leave its folder.
const EMPTY_MAX: Duration = Duration::from_secs(20);
/// The pause between two looks at the folder.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The controllers without which kubelet does not start.
pub(super) const NEEDED: [&str; 5] = ["cpu", "cpuacct", "cpuset", "memory", "pids"];

/// One folder by the same name in every hierarchy of version 1, and in that of version 2, by which systemd knows its services. Dropping
/// it waits until they are empty, and removes them.
#[derive(Debug)]
pub(super) struct Cgroups {
    name: String,
    memory_max: Option<u64>,
}

impl Cgroups {
    /// Removes what killed processes have left, then makes the folders. All processes together may have at most `memory_max` bytes.
    pub(super) fn new(memory_max: Option<u64>) -> io::Result<Self> {
        static NODES: AtomicU32 = AtomicU32::new(0);
        sweep();
        let number = NODES.fetch_add(1, Ordering::Relaxed);
        let cgroups = Self { name: format!("{PREFIX}{}-{number}", std::process::id()), memory_max };
        cgroups.make()?;
        Ok(cgroups)
    }

    /// Waits until the killed processes have left, and makes the folders anew.
    pub(super) fn make_anew(&self) -> io::Result<()> {
        self.remove();
        self.make()
    }

    fn make(&self) -> io::Result<()> {
        for hierarchy in hierarchies().into_iter().filter(|folder| is_used(folder)) {
            let folder = hierarchy.join(&self.name);
            fs::create_dir(&folder)?;
            // A new folder of this controller has neither, and takes no process then.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if let Ok(complete) = fs::read(hierarchy.join(file)) {
                    fs::write(folder.join(file), complete)?;
                }
            }
        }
        if let Some(bytes) = self.memory_max {
            fs::write(self.of_memory().join("memory.limit_in_bytes"), bytes.to_string())?;
        }
        Ok(())
    }

    /// Processes that were killed because the memory was used up, in all groups that are there now.
    pub(super) fn killed_for_memory(&self) -> io::Result<u64> {
        killed_for_memory(&self.of_memory())
    }

    fn of_memory(&self) -> PathBuf {
        Path::new(ROOT).join("memory").join(&self.name)
    }

    fn remove(&self) {
        let deadline = Instant::now() + EMPTY_MAX;
        while !removed(&self.name) && Instant::now() < deadline {
            sleep(LOOK_EVERY);
        }
    }

    /// The common name of the folders.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A control group of version 1 that a node needs and that this machine lacks, if there is one.
pub(super) fn missing() -> Option<String> {
    NEEDED.into_iter().find(|controller| !is_version_1(&Path::new(ROOT).join(controller))).map(str::to_owned)
}

/// Folders of ours that are there.
pub fn left() -> Vec<PathBuf> {
    hierarchies().iter().flat_map(|hierarchy| ours(hierarchy)).collect()
}

/// The processes of this program in the groups of this name and in those below, by their ids on this machine.
pub fn processes_in(groups: &str, program: &str) -> Vec<u32> {
    let groups = format!("/{groups}/");
    let is_ours = |process: &Path| {
        let read = |file: &str| fs::read_to_string(process.join(file)).unwrap_or_default();
        let words = read("cmdline");
        let first = words.split('\0').next().unwrap_or_default();
        first.rsplit('/').next() == Some(program) && read("cgroup").contains(&groups)
    };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = all.filter(|entry| is_ours(&entry.path()));
    ids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

// Links lead to hierarchies of several controllers, which are there under their own name.
fn hierarchies() -> Vec<PathBuf> {
    let entries = fs::read_dir(ROOT).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

fn is_version_1(hierarchy: &Path) -> bool {
    hierarchy.join("tasks").exists()
}

fn is_used(hierarchy: &Path) -> bool {
    is_version_1(hierarchy) || hierarchy.join("cgroup.controllers").exists()
}

fn ours(hierarchy: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(hierarchy).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX))
        .map(|entry| entry.path())
        .collect()
}

// The kernel counts a killed process in its own group, and not in those above.
fn killed_for_memory(group: &Path) -> io::Result<u64> {
    let said = fs::read_to_string(group.join("memory.oom_control"))?;
    let count = said.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse::<u64>().ok());
    let mut sum = count.ok_or_else(|| io::Error::other("memory.oom_control has no oom_kill"))?;
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sum += killed_for_memory(&entry.path())?;
        }
    }
    Ok(sum)
}

/// Removes the empty folders of this name, and returns whether none is left.
fn removed(name: &str) -> bool {
    let folders: Vec<_> = hierarchies().into_iter().map(|hierarchy| hierarchy.join(name)).collect();
    folders.iter().for_each(|folder| remove(folder));
    !folders.iter().any(|folder| folder.exists())
}

// Depth first: a folder goes after what is in it. The files in it are no obstacle.
fn remove(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let _ = fs::remove_dir(folder); // What still has a process stays.
}

fn sweep() {
    for folder in left() {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let owner = name.trim_start_matches(PREFIX).split('-').next().unwrap_or_default().to_owned();
        if !Path::new("/proc").join(owner).exists() {
            remove(&folder);
        }
    }
}
