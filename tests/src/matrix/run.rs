//! Runs one cell of the matrix, from its setup to its report.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::code::{Request, Timing};
use super::fault::{ApiFault, Injection, Row, Victim};
use super::gateway::GatewayClient;
use super::inject::{self, ActiveFault, FaultUnavailable};
use super::judge::{Arrivals, Span, judge};
use super::phases::FaultController;
use super::report::{BystanderSummary, CellReport};
use super::requests::{Observation, RequestContext, perform};
use super::setup::{COLLECTION, MatrixSetup};
use crate::check::bounds::{Slack, Usage, returned};
use crate::check::bystanders::{Bystander, BystanderReport};
use crate::check::stream::Verifier;
use crate::check::writes;
use crate::fake_api::{Behaviour, FakeApi, FakeApiOptions, HttpVersion, Moment};
use crate::lab::{self, Lab, Site, Uplink};
use crate::rig::{Agent, Rig};

/// The limit for all requests to reach their stage.
const READY_MAX: Duration = Duration::from_secs(90);
/// A bystander's 99th percentile is disturbed beyond this ...
const DISTURBED_MIN: Duration = Duration::from_secs(1);
/// ... and so much more than before.
const DISTURBED_RATIO: f64 = 10.0;
/// The limit for a cell beside its fault.
const CELL_MAX: Duration = Duration::from_secs(300);
/// The time that a bystander sends requests before the fault.
const BASELINE: Duration = Duration::from_secs(2);
/// The limit for resources to be released.
const RETURN_MAX: Duration = Duration::from_secs(60);
/// The growth that is allowed: allocators release late, and pools keep connections.
const SLACK: Slack = Slack { resident_bytes: 96 << 20, descriptors: 48, tasks: 32 };
/// The cluster of the bystander.
const BYSTANDER: &str = "edge-b";

/// One cell of the matrix.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The row of the fault.
    pub row: Row,
    /// The stage of the requests.
    pub timing: Timing,
    /// The seed from which all chance is drawn.
    pub seed: u64,
    /// The kinds of requests to try, of those that the row asks for.
    pub requests: Vec<Request>,
    /// True if another cluster's caller sends requests beside the fault.
    pub has_bystander: bool,
}

/// Another cluster, and the caller that sends requests to it.
struct OtherCluster {
    bystander: Bystander,
    _agent: Agent,
    _fake: FakeApi,
    _site: Site,
}

impl Cell {
    /// All that the row asks for.
    pub fn of(row: Row, timing: Timing, seed: u64, has_bystander: bool) -> Self {
        let is_asked =
            |request: &Request| row.expected(*request, timing).is_ok_and(|codes| !codes.is_empty());
        let requests = Request::ALL.into_iter().filter(is_asked).collect();
        Self { row, timing, seed, requests, has_bystander }
    }
}

/// Tries a cell in a lab of its own. There is a report in any case.
pub fn attempt(cell: &Cell) -> CellReport {
    let found = Mutex::new(None);
    let attempted = panic::catch_unwind(AssertUnwindSafe(|| {
        lab::trial(cell.row.fault, async |lab: &Lab| {
            let report = timeout(CELL_MAX + cell.row.lasts + cell.row.wait_max, run(lab, cell)).await;
            let report = report.unwrap_or_else(|_| Err(FaultUnavailable("the trial did not end".to_owned())));
            *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
        });
    }));
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let nothing = |why: String| {
        let mut report = CellReport::new(cell.row.id, cell.timing, cell.seed);
        report.wrong.push(why);
        report
    };
    match (attempted, found) {
        (_, Some(Ok(report))) => report,
        (_, Some(Err(not_made))) => nothing(not_made.to_string()),
        (Ok(()), None) => nothing("no lab here: network namespaces are not permitted".to_owned()),
        (Err(panic), None) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no words");
            // What follows the first line is logs.
            nothing(format!("the trial itself failed: {}", text.lines().next().unwrap_or_default()))
        }
    }
}

