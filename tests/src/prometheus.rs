//! A real Prometheus beside the daemons under test, its `promtool`, and a parser of scrapes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::time::sleep;

use crate::process::{Invocation, Process, run};
use crate::rig::{Rig, free_port, plain};
use crate::scratch::Scratch;

/// The limit for a query to return the wanted value. Scrapes are a second apart, and builds may run beside.
const VALUE_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const PROMTOOL_MAX: Duration = Duration::from_secs(60);

/// A Prometheus with a folder and a port of its own.
#[derive(Debug)]
#[must_use = "Prometheus is killed when this is dropped"]
pub struct Prometheus {
    process: Process,
    address: SocketAddr,
    // After the process, whose files are in it.
    _scratch: Scratch,
}

/// One series of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The labels of the series.
    pub labels: BTreeMap<String, String>,
    /// The value of the series now.
    pub value: f64,
}

/// The content of a daemon's `/metrics`.
#[derive(Debug, Clone, Default)]
pub struct Exposition {
    /// The metrics by their names.
    pub metrics: BTreeMap<String, Metric>,
}

/// One metric with its series.
#[derive(Debug, Clone, Default)]
pub struct Metric {
    /// The text of `# HELP`.
    pub help: String,
    /// The type of `# TYPE`.
    pub kind: String,
    /// The names of its labels, without `le`.
    pub labels: BTreeSet<String>,
    /// The lines of the metric, in their order.
    pub lines: Vec<String>,
}

#[derive(Deserialize)]
struct QueryResponse {
    data: QueryData,
}

#[derive(Deserialize)]
struct QueryData {
    result: Vec<QueryResult>,
}

#[derive(Deserialize)]
struct QueryResult {
    metric: BTreeMap<String, String>,
    value: (f64, String),
}

impl Prometheus {
    /// Starts one that scrapes these addresses each second and knows the alerts that ship; `None` where there
    /// is no `prometheus` (Debian's package of that name).
    pub async fn watching(jobs: &[(&str, SocketAddr)]) -> Option<Self> {
        let program = which("prometheus")?;
        let (scratch, address) = (Scratch::new("tombolo-prometheus-").expect("a folder"), free_port());
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus/alerts.yaml");
        let rules = rules.canonicalize().expect("the alerts are there");
        let mut config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [{rules:?}]\nscrape_configs:\n"
        );
        for (job, target) in jobs {
            config.push_str(&format!(
                "- {{ job_name: {job}, static_configs: [{{ targets: [\"{target}\"] }}] }}\n"
            ));
        }
        let file = scratch.path().join("prometheus.yaml");
        fs::write(&file, config).expect("a file can be written");
        let invocation = Invocation::of(program).variable("GOMEMLIMIT", "200MiB").arguments([
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", scratch.path().join("data").display()),
            format!("--web.listen-address={address}"),
            "--log.level=warn".to_owned(),
        ]);
        let log = scratch.path().join("prometheus.log");
        let process = Process::start(&invocation, &log).await.expect("Prometheus starts");
        Some(Self { process, address, _scratch: scratch })
    }

    /// Asks until the answer is wanted.
    pub async fn until(&self, query: &str, wanted: impl Fn(&[Series]) -> bool) -> Vec<Series> {
        let deadline = Instant::now() + VALUE_MAX;
        loop {
            let found = self.query(query).await.unwrap_or_default();
            if wanted(&found) {
                return found;
            }
            assert!(Instant::now() < deadline, "{query}: {found:?}\n{}", self.process.tail());
            sleep(LOOK_EVERY).await;
        }
    }

    /// Asks until the answer is one series of this value.
    pub async fn returns(&self, query: &str, value: f64) {
        self.until(query, |found| found.len() == 1 && found[0].value == value).await;
    }

    /// The names of all rules and whether the last evaluation was right.
    pub async fn get(&self, path: &str) -> Option<String> {
        let answer = plain(self.address, path).await.ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.contains(" 200 ").then(|| body.to_owned())
    }

    async fn query(&self, query: &str) -> Option<Vec<Series>> {
        let body = self.get(&format!("/api/v1/query?query={}", encoded(query))).await?;
        let QueryResponse { data } = serde_json::from_str(&body).ok()?;
        let series = |found: QueryResult| Series {
            labels: found.metric,
            value: found.value.1.parse().unwrap_or(f64::NAN),
        };
        Some(data.result.into_iter().map(series).collect())
    }
}

impl Exposition {
    /// Reads the answer to a scrape, its head included.
    ///
    /// # Panics
    /// If it is not Prometheus' text format: a series without a type, or a repeated metric.
    pub fn of(answer: &str) -> Self {
        let (_, text) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
        let mut current = String::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
                metrics.entry(name.to_owned()).or_default().help = help.to_owned();
            } else if let Some((name, kind)) =
                line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
            {
                let metric = metrics.entry(name.to_owned()).or_default();
                assert!(metric.kind.is_empty(), "{name} stands twice");
                metric.kind = kind.to_owned();
                current = name.to_owned();
            } else {
                let metric = metrics.get_mut(&current).expect("a type stands before every series");
                assert!(line.starts_with(&current), "{line:?} stands under {current}");
                metric.labels.extend(labels(line).into_keys().filter(|label| label != "le"));
                metric.lines.push(line.to_owned());
            }
        }
        Self { metrics }
    }

    /// The value of a series, written as in the text: `name{label="value"}`.
    pub fn value(&self, series: &str) -> Option<f64> {
        let lines = self.metrics.values().flat_map(|metric| &metric.lines);
        let mut values = lines.filter_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
        values.next()
    }
}

/// Waits until a series has this value.
pub async fn counts(rig: &Rig, probes: SocketAddr, series: &str, value: f64) {
    let deadline = Instant::now() + VALUE_MAX;
    loop {
        let found = Exposition::of(&rig.metrics(probes).await).value(series);
        if found == Some(value) {
            return;
        }
        assert!(Instant::now() < deadline, "{series} is {found:?}, not {value}");
        sleep(LOOK_EVERY).await;
    }
}

/// Runs `promtool` with these arguments, with its standard input from a file if there is one. The error is
/// promtool's output. `None` where there is no promtool.
pub async fn promtool(words: &[&str], input: Option<&Path>) -> Option<Result<(), String>> {
    let program = which("promtool")?;
    let input = input.map_or_else(|| "/dev/null".to_owned(), |path| path.display().to_string());
    let script = "input=$1; shift; exec \"$@\" <\"$input\"";
    let arguments = ["-c", script, "sh", &input, &program].into_iter().chain(words.iter().copied());
    let output = run(&Invocation::of("sh").arguments(arguments), PROMTOOL_MAX).await.expect("promtool runs");
    let message =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Some(if output.status.success() { Ok(()) } else { Err(message) })
}

fn which(program: &str) -> Option<String> {
    let path = std::env::var("PATH").ok()?;
    path.split(':').map(|folder| format!("{folder}/{program}")).find(|file| Path::new(file).is_file())
}

/// The labels of a line. No value of ours has a quote or a comma in it.
fn labels(line: &str) -> BTreeMap<String, String> {
    let within =
        line.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or("", |(within, _)| within);
    let pairs = within.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned())).collect()
}

fn encoded(query: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    query.bytes().map(encode).collect()
}
