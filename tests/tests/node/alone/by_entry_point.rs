//! exec by each entry point to a cluster's API server, by the protocol that its client uses there.
//! `docs/clients.md` shows the same table.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use tests::entry_points::{DialListeners, ENTRY_POINTS, EntryPoints};
use tests::kube::assets::{self, Assets, all_minors};
use tests::kube::kubectl::Kubectl;
use tests::lab::{Lab, Uplink, trial};
use tests::node;
use tests::node_cluster::CONTROL_PLANE;
use tests::node_edge::{NAMES, NodeEdge, POD};
use tests::skip::skip;
use tests::sources;

use crate::clients::number;
use crate::exec::what_is_typed_arrives;
use crate::kubectls::{CHOICES, Client, SOON, pattern};
use Cell::{Says, Spdy, WebSocket};

/// The result of an exec by one entry point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    /// It comes by this protocol.
    WebSocket,
    /// It works over SPDY, as expected.
    Spdy,
    /// It fails, and its client's message contains this.
    Says(&'static str),
}

/// A client by all of [`ENTRY_POINTS`].
struct Row {
    /// As the page calls it.
    client: &'static str,
    cells: [Cell; ENTRY_POINTS.len()],
}

const ROWS: [Row; 5] = [
    Row { client: "kubectl, asking for WebSocket", cells: [WebSocket; ENTRY_POINTS.len()] },
    Row { client: "kubectl, asking for SPDY", cells: [Spdy; ENTRY_POINTS.len()] },
    Row {
        client: "kube-rs, exec",
        cells: [
            WebSocket,
            WebSocket,
            Says("server does not support user/pass authentication"),
            WebSocket,
            WebSocket,
        ],
    },
    Row {
        client: "Python's client, exec",
        cells: [
            WebSocket,
            Says("failed CONNECT via proxy status: 407"),
            Says("failed CONNECT via proxy status: 407"),
            Says("Connection to remote host was lost"),
            WebSocket,
        ],
    },
    Row {
        client: "Python's client, exec, told the credential",
        cells: [WebSocket, WebSocket, WebSocket, Says("Connection to remote host was lost"), WebSocket],
    },
];

/// The number of bytes that are typed.
const BYTES: usize = 200_000;

/// An entry point that a client does not support gives an error of the client.
#[test]
fn an_exec_works_by_every_entry_point_that_its_client_supports() {
    let test = "an_exec_works_by_every_entry_point_that_its_client_supports";
    if let Err(unable) = node::assets() {
        return skip(test, &unable.to_string());
    }
    let programs = assets::kube_rs().and_then(|kube_rs| Ok((kube_rs, assets::python()?)));
    let (kube_rs, python) = match programs {
        Ok(programs) => programs,
        Err(missing) => return skip(test, &missing.to_string()),
    };
    trial(test, async |lab| {
        by_all(lab, async |edge, entry_points| {
            let mut wrong = Vec::new();
            for (entry_point, column) in ENTRY_POINTS.iter().zip(0..) {
                let kubectl = entry_points.kubectl(&edge.cluster, entry_point).limit(SOON);
                for (row, client) in ROWS.iter().zip(clients(&kubectl, &kube_rs, &python)) {
                    let name = format!("{}-by-{entry_point}", row.client.replace([' ', ',', '\''], "-"));
                    wrong.extend(tried(edge, name, client, row.cells[column]).await);
                }
            }
            wrong
        })
        .await;
    });
}

/// These are all minors that can be built.
#[test]
#[ignore = "soak: builds the kubectl of every minor that is to be had"]
fn an_exec_of_every_kubectl_minor_works_by_every_entry_point() {
    let test = "an_exec_of_the_kubectls_of_every_minor_comes_by_every_way";
    if let Err(unable) = node::assets() {
        return skip(test, &unable.to_string());
    }
    trial(test, async |lab| {
        by_all(lab, async |edge, entry_points| {
            let mut wrong = Vec::new();
            for minor in all_minors() {
                let (version, program) = edge.cluster.kubectl_of(&minor);
                for entry_point in ENTRY_POINTS {
                    let kubectl =
                        entry_points.kubectl(&edge.cluster, entry_point).limit(SOON).of(program.clone());
                    let name = format!("kubectl-{}-by-{entry_point}", version.replace('.', "-"));
                    wrong.extend(tried(edge, name, kubectl, of_minor(number(&minor), entry_point)).await);
                }
                println!("kubectl {version} was tried by every entry point");
            }
            wrong
        })
        .await;
    });
}

