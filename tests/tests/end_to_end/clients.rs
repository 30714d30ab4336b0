//! Popular clients by each entry point to a cluster's API server: they work, or fail with an understandable
//! message.
//!
//! `docs/clients.md` shows the same table.

mod entry_points;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use futures::future::join_all;
use tests::caller::SOON;
use tests::entry_points::ENTRY_POINTS;
use tests::kube::assets::{self, Assets, all_minors, neighbouring_minors};
use tests::skip::skip;
use tests::sources;
use tokio::time::{Duration, sleep, timeout};

use Cell::{Says, Works};
use entry_points::ClusterEntryPoints;

/// The result of a client by one entry point.
#[derive(Debug, Clone, Copy)]
enum Cell {
    /// It gets objects, and receives the events of its watch.
    Works,
    /// It fails, and its message contains this.
    Says(&'static str),
}

/// A client by all of [`ENTRY_POINTS`].
struct Row {
    /// As the page calls it.
    client: &'static str,
    cells: [Cell; ENTRY_POINTS.len()],
}

const KUBECTL: Row = Row { client: "kubectl of each minor, client-go", cells: [Works; ENTRY_POINTS.len()] };

const KUBE_RS: Row = Row {
    client: "kube-rs",
    cells: [Works, Works, Says("server does not support user/pass authentication"), Works, Works],
};

const PYTHON: Row = Row {
    client: "Python's client",
    cells: [
        Works,
        Says("Tunnel connection failed: 407"),
        Works,
        Says("Tunnel connection failed: 407"),
        Works,
    ],
};

const PYTHON_WITH_CREDENTIAL: Row =
    Row { client: "Python's client, told the credential", cells: [Works; ENTRY_POINTS.len()] };

const ROWS: [Row; 4] = [KUBECTL, KUBE_RS, PYTHON, PYTHON_WITH_CREDENTIAL];

/// Makes the program with Python's client send its proxy's user and password itself.
const WITH_CREDENTIAL: (&str, &str) = ("PROXYS_CREDENTIAL", "said");
const WITHOUT_CREDENTIAL: (&str, &str) = ("PROXYS_CREDENTIAL", "");

const LOOK_EVERY: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pinned_kubectl_gets_and_watches_by_every_entry_point() {
    let program = Assets::find().unwrap().kubectl;
    tried(&KUBECTL, &Client { name: "kubectl", program: &program, variables: vec![] }).await;
}

/// These are the minors directly before and after the pinned one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectls_of_neighbouring_minors_get_and_watch_by_every_entry_point() {
    let test = "kubectls_of_neighbouring_minors_get_and_watch_by_every_entry_point";
    if env::var_os("KUBEBUILDER_ASSETS").is_some() {
        return skip(test, "with binaries from elsewhere nobody knows which minors are beside them");
    }
    minors(&neighbouring_minors()).await;
}

