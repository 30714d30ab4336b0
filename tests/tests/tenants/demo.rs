//! The demo of tenants shows all that it promises.

use std::time::Duration;

use tests::binaries::binary;
use tests::lb_cluster::command::Ended;
use tests::node;
use tests::process::Invocation;
use tests::skip::skip;

/// Longest run of the demo. Builds of other tests may run beside.
const DEMO_MAX: Duration = Duration::from_secs(620);

/// The same as `make demo TENANT=1 CI=1`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: the demo of tenants, two minutes"]
async fn the_demo_of_tenants_shows_all_that_it_promises() {
    if let Err(missing) = node::assets() {
        return skip("the_demo_of_tenants_shows_all_that_it_promises", &missing.to_string());
    }
    let demo = Invocation::of(binary("tombolo-demo")).arguments(["--once", "--tenant"]);

    let ended = Ended::within(DEMO_MAX, &demo).await;

    assert!(ended.is_done, "{}", ended.said);
    for shown in [
        "green is ready",
        "the Node worker-0 is Ready",
        "Unable to connect to the server",
        "alice has not changed anything",
        "everything was shown",
        "nothing is left",
    ] {
        assert!(ended.out.contains(shown), "{shown:?} is missing: {}", ended.out);
    }
}
