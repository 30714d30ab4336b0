//! The files of a release: what `.ci/dist` makes of given programs, and the units for systemd.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tests::binaries::binary;
use tests::kube::assets::{self, Assets};
use tests::scratch::Scratch;
use tests::skip::skip;
use tests::sources::{self, workspace};

const UNITS: [&str; 3] = ["tunnel-server.service", "tunnel-agent.service", "node-lb.service"];
/// The highest exposure that `systemd-analyze security` may find, of 10, times ten.
const EXPOSURE_MAX: &str = "--threshold=20";

/// Programs are compiled for a release in a quarter of an hour, so these are scripts, and only one of them does something.
#[test]
fn a_release_made_twice_from_one_commit_is_the_same_and_complete() {
    let scratch = Scratch::new("tombolo-dist-").expect("a folder");
    let programs = scratch.path().join("programs");
    fs::create_dir(&programs).expect("a folder");
    let tombolo = format!("exec {} \"$@\"", binary("tombolo").display());
    for (name, does) in [
        ("tombolo", tombolo.as_str()),
        ("tunnel-server", ":"),
        ("tunnel-agent", ":"),
        ("node-lb", ":"),
        ("tombolo-demo", ":"),
    ] {
        executable(&programs.join(name), &format!("#!/bin/sh\n{does}\n"));
    }
    let [first, second] = ["first", "second"].map(|name| {
        let out = scratch.path().join(name);
        let made = release(&["--programs", text(&programs), "--out", text(&out)]);
        assert!(made.status.success(), "{}", said(&made));
        files(&out)
    });

    assert_eq!(first.keys().collect::<Vec<_>>(), second.keys().collect::<Vec<_>>());
    let differ: Vec<_> = first.iter().filter(|(name, bytes)| second[*name] != **bytes).collect();
    assert!(differ.is_empty(), "{:?}", differ.iter().map(|(name, _)| name).collect::<Vec<_>>());

    let is_there = |part: &str| first.keys().any(|name| name.contains(part));
    for part in [
        "tombolo-",
        "kubectl-tombolo-",
        "tombolo-demo-",
        "COMMIT",
        "-manifests.tar.gz",
        ".cdx.json",
        "tombolo.krew.yaml",
    ] {
        assert!(is_there(part), "{part}: {:?}", first.keys());
    }
    let checked = sha256sum(&["--check", "--strict", "SHA256SUMS"], &scratch.path().join("first"));
    assert!(checked.status.success(), "{}", said(&checked));
    let lines = String::from_utf8_lossy(&checked.stdout).lines().count();
    assert_eq!(lines, first.len() - 1, "every file but the list itself has its digest");
    let not_built = String::from_utf8_lossy(&first["NOT-BUILT.txt"]).into_owned();
    for what in ["images: --programs", "signatures: ", "tombolo for macOS: "] {
        assert!(not_built.contains(what), "{what}: {not_built}");
    }
}

/// In a clone of its own, which has the script, a release whose demo says that it runs, and a build that fails.
#[test]
fn the_demo_runs_a_release_of_its_commit_and_builds_otherwise() {
    let scratch = Scratch::new("tombolo-demo-release-").expect("a folder");
    let (clone, dist) = (scratch.path().join("clone"), scratch.path().join("target/dist"));
    fs::create_dir_all(clone.join(".ci")).expect("a folder");
    for name in ["demo", "steps"] {
        fs::copy(workspace().join(".ci").join(name), clone.join(".ci").join(name)).expect("a file");
    }
    executable(&clone.join(".ci/binaries"), "#!/bin/sh\necho builds\nexit 1\n");
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@example", "-c", "commit.gpgsign=false"]);
        let done = output(command.args(words).current_dir(&clone));
        assert!(done.status.success(), "{words:?}: {}", said(&done));
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    };
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "all"]);
    let commit = git(&["rev-parse", "HEAD"]);
    let arch = std::env::consts::ARCH.replace("x86_64", "amd64").replace("aarch64", "arm64");
    let name = format!("tombolo-demo-0.1.0-linux-{arch}");
    fs::create_dir_all(dist.join(&name)).expect("a folder");
    executable(&dist.join(&name).join("tombolo-demo"), "#!/bin/sh\necho runs \"$@\"\n");
    let archive = format!("{name}.tar.gz");
    let packed = Command::new("tar")
        .args(["--create", "--gzip", "--file", &archive, &name])
        .current_dir(&dist)
        .status();
    assert!(packed.is_ok_and(|status| status.success()));
    let demo = || {
        let mut command = Command::new(clone.join(".ci/demo"));
        command.arg("--without-namespaces").env("CI", "1").env("TOMBOLO_KUBE_ASSETS", scratch.path());
        said(&output(command.env("CARGO_TARGET_DIR", scratch.path().join("target"))))
    };

    assert!(demo().contains("builds"), "a release of unknown sources");
    fs::write(dist.join("COMMIT"), format!("{commit}\n")).expect("a file");
    let ran = demo();
    let programs = scratch.path().join("target/demo");
    let expected = format!("runs --bin-dir {} --once --without-namespaces", programs.display());
    assert!(ran.contains(&expected) && !ran.contains("builds"), "{ran}");
    fs::write(clone.join("changed"), "").expect("a file");
    assert!(demo().contains("builds"), "a checkout with changes");
}

