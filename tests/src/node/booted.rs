//! A worker that boots: real systemd with real units, on a disk that outlives the loss of power.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use super::cgroups::Cgroups;
use super::image::Image;
use super::namespaces::NodeNamespaces;
use super::{NodeError, NodeUnavailable, assets, import, import_pause, settings};
use crate::kube::assets::NodeAssets;
use crate::network::NetworkNamespace;
use crate::process::{Invocation, run};
use crate::scratch::Scratch;

/// The manager of the machine.
const SYSTEMD: &str = "/lib/systemd/systemd";
/// The limit for systemd to answer, and for containerd to be active.
const BOOT_MAX: Duration = Duration::from_secs(60);
/// The limit for one question to systemd.
const ASK_MAX: Duration = Duration::from_secs(10);
/// Pause between two questions to systemd.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The script of the first process: `$1` is the disk, `$2` the host name, `$3` the name of the control groups. Further arguments are
/// pairs of a program and its name in `/usr/bin`.
///
/// `/etc`, `/usr/bin` and `/usr/libexec` are this machine's, and writes to them go to the disk. A program there may be a symbolic link
/// to another folder of this machine: the script removes the name first, because a write through the link would empty that program.
/// systemd knows the units of the disk alone, so none of this machine's own units runs: one of them would empty `/tmp`. It gets a
/// `/sys/fs/cgroup` of its own, with the hierarchies of this machine and no more, because it would mount all others there and make the
/// folder read-only. The machine has no swap, because kubelet would not start.
const BOOT: &str = r#"set -e
disk=$1 name=$2 groups=$3
shift 3
mkdir -p "$disk/cgroup" "$disk/sysctl"
mount -t tmpfs -o mode=755 tmpfs "$disk/cgroup"
for hierarchy in /sys/fs/cgroup/*; do
    [ -d "$hierarchy/$groups" ] || continue
    echo $$ >"$hierarchy/$groups/cgroup.procs"
    mkdir "$disk/cgroup/${hierarchy##*/}"
    mount --bind "$hierarchy" "$disk/cgroup/${hierarchy##*/}"
done
mount --rbind "$disk/cgroup" /sys/fs/cgroup
while read -r controller line; do
    [ -d "/sys/fs/cgroup/$controller" ] && echo "$controller $line"
done </proc/cgroups >"$disk/sysctl/cgroups" || :
mount --bind "$disk/sysctl/cgroups" /proc/cgroups
echo Filename >"$disk/sysctl/swaps"
[ ! -e /proc/swaps ] || mount --bind "$disk/sysctl/swaps" /proc/swaps
mount --make-rshared /
for folder in etc usr/bin usr/libexec; do
    mkdir -p "$disk/$folder" "$disk/.work/$folder"
    mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$disk/$folder,workdir=$disk/.work/$folder" "/$folder"
