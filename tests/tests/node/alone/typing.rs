//! Twenty shells beside `kubectl cp` out of a pod, into it, and both at once, through one tunnel: typed lines
//! are echoed soon.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tests::carrier::Carrier;
use tests::kube::kubectl::Kubectl;
use tests::lab::{self, Lab, Uplink, trial};
use tests::node;
use tests::node_cluster::CONTROL_PLANE;
use tests::node_edge::{NAMES, NodeEdge, POD};
use tests::process::{Invocation, run};
use tests::skip::skip;
use tests::typing::EchoTimes;
use tokio::sync::watch;

use shells::Shells;

mod shells;

/// The round trip of the link without any queue, and its other options in both directions.
const ROUND_TRIP: Duration = Duration::from_millis(40);
const LINK: &str = "delay=20ms rate=100mbit queue=1000KiB";
/// The limit for a line to come back: a number of round trips, and an additional time.
const ROUND_TRIPS_MAX: f64 = 1.2;
const BEYOND_MAX: Duration = Duration::from_millis(20);
const MIB: usize = 1024;
/// The time that lines are typed while nothing else goes on.
const ALONE: Duration = Duration::from_secs(20);
/// Each way of a gibibyte takes a minute and a half on this link.
const COPY_MAX: Duration = Duration::from_secs(1800);
/// Shells by the way that is looked at, and some that no link is between.
const SHELLS: usize = 20;
const SHELLS_DIRECT: usize = 4;
/// The number of times that kubectl goes on with a copy that was cut off.
const RETRIES: &str = "20";
/// The number of times that a copy may be begun beside the tunnel. Through the tunnel, the first one is
/// complete.
const BEGUN_DIRECTLY_MAX: usize = 5;
/// The file that is copied out of the pod.
const FILE: &str = "large";

/// A gibibyte is copied each way.
#[test]
#[ignore = "soak: copies a gibibyte out of a pod and into it, twice, through a tunnel and beside it"]
fn typing_in_twenty_shells_stays_responsive_beside_large_copies() {
    let test = "typing_in_twenty_shells_stays_responsive_beside_large_copies";
    if let Err(unable) = node::assets() {
        return skip(test, &unable.to_string());
    }
    trial(test, async |lab: &Lab| {
        let rig = lab.rig_logging("info", "").await;
        let edge = NodeEdge::start(lab, &rig, NAMES[0], Uplink::simulated(LINK)).await;
        let makes = format!("pod flood {} >/tmp/{FILE}", MIB * 1024 * 1024);
        edge.direct.stdout(&["exec", POD, "--", "sh", "-c", &makes]).await;

        let beside_tunnel = over_the_same_link(lab, &edge).await;
        let direct = Route { name: "direct", kubectl: &beside_tunnel, begun_max: BEGUN_DIRECTLY_MAX };
        let tunneled = Route { name: "tunneled", kubectl: &edge.tunneled, begun_max: 1 };
        let direct = beside_copies(&edge, &direct).await;
        let tunneled = beside_copies(&edge, &tunneled).await;

        let carrier = Carrier::of_run();
        println!("{MIB} MiB each way, {LINK}, tunnel over {}", carrier.as_str());
        println!("direct: {direct:#?}\ntunneled: {tunneled:#?}");
        // What this machine and kubectl take for a line while nothing else goes on is not the tunnel's; nor
        // is what TCP's own congestion control queues in the link.
        let machine = direct.alone.p99.saturating_sub(ROUND_TRIP);
        let most = ROUND_TRIP.mul_f64(ROUND_TRIPS_MAX) + BEYOND_MAX + machine;
        for (copies, beside) in
            [(Copies::Out, tunneled.out), (Copies::Into, tunneled.into), (Copies::Both, tunneled.both)]
        {
            let is_soon = carrier != Carrier::Quic || beside.typed.p99 <= most;
            assert!(is_soon, "more than {most:?} beside {copies:?}: {beside:?}");
        }
    });
}

/// A kubectl of an administrator that reaches the API server itself, and yet over the link.
async fn over_the_same_link(at: &Lab, edge: &NodeEdge) -> Kubectl {
    let (address, _) = CONTROL_PLANE;
    let (node, pod) = (edge.site.address(), lab::POD);
    at.cloud().ip(&format!("route add {address}/32 via {node}")).await.expect("a route in the cloud");
    edge.site.node().ip(&format!("route add {address}/32 via {pod}")).await.expect("a route at the node");
    let in_cloud = edge.direct.clone().in_network_namespace(Some(at.cloud().path().to_owned()));
    in_cloud.stdout(&["get", "--raw", "/readyz"]).await;
    in_cloud
}

/// The echo times of lines by one route.
#[derive(Debug, Clone, Copy)]
struct TypingTimes {
    alone: EchoTimes,
    /// Beside a copy out of the pod.
    out: BesideCopies,
    /// The times beside a copy into the pod.
    into: BesideCopies,
    /// The times beside both copies at once.
    both: BesideCopies,
}

