//! Runs every scenario in miniature, and checks the shape of its report. Counts are asserted, never times.

use std::process::{Command, Output};

use serde_json::Value;

/// Runs `loadtest` with these arguments. Returns the report, and the exit status with the output.
fn loadtest(words: &str) -> (Value, Output) {
    let folder = tests::scratch::Scratch::new("tombolo-loadtest-test-").expect("a folder");
    let (json, plots) = (folder.path().join("report.json"), folder.path().join("plots"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_loadtest"));
    command.args(words.split_whitespace());
    command.args(["--seed", "7", "--give-up-minutes", "10"]);
    command.arg("--json").arg(&json).arg("--plots").arg(&plots);
    let output = command.output().expect("loadtest runs");
    let Ok(text) = std::fs::read_to_string(&json) else {
        panic!("{words}: no report: {}", String::from_utf8_lossy(&output.stderr));
    };
    for plot in std::fs::read_dir(&plots).into_iter().flatten() {
        let svg = std::fs::read_to_string(plot.expect("an entry").path()).expect("a plot");
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{svg}");
    }
    let report: Value = serde_json::from_str(&text).expect("the report is JSON");
    for key in ["scenario", "commit", "profile", "seed", "machine", "configuration", "binaries", "results"] {
        assert!(!report[key].is_null(), "{words}: no {key} in {report}");
    }
    assert_eq!(report["seed"], 7);
    (report, output)
}

/// Runs `loadtest`, and checks that every bound holds.
fn passing(words: &str) -> Value {
    let (report, output) = loadtest(words);
    assert_eq!(report["missed"], Value::Array(Vec::new()), "{words}");
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    report
}

fn rows<'a>(report: &'a Value, load: &str) -> Vec<&'a Value> {
    let rows = report["results"].as_array().or_else(|| report["results"]["rows"].as_array());
    rows.expect("rows").iter().filter(|row| !row["load"][load].is_null()).collect()
}

fn each_way_has_figures(rows: &[&Value], rounds: usize) {
    each_has_figures(rows, rounds, &["direct", "tunnel"]);
}

fn each_has_figures(rows: &[&Value], rounds: usize, expected: &[&str]) {
    for row in rows {
        assert_eq!(row["figures"].as_array().map(Vec::len), Some(rounds), "{row}");
        assert!(row["rate"]["median"].as_f64().is_some_and(|rate| rate > 0.0), "{row}");
    }
    let ways: Vec<&str> = rows.iter().filter_map(|row| row["way"].as_str()).collect();
    assert!(ways.chunks(expected.len()).all(|ways| ways == expected), "{ways:?}");
}

#[test]
fn get_compares_callers_and_half_load_with_direct_access() {
    let report = passing("get --rounds 2 --seconds 0.2 --callers 1,3 --half-load 3");
    let (small, open) = (rows(&report, "small"), rows(&report, "open"));
    assert_eq!((small.len(), open.len()), (4, 2));
    each_way_has_figures(&small, 2);
    each_way_has_figures(&open, 2);
    assert_eq!(open[0]["load"]["open"]["perSecond"], open[1]["load"]["open"]["perSecond"]);
    assert!(report["kubernetes"].is_string());
}

#[test]
fn a_hop_between_servers_is_compared_with_none() {
    // A debug run proves nothing about times, so a bound may be missed.
    // Long enough for requests at the light load.
    let (report, _) = loadtest("hop --rounds 1 --seconds 1 --mib 2");
    for (load, count) in [("small", 2), ("bulk", 4), ("open", 4)] {
        let rows = rows(&report, load);
        assert_eq!(rows.len(), count, "{load}");
        each_has_figures(&rows, 1, &["local", "hop"]);
    }
}

