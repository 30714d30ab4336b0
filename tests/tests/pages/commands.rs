//! Every command of the pages, without a cluster: it is run or marked, and its programs know its flags.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tests::binaries::binary;
use tests::console::{ConsoleBlock, SCENARIOS, blocks};
use tests::helm::Helm;
use tests::kube::assets::Assets;
use tests::language::{TextFile, files};
use tests::layers::{Violation, expect_none};
use tests::process::{Invocation, run};
use tests::scratch::Scratch;
use tests::skip::skip;
use tests::sources;

const RUN_MAX: Duration = Duration::from_secs(60);

/// The programs that the pages may start, as the arguments of a shell find them. `ctr`, `k3s` and `kind` are of others and not
/// here, so that nothing checks their arguments.
const PROGRAMS: [&str; 9] =
    ["ctr", "helm", "k3s", "kind", "kubectl", "make", "tombolo", "tunnel-agent", "tunnel-server"];

/// The beginnings of commands that start none of them.
const OTHER_COMMANDS: [&str; 2] = ["cp ", "deploy/image/build "];

/// A program of the same name in their place. It writes its arguments to a file of its own, each with a zero
/// behind it.
const RECORDER: &str = "#!/bin/sh\nprintf '%s\\0' \"${0##*/}\" \"$@\" >\"$RECORDS/$$\"\n";

/// Flags of `helm install` and `helm upgrade` that `helm template` does not need, without a value each.
const FLAGS_OF_A_CLUSTER: [&str; 4] =
    ["--install", "--reset-then-reuse-values", "--wait", "--create-namespace"];

#[test]
fn every_console_block_is_run_by_a_test_or_has_a_reason() {
    let sources = sources::all();
    for (page, test) in SCENARIOS {
        assert!(sources::has_test(&sources, test), "{page}: there is no test {test}");
    }
    let pages = pages();
    assert!(pages.len() > 2, "{}", pages.len());
    let unrun = pages.iter().flat_map(|page| {
        let is_run = SCENARIOS.iter().any(|(path, _)| page.path == Path::new(path));
        let found = blocks_of(page).into_iter().filter(move |block| !is_run && block.not_run.is_none());
        found.map(|block| {
            let says = "no test runs this block: write one and add it to tests::console::SCENARIOS, or give the \
                        reason before the block, as <!-- not run: REASON. -->";
            Violation::at(&page.path, block.line, says)
        })
    });
    expect_none(unrun.collect());
}

/// A scenario runs the page's blocks in order. So a page with one that has no such block is an error in the
/// list.
#[test]
fn every_page_with_a_scenario_has_blocks_that_are_run() {
    let pages = pages();
    for (path, _) in SCENARIOS {
        let page = pages.iter().find(|page| page.path == Path::new(path)).unwrap_or_else(|| panic!("{path}"));
        assert!(blocks_of(page).iter().any(|block| block.not_run.is_none()), "{path}");
    }
}

/// `tombolo`'s own parser is asked in its crate.
#[tokio::test]
async fn the_programs_of_the_pages_know_the_flags_and_values_there() {
    let test = "the_programs_of_the_pages_know_the_flags_and_values_there";
    let (helm, kubectl) = match (Helm::find(), Assets::find()) {
        (Ok(helm), Ok(assets)) => (helm, assets.kubectl),
        (Err(missing), _) | (_, Err(missing)) => return skip(test, &missing.to_string()),
    };
    let recorder = Recorder::new();
    let mut counts = [0; PROGRAMS.len()];
    for page in pages() {
        for command in blocks_of(&page).into_iter().flat_map(|block| block.commands) {
            let started = recorder.programs(&command);
            assert!(
                !started.is_empty() || OTHER_COMMANDS.iter().any(|begin| command.starts_with(begin)),
                "{command} starts no program of {PROGRAMS:?}"
            );
            for words in started {
                let (program, words) = words.split_first().expect("the name of the program");
                counts[PROGRAMS.iter().position(|known| known == program).unwrap()] += 1;
                let shown = format!("{}: {program} {words:?}", page.path.display());
                match program.as_str() {
                    "helm" => {
                        is_rendered(&helm, words).await.unwrap_or_else(|error| panic!("{shown}: {error}"))
                    }
                    "kubectl" => is_known(&kubectl, "kubectl", words, &shown).await,
                    "tunnel-agent" | "tunnel-server" => {
                        is_known(&binary(program), program, words, &shown).await
                    }
                    "make" => is_a_target(words),
                    _ => {}
                }
            }
        }
    }
    assert!(counts.iter().all(|count| *count > 0), "{counts:?} of {PROGRAMS:?}");
}