#[test]
fn the_krew_manifest_has_the_digest_of_the_plugins_archive() {
    let scratch = Scratch::new("tombolo-krew-").expect("a folder");
    let out = scratch.path().join("out");
    for name in ["tombolo", "tunnel-server", "tunnel-agent", "node-lb"] {
        executable(
            &scratch.path().join(name),
            &format!("#!/bin/sh\nexec {} \"$@\"\n", binary("tombolo").display()),
        );
    }
    let url = "https://downloads.example/tombolo";
    let made = release(&["--programs", text(scratch.path()), "--out", text(&out), "--url", url]);
    assert!(made.status.success(), "{}", said(&made));

    let manifest = fs::read_to_string(out.join("tombolo.krew.yaml")).expect("a manifest");
    let value = |key: &str| {
        let line = manifest.lines().find_map(|line| line.trim().strip_prefix(key));
        line.unwrap_or_else(|| panic!("{key} is missing: {manifest}")).trim().to_owned()
    };
    let archive = value("uri:")
        .strip_prefix(url)
        .expect("the place that was given")
        .rsplit('/')
        .next()
        .map(str::to_owned);
    let sum = sha256sum(&[&archive.expect("a name")], &out);
    assert!(said(&sum).starts_with(&value("sha256:")), "{}{manifest}", said(&sum));
    assert_eq!(value("bin:"), "tombolo");
}

/// kubectl finds the plugin by the name that krew gives it, and its completion by one more link.
#[test]
fn krew_installs_a_plugin_that_kubectl_runs_and_completes() {
    let scratch = Scratch::new("tombolo-plugin-").expect("a folder");
    let (programs, out) = (scratch.path().join("programs"), scratch.path().join("out"));
    fs::create_dir(&programs).expect("a folder");
    // The name by which the program was started is the one that it sees.
    let tombolo = format!("#!/bin/bash\nexec -a \"$0\" {} \"$@\"\n", binary("tombolo").display());
    for name in ["tombolo", "tunnel-server", "tunnel-agent", "node-lb"] {
        executable(&programs.join(name), &tombolo);
    }
    let made = release(&["--programs", text(&programs), "--out", text(&out)]);
    assert!(made.status.success(), "{}", said(&made));
    let root = scratch.path().join("krew");
    let path = format!("{}:{}", root.join("bin").display(), std::env::var("PATH").unwrap_or_default());
    let run = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).env("KREW_ROOT", &root).env("KREW_NO_UPGRADE_CHECK", "1");
        output(command.env("HOME", scratch.path()).env("PATH", &path).stdin(Stdio::null()))
    };
    let archive =
        files(&out).into_keys().find(|name| name.starts_with("kubectl-tombolo-")).expect("a plugin");
    let (manifest, archive) = (out.join("tombolo.krew.yaml"), out.join(archive));
    let flags = [format!("--manifest={}", text(&manifest)), format!("--archive={}", text(&archive))];

    let installed = run(&assets::krew().unwrap(), &["install", &flags[0], &flags[1]]);

    assert!(installed.status.success(), "{}", said(&installed));
    let kubectl = Assets::find().unwrap().kubectl;
    let help = said(&run(&kubectl, &["tombolo", "rbac", "--help"]));
    assert!(help.contains("Usage: kubectl tombolo rbac"), "{help}");
    symlink("kubectl-tombolo", root.join("bin/kubectl_complete-tombolo")).expect("a link");
    let completed = said(&run(&kubectl, &["__complete", "tombolo", "rb"]));
    assert!(completed.starts_with("rbac\t") && completed.contains("\n:4\n"), "{completed}");
}

