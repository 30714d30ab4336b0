//! kube-apiserver's own code reads every accepted target as policy does, and so does it the forwarded one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use http::Method;
use policy::action::{Action, ActionError, Object, Resource};
use tests::kube::assets::request_info;
use tests::process::{Invocation, run};
use tests::scratch::Scratch;
use tests::skip::skip;

use super::target_generator::TargetGenerator;
use super::{SEED, SEED_DEFAULT};

/// Targets that one run of the program reads. Of three, two are accepted and compared.
const TARGETS_PER_RUN: usize = 20_000;

const RUN_MAX: Duration = Duration::from_secs(120);

/// An action in kube-apiserver's words: whether it is one of a resource, its verb, and its fields.
type Reading = (bool, String, Vec<String>);

/// The gateway refuses what the two could read differently.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_apiserver_reads_every_accepted_target_as_policy_does() {
    compare("kube_apiserver_reads_every_accepted_target_as_policy_does", 1).await;
}

/// The gateway refuses what the two could read differently.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: a million targets and queries"]
async fn kube_apiserver_reads_a_million_targets_as_policy_does() {
    compare("kube_apiserver_reads_a_million_targets_as_policy_does", 80).await;
}

async fn compare(name: &str, runs: usize) {
    let program = match request_info() {
        Ok(program) => program,
        Err(missing) if std::env::var_os("KUBEBUILDER_ASSETS").is_some() => {
            return skip(name, &missing.to_string());
        }
        Err(missing) => panic!("{missing}"),
    };
    let seed = std::env::var(SEED).map_or(SEED_DEFAULT, |seed| seed.parse().expect("a number"));
    let mut generator = TargetGenerator::new(seed);
    let scratch = Scratch::new("tombolo-request-info-").unwrap();
    let mut counts = BTreeMap::<String, usize>::new();
    for _ in 0..runs {
        compare_some(&program, &scratch.path().join("targets"), &mut generator, &mut counts).await;
    }
    eprintln!("seed {seed}: {counts:?}");
    let count =
        |kinds: &[&str]| kinds.iter().map(|kind| counts.get(*kind).copied().unwrap_or(0)).sum::<usize>();
    let all = TARGETS_PER_RUN * runs;
    assert_eq!(counts.values().sum::<usize>(), all);
    // A comparison of refusals alone would show nothing.
    assert!(count(&["resource", "path"]) >= all / 2, "{counts:?}");
    for refused in ["QueryEncoding", "Semicolon", "TooManyParameters", "AmbiguousWatch"] {
        assert!(count(&[refused]) > 0, "{refused}: {counts:?}");
    }
}

/// Compares the next [`TARGETS_PER_RUN`] targets, and counts how each was read or why it was refused.
async fn compare_some(
    program: &Path,
    file: &Path,
    generator: &mut TargetGenerator,
    counts: &mut BTreeMap<String, usize>,
) {
    let (mut lines, mut accepted) = (String::new(), Vec::new());
    for _ in 0..TARGETS_PER_RUN {
        let (method, target) = generator.next();
        match parse(method, &target) {
            Ok(action) => {
                let forwarded = hex(action.path().as_str().as_bytes());
                writeln!(lines, "{method} {} {forwarded}", hex(&target)).unwrap();
                accepted.push((method, target, action));
            }
            Err(refused) => *counts.entry(refused).or_default() += 1,
        }
    }
    fs::write(file, lines).unwrap();
    let invocation = Invocation::of(program).arguments([file.display().to_string()]);
    let output = run(&invocation, RUN_MAX).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.lines().count(), accepted.len());
    for ((method, target, action), line) in accepted.iter().zip(output.lines()) {
        let asked = || format!("{method} {} as {}", target.escape_ascii(), action.path());
        if line == "unread" {
            // Nobody reads it otherwise, because the API server refuses it.
            *counts.entry("unread".to_owned()).or_default() += 1;
            continue;
        }
        let theirs = theirs(line).unwrap_or_else(|| panic!("{}: {line}", asked()));
        assert_eq!(ours(action), theirs, "{}", asked());
        let kind = if theirs.0 { "resource" } else { "path" };
        *counts.entry(kind.to_owned()).or_default() += 1;
    }
}

/// The action, or the name of the error.
fn parse(method: &str, target: &[u8]) -> Result<Action, String> {
    // What is no text is refused before it is read as an action.
    let target = std::str::from_utf8(target).map_err(|_| "RawByte".to_owned())?;
    let method: Method = method.parse().unwrap();
    let parsed = Action::of_cluster("edge-a".parse().unwrap(), &method, target, None);
    parsed.map_err(|error: ActionError| format!("{error:?}"))
}

fn ours(action: &Action) -> Reading {
    let verb = action.verb().to_string();
    match action.object() {
        Object::Path(path) => (false, verb, vec![path.clone()]),
        Object::Resource(Resource { group, resource, subresource, namespace, name }) => {
            let or_empty = |text: &Option<String>| text.clone().unwrap_or_default();
            let fields =
                [group.clone(), resource.clone(), or_empty(subresource), or_empty(namespace), or_empty(name)];
            (true, verb, fields.into())
        }
    }
}

/// A line of the program, in our words where ours differ on purpose. `None` where the sent and the forwarded target mean
/// different things to kube-apiserver.
fn theirs(line: &str) -> Option<Reading> {
    let mut words = line.split(' ');
    let (kind, verb) = (words.next()?, words.next()?.strip_prefix('.')?.to_owned());
    let fields: Vec<String> = words.map(|word| unhex(word.strip_prefix('.').unwrap())).collect();
    match (kind, fields.as_slice()) {
        ("path", [_]) => Some((false, verb, fields)),
        ("resource", [group, resource, subresource, namespace, name, selected]) => {
            let (verb, subresource) = match (verb.as_str(), subresource.as_str()) {
                // A deprecated form of a subresource.
                ("proxy", _) => ("connect", "proxy"),
                (_, "exec" | "attach" | "portforward" | "proxy" | "ephemeralcontainers") => {
                    ("connect", subresource.as_str())
                }
                ("", subresource) => ("options", subresource),
                same => same,
            };
            // No rule names an object, so a field selector names none here. The API server names one in a list alone.
            assert!(selected.is_empty() || ["list", "watch"].contains(&verb) && name.is_empty(), "{line}");
            let fields = [group.as_str(), resource, subresource, namespace, name].map(str::to_owned);
            Some((true, verb.to_owned(), fields.into()))
        }
        _ => None,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn unhex(text: &str) -> String {
    let bytes = text
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
    String::from_utf8(bytes.collect()).unwrap_or_else(|error| panic!("{error}: {text}"))
}