#[test]
fn node_lb_is_compared_with_direct_access_and_each_peer_that_is_here() {
    // A debug run proves nothing about times, so a bound may be missed.
    let short = "--rounds 1 --seconds 0.2 --mib 2 --connections 20 --idle-seconds 0.5 --trials 1";
    let (report, _) = loadtest(&format!("node-lb --parts rates,rest {short}"));
    let (kinds, missing) = tests::balancers::BalancerKind::installed();
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    let results = &report["results"];
    assert_eq!(results["missing"].as_array().map(Vec::len), Some(missing.len()));
    let rates = results["rates"].as_array().expect("rates");
    assert_eq!(rates.len(), 4 * (1 + names.len()));
    assert!(rates.iter().all(|row| row["rate"]["median"].as_f64() > Some(0.0)), "{rates:?}");
    let rest = results["rest"].as_array().expect("rest");
    let measured: Vec<&str> = rest.iter().filter_map(|row| row["balancer"].as_str()).collect();
    assert_eq!(measured, names);
    assert!(rest.iter().all(|row| row["connectedPssMib"]["median"].as_f64() > Some(0.0)), "{rest:?}");
}

#[tokio::test]
async fn a_fault_of_an_api_server_is_drawn_for_each_balancer() {
    if let Err(error) = tests::network::NetworkNamespace::new().await {
        return tests::skip::skip("a_fault_of_an_api_server_is_drawn_for_each_balancer", &error.to_string());
    }
    let (report, _) = loadtest("node-lb --parts faults --faults frozen --fault-seconds 1 --trials 1");
    let faults = report["results"]["faults"].as_array().expect("faults");
    assert!(!faults.is_empty());
    assert!(faults.iter().all(|row| row["answered"]["median"].as_f64() > Some(100.0)), "{faults:?}");
}

#[test]
fn bulk_goes_down_and_up_over_one_and_several_streams_by_either_http() {
    for http in ["1", "2"] {
        let report = passing(&format!("bulk --rounds 1 --mib 2 --streams 1,3 --http {http}"));
        let bulk = rows(&report, "bulk");
        assert_eq!(bulk.len(), 8);
        each_way_has_figures(&bulk, 1);
    }
}

#[test]
fn every_event_arrives_at_every_watch() {
    let report = passing("watches --watches 120 --per-caller 50 --events 2");
    let results = report["results"].as_array().expect("ways");
    assert_eq!(results.len(), 2);
    for route in results {
        assert_eq!(
            (&route["eventsExpected"], &route["eventsArrived"]),
            (&240.into(), &240.into()),
            "{route}"
        );
    }
}

#[test]
fn small_requests_are_served_beside_slow_readers() {
    // A short debug run proves nothing about times, but its memory bounds have to hold.
    let (report, _) =
        loadtest("slow-readers --rounds 1 --seconds 0.2 --slow-readers 13 --callers 2 --mib 64");
    let missed = report["missed"].as_array().expect("bounds");
    let is_of_time =
        |missed: &Value| missed.as_str().is_some_and(|missed| missed.contains("the p99 of others"));
    assert!(missed.iter().all(is_of_time), "{missed:?}");
    each_has_figures(&rows(&report, "beside"), 1, &["direct", "tunnel", "by address"]);
    let costs = report["results"]["costs"].as_array().expect("costs");
    assert_eq!(costs.len(), 3);
    for cost in &costs[1..] {
        assert!(cost["serverGrewMib"].is_f64() && cost["agentGrewMib"].is_f64(), "{costs:?}");
        assert!(cost["p99Ratio"]["median"].is_f64(), "{costs:?}");
    }
}

#[test]
fn a_modest_caller_is_served_beside_a_greedy_one_under_all_limits() {
    // A debug run proves nothing about times, so a bound may be missed.
    let load = "--concurrent 150 --unread 3 --failures 40";
    let (report, _) = loadtest(&format!("fairness --seconds 2 --rounds 1 --per-second 20 {load}"));
    let results = report["results"].as_array().expect("limits");
    assert_eq!(results.iter().map(|found| &found["held"]).collect::<Vec<_>>(), ["caller", "server", "agent"]);
    for found in results {
        assert!(found["refused"].is_null(), "{found}");
        let answers =
            found["modest"].as_array().expect("three turns").iter().map(|turn| turn["answers"].as_u64());
        assert!(answers.clone().count() == 3 && answers.flatten().all(|answers| answers > 10), "{found}");
        assert!(found["greed"]["failedLoginsPerSecond"].as_f64() > Some(0.0), "{found}");
        assert!(found["greed"]["underWayMax"].as_u64() >= Some(100), "{found}");
    }
    // Only the limits of one caller at the gateway apply: 100 requests at once.
    assert!(results[0]["greed"]["refusedPerSecond"].as_f64() > Some(0.0), "{}", results[0]);
}