/// Tries a cell in the lab.
///
/// # Errors
/// [`FaultUnavailable`] where the fault could not be made here.
pub async fn run(lab: &Lab, cell: &Cell) -> Result<CellReport, FaultUnavailable> {
    let (row, timing, seed) = (&cell.row, cell.timing, cell.seed);
    let mut setup = MatrixSetup::build(lab, row, seed).await;
    let mark = writes::mark();
    let answered = setup.set_answers(row, &mark, seed);
    let beside = if cell.has_bystander { Some(OtherCluster::start(lab, &setup.rig).await) } else { None };
    let server = setup.rig.server().id();
    let before = usage(&mut setup).await;

    let mut controller = FaultController::new(cell.requests.len());
    let running: Vec<(Request, JoinHandle<Observation>)> = cell
        .requests
        .iter()
        .map(|request| (*request, tokio::spawn(perform(context(&setup, cell, *request, &mark, &controller)))))
        .collect();
    for _ in &cell.requests {
        timeout(READY_MAX, controller.next())
            .await
            .map_err(|_| FaultUnavailable("a request never stood where it should".into()))?;
    }

    let begun = Instant::now();
    let server_endpoint = tokio::spawn(MatrixSetup::noticed(setup.server_endpoint()));
    if let Some(beside) = &beside {
        beside.bystander.the_fault_begins();
    }
    let fault = ActiveFault::begin(&mut setup, row).await?;
    controller.begin();
    last(&mut setup, row).await;
    let mut ended = end_before(row).then(|| controller.end());
    let unmade = fault.end(&mut setup, row).await;
    let ended = *ended.get_or_insert_with(|| controller.end());

    let mut report = CellReport::new(row.id, timing, seed);
    report.wrong.extend(unmade);
    let mut sights = Vec::new();
    for (request, task) in running {
        match task.await {
            Ok(observation) => sights.push((request, observation)),
            Err(panic) => report.wrong.push(format!("{}: the trial itself: {panic}", request.word())),
        }
    }
    server_endpoint.abort();
    // One that has finished has something to tell, all the same.
    let noticed = server_endpoint.await.ok();
    report.noticed = noticed.map(|noticed| noticed.duration_since(begun).as_secs_f64());
    for (request, observation) in &sights {
        let emitted = setup.store.emitted();
        let logged = answered.as_ref().map(|(status, text)| (*status, text.as_str()));
        let arrivals = arrivals(setup.fake(), *request, &mark);
        let known = Arrivals { arrivals, emitted: &emitted, answered: logged };
        report.observed.push(judge(*request, observation, known, Span { begun, ended }));
    }
    report.wrong.extend(never(&setup, seed));
    report.wrong.extend(missing_log_line(&setup, row));
    if let Some(beside) = beside {
        let noticed = beside.bystander.noticed();
        if !row.affects_all() && (noticed.failed > 0 || is_disturbed(&noticed)) {
            report.wrong.push(format!("a bystander noticed: {noticed:?}"));
        }
        report.bystander = Some(BystanderSummary {
            before_ms: noticed.before.1.as_secs_f64() * 1000.0,
            during_ms: noticed.during.1.as_secs_f64() * 1000.0,
            asked: noticed.before.0 + noticed.during.0,
            failed: noticed.failed,
        });
    }
    // Another process has another baseline, and one that was asked to stop has none.
    let stops = matches!(row.injection, Injection::Process(Victim::ServerOfTwo, _));
    if setup.rig.server().id() == server && !stops {
        let kept = leaks(&mut setup, before).await;
        report.wrong.extend(kept);
    }
    Ok(report)
}

/// Some requests wait at a gate that the fault's end opens.
fn context(
    setup: &MatrixSetup,
    cell: &Cell,
    request: Request,
    mark: &str,
    controller: &FaultController,
) -> RequestContext {
    let path = MatrixSetup::path(request, mark);
    let moment = match cell.timing {
        Timing::New => None,
        Timing::BeforeHead => Some(Moment::BeforeHead),
        // An exec's bytes flow; nothing holds them.
        Timing::MidBody | Timing::AtTheEnd if request == Request::Exec => None,
        Timing::MidBody => Some(Moment::MidBody),
        Timing::AtTheEnd => Some(Moment::AtTheEnd),
    };
    let held = if request == Request::Watch { format!("{path}?watch") } else { path.clone() };
    RequestContext {
        request,
        timing: cell.timing,
        gateway: setup.gateway(),
        version: if cell.seed.is_multiple_of(2) { HttpVersion::Http1 } else { HttpVersion::Http2 },
        path: format!("/clusters/{}{path}", setup.cluster()),
        gate: moment.map(|moment| setup.fake().hold(&held, moment)),
        opens_gate: !matches!(cell.row.injection, Injection::Idle | Injection::Api(ApiFault::Freezes)),
        phases: controller.phases(),
        new_after: cell.row.new_after,
        seed: cell.seed,
        wait_max: cell.row.wait_max,
        bytes: MatrixSetup::bytes(&cell.row, request),
        store: setup.store.clone(),
    }
}