/// A check that cannot fail would hide faults of the pages.
#[tokio::test]
async fn a_wrong_flag_or_value_of_a_page_is_found() {
    let helm = match Helm::find() {
        Ok(helm) => helm,
        Err(missing) => return skip("a_wrong_flag_or_value_of_a_page_is_found", &missing.to_string()),
    };
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let chart = "install s deploy/charts/tombolo-server --namespace n --set host=g.example";
    for (more, is_good) in
        [("", true), ("--set hots=g", false), ("--nope", false), ("--set host=https://g.example", false)]
    {
        let words = words(&format!("{chart} {more}"));
        assert_eq!(is_rendered(&helm, &words).await.is_ok(), is_good, "{words:?}");
    }
    let server = binary("tunnel-server");
    assert!(usage(&server, &words("--config a.yaml")).await.is_ok());
    assert!(usage(&server, &words("--confg a.yaml")).await.is_err());
}

/// README.md and the pages of docs/start.
fn pages() -> Vec<TextFile> {
    let all = files(sources::workspace()).unwrap_or_else(|violation| panic!("{violation}"));
    let is_page = |path: &Path| {
        path == Path::new("README.md")
            || (path.starts_with("docs/start") && path.extension().is_some_and(|end| end == "md"))
    };
    all.into_iter().filter(|file| is_page(&file.path)).collect()
}

fn blocks_of(page: &TextFile) -> Vec<ConsoleBlock> {
    blocks(page).unwrap_or_else(|violation| panic!("{violation}"))
}

/// A folder of programs that do nothing but record their arguments.
struct Recorder {
    scratch: Scratch,
}

impl Recorder {
    fn new() -> Self {
        let scratch = Scratch::new("tombolo-recorder-").unwrap();
        fs::create_dir(scratch.path().join("bin")).unwrap();
        for program in PROGRAMS {
            let path = scratch.path().join("bin").join(program);
            fs::write(&path, RECORDER).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        Self { scratch }
    }

    /// Runs a command by bash, and returns the words of each of [`PROGRAMS`] that it starts.
    fn programs(&self, command: &str) -> Vec<Vec<String>> {
        let records = self.scratch.path().join("records");
        let _ = fs::remove_dir_all(&records);
        fs::create_dir(&records).unwrap();
        let work = tempfile::tempdir_in(self.scratch.path()).unwrap();
        let path = format!("{}:/usr/bin:/bin", self.scratch.path().join("bin").display());
        // How it ends says nothing: files of the page are not there.
        let output = Command::new("bash")
            .args(["-c", command])
            .current_dir(work.path())
            .env_clear()
            .envs([("PATH", path.as_str()), ("RECORDS", records.to_str().unwrap())])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let is_understood = !["syntax error", "unexpected EOF", "command not found"]
            .iter()
            .any(|fault| stderr.contains(fault));
        assert!(is_understood, "{command}: {stderr}");
        let files = fs::read_dir(records).unwrap().flatten().map(|entry| entry.path());
        files.map(|file| words(&fs::read_to_string(file).unwrap())).collect()
    }
}

fn words(record: &str) -> Vec<String> {
    let text = record.strip_suffix('\0').unwrap_or_else(|| panic!("not one complete record: {record:?}"));
    text.split('\0').map(str::to_owned).collect()
}

/// Renders the chart of an installation with the same values, which its schema checks.
async fn is_rendered(helm: &Helm, words: &[String]) -> Result<(), String> {
    let (verb, rest) = words.split_first().ok_or("helm needs a command")?;
    if !["install", "upgrade"].contains(&verb.as_str()) {
        return Err(format!("helm {verb} is not known to this test"));
    }
    let root = sources::workspace();
    let mut template = vec!["template".to_owned()];
    for word in rest.iter().filter(|word| !FLAGS_OF_A_CLUSTER.contains(&word.as_str())) {
        let is_chart = word.starts_with("deploy/charts/");
        template.push(if is_chart { root.join(word).display().to_string() } else { word.clone() });
    }
    let template: Vec<&str> = template.iter().map(String::as_str).collect();
    helm.run(&template, "").await.map(drop)
}

/// Asserts that the program knows the subcommand and all of its flags.
async fn is_known(program: &Path, name: &str, words: &[String], shown: &str) {
    let usage = usage(program, words).await.unwrap_or_else(|error| panic!("{shown}: {error}"));
    // The usage of a group of commands leaves the command open, and that of kubectl itself, too.
    let is_general = ["SUBCOMMAND", "kubectl [flags]"].iter().any(|text| usage.contains(text));
    assert!(usage.contains(name) && !is_general, "{shown}: {usage}");
}

/// The usage that a program prints if its other words are right. It complains about an unknown flag before it
/// prints any help.
async fn usage(program: &Path, words: &[String]) -> Result<String, String> {
    let own = words.iter().take_while(|word| *word != "--").cloned().chain(["--help".to_owned()]);
    let output =
        run(&Invocation::of(program).arguments(own), RUN_MAX).await.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let usage = text.lines().skip_while(|line| !line.starts_with("Usage:")).take(2).collect::<Vec<_>>();
    if output.status.success() {
        Ok(usage.join(" "))
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into())
    }
}

fn is_a_target(words: &[String]) {
    let makefile = fs::read_to_string(sources::workspace().join("Makefile")).unwrap();
    for word in words {
        assert!(makefile.contains(&format!("\n{word}: ## ")), "make {word}");
    }
}