/// The echo times of lines beside copies.
#[derive(Debug, Clone, Copy)]
#[expect(dead_code, reason = "all of it is printed")]
struct BesideCopies {
    typed: EchoTimes,
    /// The times of shells without any link, meanwhile.
    without_link: EchoTimes,
    /// The number of times that a copy was begun again.
    resumed: usize,
}

/// The copies that run beside the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copies {
    Out,
    Into,
    Both,
}

/// A way to the API server.
struct Route<'a> {
    name: &'a str,
    kubectl: &'a Kubectl,
    /// The number of times that a copy may be begun.
    begun_max: usize,
}

/// Shells by a way, and some that no link is between.
struct AllShells {
    by_route: Shells,
    direct: Shells,
}

/// Types by this route, alone and beside copies, all of which arrive completely.
async fn beside_copies(edge: &NodeEdge, route: &Route<'_>) -> TypingTimes {
    let name = route.name;
    let source = edge.file(&format!("{name}-in"));
    let makes = format!("head -c {MIB}M /dev/urandom >'{}'", source.display());
    run(&Invocation::of("sh").arguments(["-c", &makes]), COPY_MAX).await.expect("a file is made");
    let by_route = Shells::open(edge, route.kubectl, name, SHELLS).await;
    let direct = Shells::open(edge, &edge.direct, &format!("{name}-near"), SHELLS_DIRECT).await;
    let mut shells = AllShells { by_route, direct };
    let (_never, goes_on) = watch::channel(());
    let alone = shells.by_route.typed(ALONE, goes_on).await;
    let out = beside(edge, route, &mut shells, Copies::Out).await;
    let into = beside(edge, route, &mut shells, Copies::Into).await;
    let both = beside(edge, route, &mut shells, Copies::Both).await;
    TypingTimes { alone, out, into, both }
}

/// Types beside some copies, which arrive completely and are removed.
async fn beside(edge: &NodeEdge, route: &Route<'_>, shells: &mut AllShells, copies: Copies) -> BesideCopies {
    let name = route.name;
    let (source, copy) = (edge.file(&format!("{name}-in")), edge.file(&format!("{name}-out")));
    let (source_there, copy_there) = (format!("/tmp/{FILE}"), format!("/tmp/{name}"));
    let [source_words, copy_words] = [&source, &copy].map(|path| path.display().to_string());
    let (all_done, copies_end) = watch::channel(());
    let copying = async {
        let (out, into) = (format!("{POD}:{source_there}"), format!("{POD}:{copy_there}"));
        let out = async { if copies == Copies::Into { 0 } else { copied(route, &out, &copy_words).await } };
        let into =
            async { if copies == Copies::Out { 0 } else { copied(route, &source_words, &into).await } };
        let (out, into) = tokio::join!(out, into);
        drop(all_done);
        out + into
    };
    let AllShells { by_route, direct } = shells;
    let (typed, without_link, resumed) = tokio::join!(
        by_route.typed(COPY_MAX, copies_end.clone()),
        direct.typed(COPY_MAX, copies_end),
        copying
    );

    if copies != Copies::Into {
        assert_eq!(hash_here(&copy).await, hash_in_pod(edge, &source_there).await, "{name}, out");
        fs::remove_file(&copy).expect("the copy is removed");
    }
    if copies != Copies::Out {
        assert_eq!(hash_here(&source).await, hash_in_pod(edge, &copy_there).await, "{name}, in");
        edge.direct.stdout(&["exec", POD, "--", "rm", &copy_there]).await;
    }
    let beside = BesideCopies { typed, without_link, resumed };
    println!("{name}, {copies:?}: {beside:?}");
    beside
}

/// Copies, and returns the number of restarts. Between API server and container runtime an end is cut off now
/// and then (decision 0045), also without the tunnel. kubectl goes on after what it has, unless the cut is
/// reported to it.
async fn copied(route: &Route<'_>, from: &str, to: &str) -> usize {
    let kubectl = route.kubectl.clone().limit(COPY_MAX);
    let mut resumed = 0;
    for begun in 0..route.begun_max {
        let output = kubectl.run(&["cp", "--retries", RETRIES, from, to]).await.expect("kubectl cp ends");
        resumed += String::from_utf8_lossy(&output.stdout).matches("Resuming copy").count();
        if output.status.success() {
            return begun + resumed;
        }
        println!("{}: kubectl cp {from} {to}: {}", route.name, String::from_utf8_lossy(&output.stderr));
    }
    panic!("{}: kubectl cp {from} {to} was whole none of {} times", route.name, route.begun_max);
}

async fn hash_here(path: &Path) -> String {
    let program = Invocation::of("sha256sum").arguments([path.display().to_string()]);
    let output = run(&program, COPY_MAX).await.expect("sha256sum runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    first_word(&String::from_utf8_lossy(&output.stdout))
}

async fn hash_in_pod(edge: &NodeEdge, path: &str) -> String {
    first_word(&edge.direct.stdout(&["exec", POD, "--", "sha256sum", path]).await)
}

fn first_word(text: &str) -> String {
    text.split_whitespace().next().expect("a hash").to_owned()
}