/// These are all minors that can be built.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: builds the kubectl of every minor that is to be had"]
async fn kubectls_of_every_minor_get_and_watch_by_every_entry_point() {
    minors(&all_minors()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_rs_gets_and_watches_by_every_entry_point_but_socks5() {
    match assets::kube_rs() {
        Ok(program) => {
            tried(&KUBE_RS, &Client { name: "kube-rs", program: &program, variables: vec![] }).await
        }
        Err(missing) => {
            skip("kube_rs_gets_and_watches_by_every_entry_point_but_socks5", &missing.to_string())
        }
    }
}

/// Python's client has to be given the proxy's credential.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pythons_client_gets_and_watches_by_every_entry_point() {
    let test = "pythons_client_gets_and_watches_by_every_entry_point";
    let python = match assets::python() {
        Ok(python) => python,
        Err(missing) => return skip(test, &missing.to_string()),
    };
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("kube/python/client.py");
    // The program asks for whichever Python comes first.
    let mut path = OsString::from(python.parent().unwrap());
    path.push(":");
    path.push(env::var_os("PATH").unwrap_or_default());
    let path = ("PATH", path.to_str().unwrap());
    let client = |name, report: (&'static str, &'static str)| Client {
        name,
        program: &program,
        variables: vec![path.into(), report.into()],
    };
    tried(&PYTHON, &client("python", WITHOUT_CREDENTIAL)).await;
    tried(&PYTHON_WITH_CREDENTIAL, &client("python-told", WITH_CREDENTIAL)).await;
}

#[test]
fn the_page_lists_every_tested_client() {
    let page = fs::read_to_string(sources::workspace().join("docs/clients.md")).expect("the page");
    let cell = |cell: &Cell| match cell {
        Works => "works".to_owned(),
        Says(text) => format!("`{text}`"),
    };
    for row in &ROWS {
        let cells: Vec<String> = row.cells.iter().map(cell).collect();
        let row = format!("| {} | {} |", row.client, cells.join(" | "));
        assert!(page.lines().any(|line| line == row), "docs/clients.md has not the row\n{row}");
    }
    let rows = page.lines().filter(|line| line.ends_with('|') && line.contains(" works |")).count();
    assert_eq!(rows, ROWS.len(), "a row of docs/clients.md that nothing tries");
}

/// A program that understands `get configmaps [--watch] -o name`.
struct Client<'a> {
    /// For messages, and for what it makes.
    name: &'a str,
    program: &'a Path,
    variables: Vec<Variable>,
}

/// A name and a value.
struct Variable(String, String);

impl From<(&str, &str)> for Variable {
    fn from((name, value): (&str, &str)) -> Self {
        Self(name.to_owned(), value.to_owned())
    }
}

async fn minors(minors: &[String]) {
    let entry_points = ClusterEntryPoints::shared().await;
    for minor in minors {
        let (version, program) = entry_points.cluster.kubectl_of(minor);
        let name = format!("kubectl-{}", version.replace('.', "-"));
        tried(&KUBECTL, &Client { name: &name, program: &program, variables: vec![] }).await;
        println!("kubectl {version} works by every way");
    }
}

/// Tries all cells of a row at once.
async fn tried(row: &Row, client: &Client<'_>) {
    let entry_points = ClusterEntryPoints::shared().await;
    let cells = ENTRY_POINTS.iter().zip(&row.cells);
    join_all(cells.map(|(entry_point, cell)| tried_by(&entry_points, client, entry_point, *cell))).await;
}

async fn tried_by(entry_points: &ClusterEntryPoints, client: &Client<'_>, entry_point: &str, cell: Cell) {
    let name = format!("{}-by-{entry_point}", client.name);
    let home = entry_points.rig.path().join(format!("{name}-home"));
    let program = entry_points.kubectl(entry_point).of(client.program).with_home(home).limit(SOON);
    let program = client
        .variables
        .iter()
        .fold(program, |program, Variable(name, value)| program.with_variable(name, value));
    let (before, after) = (format!("before-{name}"), format!("after-{name}"));
    entry_points.make(&before).await;

    let got = program.run(&["get", "configmaps", "-o", "name"]).await.unwrap();

    let message = String::from_utf8_lossy(&got.stderr).into_owned();
    let expected = match cell {
        Works => {
            assert!(got.status.success(), "{name}: {message}");
            String::from_utf8(got.stdout).unwrap()
        }
        Says(text) => {
            assert!(!got.status.success() && message.contains(text), "{name}: {message}");
            return;
        }
    };
    assert!(expected.lines().any(|line| line == format!("configmap/{before}")), "{name}: {expected}");

    let output = entry_points.rig.path().join(format!("{name}.watched"));
    let mut watching = program.start(&["get", "configmaps", "--watch", "-o", "name"], &output).await.unwrap();
    for map in [before, after.clone()] {
        if map == after {
            entry_points.make(&after).await;
        }
        let received = timeout(SOON, async {
            while !fs::read_to_string(&output).unwrap_or_default().contains(&format!("configmap/{map}\n")) {
                assert!(watching.ended().is_none(), "{name}: {}", watching.tail());
                sleep(LOOK_EVERY).await;
            }
        });
        received.await.unwrap_or_else(|_| panic!("{name} heard nothing of {map}: {}", watching.tail()));
    }
}