/// The programs are not there, and targets of other packages are stubs.
#[test]
fn systemd_finds_no_fault_in_the_units() {
    if !has_systemd("systemd_finds_no_fault_in_the_units") {
        return;
    }
    let scratch = Scratch::new("tombolo-units-").expect("a folder");
    let root = root_with_units(scratch.path());
    let verify = || {
        let mut command = Command::new("systemd-analyze");
        command.args(["verify", "--man=no", "--root", text(&root)]).args(UNITS);
        said(&output(&mut command))
    };

    assert_eq!(verify(), "");
    for (unit, drop_in) in [("tunnel-server.service.d", "vip.conf"), ("node-lb.service.d", "pods.conf")] {
        let folder = root.join("etc/systemd/system").join(unit);
        fs::create_dir(&folder).expect("a folder");
        fs::copy(units().join(drop_in), folder.join(drop_in)).expect("a file can be copied");
        assert_eq!(verify(), "", "with {drop_in}");
    }

    let broken = root.join("etc/systemd/system/tunnel-agent.service");
    let unit = fs::read_to_string(&broken).expect("a unit");
    fs::write(&broken, unit.replace("RestartSec", "RestartSeconds")).expect("a file can be written");
    assert!(verify().contains("RestartSeconds"), "the check can fail");
}

/// The line of the unit, with a program that plays the successor: it ends the process that runs, or itself.
#[test]
fn a_reload_of_node_lb_fails_if_the_new_program_ends_first() {
    let unit = fs::read_to_string(units().join("node-lb.service")).expect("a unit");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecReload=/bin/sh -c '")).expect("a reload");
    let line = line.strip_suffix('\'').expect("one word").replace("$$", "$");
    let (program, rest) = line.split_once(" & ").expect("a program");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a program");
    assert_eq!(program, start);
    for (successor, expected) in [("kill \"$MAINPID\"; sleep 5", 0), ("exit 1", 1)] {
        let mut running = Command::new("sleep").arg("30").spawn().expect("sleep runs");
        let script = format!("({successor}) & {rest}");
        let mut shell = Command::new("/bin/sh");
        let mut shell = shell.args(["-c", &script]).env("MAINPID", running.id().to_string());
        shell = shell.stdout(Stdio::null()).stderr(Stdio::null());
        let mut reload = shell.spawn().expect("a shell");
        // As systemd does for its main process.
        let reaped = std::thread::spawn(move || {
            if expected == 0 {
                running.wait().expect("it was ended");
            }
            running
        });

        let code = reload.wait().expect("it ends").code();

        let mut running = reaped.join().expect("no panic");
        let _ = running.kill();
        let _ = running.wait();
        assert_eq!(code, Some(expected), "{successor}");
    }
}

#[test]
fn systemd_calls_the_exposure_of_the_units_low() {
    if !has_systemd("systemd_calls_the_exposure_of_the_units_low") {
        return;
    }
    for unit in UNITS {
        let mut command = Command::new("systemd-analyze");
        command.args(["security", "--offline=true", "--no-pager", EXPOSURE_MAX, text(&units().join(unit))]);

        let assessed = output(&mut command);

        assert!(assessed.status.success(), "{unit}: {}", said(&assessed));
    }
}