/// Waits for as long as the fault lasts.
async fn last(setup: &mut MatrixSetup, row: &Row) {
    if matches!(row.injection, Injection::Buffers(_)) {
        // Both arms are cancel-safe: a frozen server goes on at the fault's end.
        tokio::select! {
            () = sleep(row.lasts) => {}
            () = inject::stutter(setup) => {}
        }
        inject::go_on(setup);
    } else if let Injection::Pulses(words, on, off) = row.injection {
        // Both arms are cancel-safe: a pulse that is cut short is undone at the fault's end.
        tokio::select! {
            () = sleep(row.lasts) => {}
            () = inject::pulse(setup, words, on, off) => {}
        }
        setup.site.link().set(&inject::off(words)).await;
    } else {
        sleep(row.lasts).await;
    }
}

/// Returns true if the end of a fault is the moment at which it begins to end: a process that is started
/// again takes its time, and that counts.
fn end_before(row: &Row) -> bool {
    matches!(row.injection, Injection::Process(..) | Injection::Resource(..))
}

/// Returns true if a bystander's requests took much longer than before. Other trials run beside, so only a
/// large factor counts.
fn is_disturbed(noticed: &BystanderReport) -> bool {
    noticed.during.1 > DISTURBED_MIN && noticed.ratio() > DISTURBED_RATIO
}

fn arrivals(fake: &FakeApi, request: Request, mark: &str) -> usize {
    let requests = fake.requests();
    if request == Request::Apply {
        return writes::arrivals(&requests).get(mark).copied().unwrap_or(0);
    }
    let path = MatrixSetup::path(request, mark);
    requests.iter().filter(|one| one.target.starts_with(&path)).count()
}

/// Observations that are never allowed, under any fault.
fn never(setup: &MatrixSetup, seed: u64) -> Vec<String> {
    let mut wrong = Vec::new();
    let requests = setup.fake().requests();
    for (mark, count) in writes::repeated(&requests) {
        wrong.push(format!("the write {mark} arrived {count} times"));
    }
    let execs = requests.iter().filter(|one| one.target.contains("/exec"));
    for exec in execs {
        let connections = setup.fake().connections();
        let Some(connection) = connections.iter().find(|one| one.id == exec.connection) else { continue };
        let head = connection.bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let mut verifier = Verifier::new(seed);
        verifier.take(&connection.bytes[head.map_or(connection.bytes.len(), |end| end + 4)..]);
        if let Some(fault) = verifier.fault() {
            wrong.push(format!("towards the API server: {fault}"));
        }
    }
    let logs = [("server", setup.rig.server_log()), ("agent", setup.rig.agent_log(setup.cluster()))];
    for (name, log) in logs {
        if let Some(line) = log.lines().find(|line| line.contains("panicked")) {
            wrong.push(format!("{name}: {line}"));
        }
    }
    wrong
}

/// The log line that a row demands, if it is missing.
fn missing_log_line(setup: &MatrixSetup, row: &Row) -> Option<String> {
    let (log, words) = row.logged?;
    let text = if log == "server" { setup.rig.server_log() } else { setup.rig.agent_log(setup.cluster()) };
    (!text.contains(words)).then(|| format!("the {log}'s log does not say {words:?}"))
}

async fn usage(setup: &mut MatrixSetup) -> Usage {
    let process = setup.rig.server().id().expect("the server runs");
    let metrics = setup.rig.metrics(setup.rig.probes()).await;
    Usage::of(process, &metrics).expect("the server runs")
}

async fn leaks(setup: &mut MatrixSetup, before: Usage) -> Vec<String> {
    let Some(process) = setup.rig.server().id() else { return vec!["the server has ended".to_owned()] };
    let rig = &setup.rig;
    let look = || async move { Usage::of(process, &rig.metrics(rig.probes()).await) };
    let kept = returned(&before, SLACK, RETURN_MAX, look).await;
    kept.iter().map(|kept| format!("server: {kept}")).collect()
}

impl OtherCluster {
    async fn start(lab: &Lab, rig: &Rig) -> Self {
        let site = lab.site(BYSTANDER, Uplink::Cable).await;
        let fake = site.fake_api(FakeApiOptions::default()).await;
        fake.otherwise(Behaviour::json("{}"));
        let agent = site.agent(rig, &fake, "").await;
        let gateway = GatewayClient::of(rig);
        let path = format!("/clusters/{BYSTANDER}{COLLECTION}");
        let bystander = Bystander::start(move || {
            let (gateway, path) = (gateway.clone(), path.clone());
            async move {
                let asked = async {
                    let mut answer = gateway.send(HttpVersion::Http2, "GET", &path, &[], "").await.ok()?;
                    (answer.response.status() == 200 && answer.body(|_| {}).await.is_ok()).then_some(())
                };
                timeout(READY_MAX, asked).await.ok().flatten().is_some()
            }
        });
        sleep(BASELINE).await;
        Self { bystander, _agent: agent, _fake: fake, _site: site }
    }
}