#[test]
fn idle_tunnels_are_all_counted_by_the_server() {
    let report = passing("idle --agents 8 --batch 4 --seconds 0.1");
    let memory = report["results"]["memory"].as_array().expect("steps");
    let tunnels: Vec<u64> = memory.iter().filter_map(|step| step[0].as_u64()).collect();
    assert_eq!(tunnels, [0, 2, 4, 6, 8, 8]);
}

#[test]
fn each_of_several_servers_counts_its_tunnels_and_etcd_rests() {
    let report = passing("servers --servers 3 --agents 6 --batch 4 --seconds 2");
    let results = &report["results"];
    assert_eq!((&results["revisions"], results["resident"].as_array().map(Vec::len)), (&0.into(), Some(3)));
}

#[test]
fn layouts_are_compared_with_direct_access() {
    let report =
        passing("layout --rounds 1 --seconds 0.1 --callers 2 --layouts shared:1,perCore:1 --bulk-mib 1");
    assert_eq!((rows(&report, "small").len(), rows(&report, "bulk").len()), (3, 3));
}

#[tokio::test]
async fn controllers_and_carriers_are_compared_on_one_link() {
    if let Err(error) = tests::network::NetworkNamespace::new().await {
        return tests::skip::skip("controllers_and_carriers_are_compared_on_one_link", &error.to_string());
    }
    let report = passing("link --rounds 1 --seconds 0.5 --warm-up 0.2 --rate 10 --loss 0,5");
    let results = report["results"].as_array().expect("rows");
    assert_eq!(results.len(), 14);
    for row in results {
        let turn = &row["turns"][0];
        assert!(turn["goodputMbit"].as_f64().is_some_and(|mbit| mbit > 0.0), "{row}");
        let is_bulk_alone = row["sender"].as_str().is_some_and(|name| name.starts_with("TCP"));
        assert_eq!(turn["answered"].as_u64() == Some(0), is_bulk_alone, "{row}");
    }
}

#[test]
fn cancelled_requests_and_lost_tunnels_leak_nothing() {
    // Memory that allocators keep in a debug build is no leak.
    let report = passing("leak --requests 2000 --callers 8 --reconnects 20 --memory-mib 200");
    let results = &report["results"];
    let counts = &results["requests"];
    let count = |name: &str| counts[name].as_u64().unwrap_or_default();
    assert_eq!(count("answered") + count("givenUp") + count("failed"), 2000, "{counts}");
    assert!(count("answered") > 500 && count("givenUp") > 500, "{counts}");
    assert!(results["agentReconnects"].as_u64() >= Some(20), "{results}");
    let [server, agent] = [0, 1].map(|daemon| &results["daemons"][daemon]["after"]["gauges"]);
    assert_eq!(server["tombolo_server_requests_active"], 0.0);
    assert_eq!(agent["tombolo_agent_requests_active"], 0.0);
    assert_eq!(server["tombolo_server_agents_connected"], 1.0);
}

#[test]
fn ctrl_c_ends_every_process_that_was_started() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loadtest"));
    command.args(["idle", "--agents", "2", "--seconds", "300"]);
    let mut child = command.stderr(std::process::Stdio::null()).spawn().expect("loadtest runs");
    let is_server = |id: &u32| {
        std::fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name.trim() == "tunnel-server")
    };
    let children = wait_for(|| Some(descendants(child.id())).filter(|all| all.iter().any(is_server)));
    let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a process id");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    wait_for(|| children.iter().all(|child| !runs(*child)).then_some(()));
}

fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(std::time::Instant::now() < deadline, "it never came");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// The child processes of any of the process's threads.
fn descendants(parent: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn runs(process: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}