done
while [ $# -gt 0 ]; do
    rm -f "/usr/bin/$2"
    : >"/usr/bin/$2"
    mount --bind "$1" "/usr/bin/$2"
    shift 2
done
# The disk stays where it is, also below /tmp. Units with PrivateTmp= leave folders in both of these.
mount -t tmpfs tmpfs /run
mkdir /run/disk
mount --rbind "$disk" /run/disk
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777 tmpfs /var/tmp
mkdir -p "$disk"
mount --rbind /run/disk "$disk"
umount --lazy /run/disk
rmdir /run/disk
mkdir -p "$disk/var/lib" "$disk/var/log"
mount --bind "$disk/var/lib" /var/lib
mount --bind "$disk/var/log" /var/log
mount --bind "$disk/units" /etc/systemd
own_settings "$disk/sysctl"
echo 1 >/proc/sys/net/ipv4/ip_forward
hostname "$name"
: >"$disk/box-is-set-up"
export SYSTEMD_UNIT_PATH=/etc/systemd/system container=tombolo
exec /lib/systemd/systemd --system --unit=multi-user.target --show-status=no --log-target=console
"#;

/// The targets that units of a service depend on, and that are empty here.
const TARGETS: [&str; 6] = ["sysinit", "basic", "shutdown", "network", "network-online", "multi-user"];

/// The output of every unit. There is no journal here.
const LOGS: &str =
    "[Service]\nStandardOutput=append:/var/log/units.log\nStandardError=append:/var/log/units.log\n";

/// A machine with systemd and containerd. It loses its power when this is dropped, and its disk is removed.
#[derive(Debug)]
#[must_use = "the machine is removed when this is dropped"]
pub struct BootedMachine {
    // Fields are dropped in this order: folders can be removed once nothing runs in them.
    enclosure: Option<NodeNamespaces>,
    cgroups: Cgroups,
    disk: Scratch,
    network: NetworkNamespace,
    name: String,
    programs: Vec<String>,
}

impl BootedMachine {
    /// Makes the disk of a machine with containerd, the program of pods as `image` and these programs in `/usr/bin`, and boots it. All
    /// that runs on the machine has at most `memory_max` bytes of memory, if that is given.
    ///
    /// # Errors
    /// [`NodeError`].
    pub async fn boot(
        network: &NetworkNamespace,
        name: &str,
        programs: &[(PathBuf, &str)],
        image: &Image<'_>,
        memory_max: Option<u64>,
    ) -> Result<Self, NodeError> {
        let assets = assets()?;
        if !Path::new(SYSTEMD).exists() {
            return Err(NodeUnavailable::NoSystemd.into());
        }
        let disk = Scratch::new("tombolo-machine-")?;
        write_disk(disk.path(), name, &assets)?;
        let programs =
            programs.iter().flat_map(|(path, name)| [path.display().to_string(), (*name).to_owned()]);
        let mut machine = Self {
            enclosure: None,
            cgroups: Cgroups::new(memory_max)?,
            disk,
            network: network.try_clone()?,
            name: name.to_owned(),
            programs: programs.collect(),
        };
        machine.power_on().await?;
        machine.until("containerd", &["is-active", "containerd"]).await?;
        import_pause(machine.enclosure(), &assets, machine.disk.path()).await?;
        machine.load(image).await?;
        Ok(machine)
    }

    /// Takes its power away: every process ends at once, and the disk stays.
    ///
    /// # Errors
    /// The control groups cannot be made anew.
    pub async fn cut_power(&mut self) -> Result<(), NodeError> {
        self.enclosure = None;
        self.cgroups.make_anew()?;
        // What the kernel of a machine forgets, as the plugin of the pods' network has made it.
        let _ = self.network.ip("link del cni0").await;
        let flush = Invocation::of("nft").arguments(["flush", "ruleset"]);
        run(&flush.in_network_namespace(Some(self.network.path().to_owned())), ASK_MAX).await?;
        Ok(())
    }

    /// Boots it, and returns once systemd answers. Its enabled units then start.
    ///
    /// # Errors
    /// [`NodeError`].
    pub async fn power_on(&mut self) -> Result<(), NodeError> {
        let marker = self.disk.path().join("box-is-set-up");
        if marker.exists() {
            fs::remove_file(marker)?;
        }
        let arguments = [self.name.clone(), self.cgroups.name().to_owned()];
        let arguments = arguments.into_iter().chain(self.programs.clone()).collect();
        let enclosure = NodeNamespaces::new(&self.network, self.disk.path(), BOOT, arguments).await?;
        self.enclosure = Some(enclosure);
        self.until("systemd", &["show", "--property=Version"]).await
    }

    /// Gives the machine an image.
    ///
    /// # Errors
    /// [`NodeError`].
    pub async fn load(&self, image: &Image<'_>) -> Result<(), NodeError> {
        import(self.enclosure(), &assets()?, self.disk.path(), image).await
    }

    /// A program that runs on the machine.
    ///
    /// # Panics
    /// If the machine has no power.
    pub fn inside(&self, program: impl AsRef<Path>, arguments: &[&str]) -> Invocation {
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        self.enclosure().inside(program.as_ref(), &arguments)
    }

    /// Runs a short program on the machine to its end.
    ///
    /// # Errors
    /// It cannot be run.
    pub async fn run(&self, program: &str, arguments: &[&str]) -> Result<Output, NodeError> {
        Ok(run(&self.inside(program, arguments), ASK_MAX).await?)
    }

    /// The place of a file of the machine in its disk: `/etc/…`, `/usr/bin/…`, `/var/lib/…` and `/var/log/…`. Units are in
    /// `/etc/systemd`.
    pub fn on_disk(&self, path: &str) -> PathBuf {
        let path = path.trim_start_matches('/');
        match path.strip_prefix("etc/systemd/") {
            Some(unit) => self.disk.path().join("units").join(unit),
            None => self.disk.path().join(path),
        }
    }

    /// All files and folders of the disk that a join may change, but for the runtime's own.
    ///
    /// # Panics
    /// If the disk cannot be read.
    pub fn paths(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for folder in ["etc", "usr", "units", "var"] {
            walk(&self.disk.path().join(folder), &mut paths).expect("the disk can be read");
        }
        paths.retain(|path| {
            !["var/lib/containerd", "var/lib/cni"]
                .iter()
                .any(|own| path.starts_with(self.disk.path().join(own)))
        });
        paths.sort();
        paths
    }

    /// The folder of the control groups of everything that runs on the machine.
    pub fn cgroups(&self) -> &str {
        self.cgroups.name()
    }

    /// Processes that the kernel has killed since the machine was booted, because its memory was used up.
    ///
    /// # Panics
    /// If the kernel does not say it.
    pub fn killed_for_memory(&self) -> u64 {
        self.cgroups.killed_for_memory().expect("control groups of memory")
    }

    /// The output of all units.
    pub fn log(&self) -> String {
        fs::read_to_string(self.on_disk("/var/log/units.log")).unwrap_or_default()
    }

    fn enclosure(&self) -> &NodeNamespaces {
        self.enclosure.as_ref().expect("the machine has power")
    }

    /// Waits until this question to systemd succeeds.
    async fn until(&self, what: &'static str, question: &[&str]) -> Result<(), NodeError> {
        let deadline = Instant::now() + BOOT_MAX;
        while !self.run("systemctl", question).await?.status.success() {
            if Instant::now() >= deadline {
                return Err(NodeError::NotReady { what, tail: self.log() });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }
}

/// The units and the runtime of a new machine.
fn write_disk(disk: &Path, name: &str, assets: &NodeAssets) -> io::Result<()> {
    let units = disk.join("units/system");
    fs::create_dir_all(units.join("service.d"))?;
    fs::create_dir_all(units.join("multi-user.target.wants"))?;
    for target in TARGETS {
        let text = format!("[Unit]\nDescription={target}\nDefaultDependencies=no\n");
        fs::write(units.join(format!("{target}.target")), text)?;
    }
    fs::write(units.join("service.d/10-logs.conf"), LOGS)?;
    let debian = assets.debian.display();
    let containerd = format!(
        "[Unit]\nBefore=kubelet.service\n[Service]\nType=notify\n\
         Environment=PATH={debian}/usr/bin:{debian}/usr/sbin:/usr/sbin:/usr/bin:/sbin:/bin\n\
         ExecStart={debian}/usr/bin/containerd --config /etc/containerd/config.toml\nDelegate=yes\nKillMode=process\n"
    );
    fs::write(units.join("containerd.service"), containerd)?;
    std::os::unix::fs::symlink(
        "/etc/systemd/system/containerd.service",
        units.join("multi-user.target.wants/containerd.service"),
    )?;
    let network = disk.join("etc/cni/net.d");
    fs::create_dir_all(&network)?;
    fs::write(network.join("10-pods.conflist"), settings::network(settings::PODS).to_string())?;
    fs::create_dir_all(disk.join("etc/containerd"))?;
    // systemd sets it.
    fs::write(disk.join("etc/hostname"), format!("{name}\n"))?;
    let config = settings::containerd(&assets.debian, Path::new("/etc/cni/net.d"));
    fs::write(disk.join("etc/containerd/config.toml"), config)?;
    fs::create_dir_all(disk.join("var/log"))?;
    File::create(disk.join("var/log/units.log"))?;
    Ok(())
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        found.push(entry.path());
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), found)?;
        }
    }
    Ok(())
}