#[test]
fn sysusers_and_tmpfiles_make_the_users_and_folders_of_the_units() {
    let [users, folders] = ["tombolo.sysusers.conf", "tombolo.tmpfiles.conf"]
        .map(|file| fs::read_to_string(units().join(file)).expect("a file"));
    for unit in UNITS {
        let unit_text = fs::read_to_string(units().join(unit)).expect("a unit");
        let value = |key: &str| {
            unit_text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).expect("the key")
        };
        let (user, state) = (value("User"), value("ReadWritePaths"));
        assert_eq!(value("Group"), user);
        let has = |text: &str, expected: &[&str]| {
            text.lines().any(|line| line.split_whitespace().take(expected.len()).eq(expected.iter().copied()))
        };
        assert!(user == "root" || has(&users, &["u", user, "-"]), "{unit}: {user}");
        assert!(has(&folders, &["d", state, "0700", user, user]), "{unit}: {state}");
        assert!(value("ExecStart").contains(&format!("--state-dir={state} ")), "{unit}");
    }
}

#[test]
fn a_dry_run_makes_nothing_and_names_every_part() {
    let scratch = Scratch::new("tombolo-dry-").expect("a folder");
    let out = scratch.path().join("out");

    let planned = release(&["--dry-run", "--out", text(&out)]);

    assert!(planned.status.success(), "{}", said(&planned));
    assert!(!out.exists());
    for part in ["programs, archive, plugin and SBOM", "images for:", "NOT BUILT signatures"] {
        assert!(said(&planned).contains(part), "{part}: {}", said(&planned));
    }
}

#[test]
fn every_promise_of_the_upgrade_page_names_a_test_that_exists() {
    let (page, sources) =
        (fs::read_to_string(workspace().join("docs/upgrading.md")).expect("a page"), sources::all());
    let rows = page.lines().filter(|line| line.starts_with("| a ") || line.starts_with("| an "));
    let mut count = 0;
    for row in rows {
        let shown_by =
            row.trim_matches('|').split('|').nth(1).unwrap_or_else(|| panic!("two columns: {row}"));
        let tests: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "no test: {row}");
        assert!(tests.iter().all(|test| sources::has_test(&sources, test)), "no such test: {row}");
        count += 1;
    }
    assert!(count >= 7, "{count} promises");
}

fn units() -> PathBuf {
    workspace().join("deploy/systemd")
}

/// A root folder with the units, programs for them, and stubs of the targets that they name.
fn root_with_units(root: &Path) -> PathBuf {
    let system = root.join("etc/systemd/system");
    fs::create_dir_all(&system).expect("a folder");
    fs::create_dir_all(root.join("usr/bin")).expect("a folder");
    for unit in UNITS {
        fs::copy(units().join(unit), system.join(unit)).expect("a file can be copied");
        executable(&root.join("usr/bin").join(unit.trim_end_matches(".service")), "#!/bin/sh\n");
    }
    // A reload of node-lb is a line of it.
    fs::create_dir_all(root.join("bin")).expect("a folder");
    executable(&root.join("bin/sh"), "#!/bin/true\n");
    for target in ["sysinit", "basic", "multi-user", "network-online", "shutdown"] {
        let stub = format!("[Unit]\nDescription={target}\n");
        fs::write(system.join(format!("{target}.target")), stub).expect("a file can be written");
    }
    root.to_owned()
}

fn has_systemd(test: &str) -> bool {
    let found = Command::new("systemd-analyze").arg("--version").output().is_ok();
    if !found {
        skip(test, "there is no systemd-analyze: install Debian's package systemd");
    }
    found
}

fn release(arguments: &[&str]) -> Output {
    let mut command = Command::new(workspace().join(".ci/dist"));
    output(command.args(arguments).env("SOURCE_DATE_EPOCH", "1700000000").env_remove("TOMBOLO_KUBE_ASSETS"))
}

fn sha256sum(arguments: &[&str], folder: &Path) -> Output {
    output(Command::new("sha256sum").args(arguments).current_dir(folder))
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Both outputs of a command, as one text.
fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

fn executable(path: &Path, text: &str) {
    fs::write(path, text).expect("a file can be written");
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("it is ours");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// The files of a folder and their bytes.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries: BTreeSet<PathBuf> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    entries.iter().map(|path| (name(path), fs::read(path).expect("a file"))).collect()
}