/// The result of an exec by the kubectl of a minor, with its release's default protocol.
fn of_minor(minor: u32, entry_point: &str) -> Cell {
    match (minor, entry_point) {
        // kubernetes#105632
        (..24, "socks5") => Says("http: server gave HTTP response to HTTPS client"),
        (..30, _) => Spdy,
        // Its WebSockets know no such proxies, and it falls back (kubernetes#126134).
        (30..33, "https") => Spdy,
        _ => WebSocket,
    }
}

/// Opens all entry points to a cluster with a node, and runs the trial there, which returns its findings.
async fn by_all(lab: &Lab, tries: impl AsyncFnOnce(&NodeEdge, &EntryPoints) -> Vec<String>) {
    let (address, port) = CONTROL_PLANE;
    let (name, target) = (NAMES[0], format!("{address}:{port}"));
    let mut rig = lab.rig("").await;
    let listeners = DialListeners::of(&mut rig, name, &target).await;
    let edge = NodeEdge::start(lab, &rig, name, Uplink::Cable).await;
    let entry_points = EntryPoints::open(&rig, &listeners, &edge.cluster, name, &target).await;
    let wrong = tries(&edge, &entry_points).await;
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_page_lists_every_tested_exec() {
    let page = fs::read_to_string(sources::workspace().join("docs/clients.md")).expect("the page");
    let cell = |cell: &Cell| match cell {
        WebSocket => "WebSocket".to_owned(),
        Spdy => "SPDY".to_owned(),
        Says(text) => format!("`{text}`"),
    };
    for row in &ROWS {
        let cells: Vec<String> = row.cells.iter().map(cell).collect();
        let row = format!("| {} | {} |", row.client, cells.join(" | "));
        assert!(page.lines().any(|line| line == row), "docs/clients.md has not the row\n{row}");
    }
}

/// The clients of [`ROWS`], with this kubeconfig.
fn clients(kubectl: &Kubectl, kube_rs: &Path, python: &Path) -> [Kubectl; ROWS.len()] {
    let asking = |websockets| {
        let program = kubectl.clone().of(Assets::find().expect("they were there before").kubectl);
        CHOICES.into_iter().fold(program, |program, choice| program.with_variable(choice, websockets))
    };
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("kube/python/client.py");
    // The program asks for whichever Python comes first.
    let mut path = OsString::from(python.parent().expect("a program is in a folder"));
    path.push(":");
    path.push(env::var_os("PATH").unwrap_or_default());
    let python = kubectl.clone().of(program).with_variable("PATH", path.to_str().expect("a path"));
    let with_credential = python.clone().with_variable("PROXYS_CREDENTIAL", "said");
    [asking("true"), asking("false"), kubectl.clone().of(kube_rs), python, with_credential]
}

/// Tries an exec, and returns what differs from the expected cell.
async fn tried(edge: &NodeEdge, name: String, client: Kubectl, cell: Cell) -> Option<String> {
    let home = edge.file(&format!("{name}-home"));
    let client = &Client { name, kubectl: client.with_home(home) };
    let output = client.run(&["exec", POD, "--", "echo", &client.name]).await;
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = match cell {
        Says(text) => {
            let is_explained = !output.status.success() && message.contains(text);
            return (!is_explained).then(|| format!("{}: not {text:?}: {message}", client.name));
        }
        WebSocket => "get",
        Spdy => "create",
    };
    if !output.status.success() || output.stdout != format!("{}\n", client.name).as_bytes() {
        return Some(format!("{}: {message}", client.name));
    }
    // A WebSocket begins with a GET, SPDY with a POST, and the API server has written down which.
    let asked = format!("command={}", client.name);
    let event = edge.cluster.wait_for_audit(SOON, |event| {
        let status = event.response_status.as_ref().and_then(|status| status.code);
        event.request_uri.split(['?', '&']).any(|part| part == asked) && status == Some(101)
    });
    let verb = event.await.expect("the API server has answered it").verb;
    if verb != expected {
        return Some(format!("{}: by {verb}", client.name));
    }
    what_is_typed_arrives(edge, client, &pattern(BYTES)).await;
    None
}
