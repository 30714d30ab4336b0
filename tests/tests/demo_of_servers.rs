//! The demo of several servers is a test, too. It is alone in its target, as the other one is.

use std::time::Duration;

use tests::binaries::binary;
use tests::process::{Invocation, run};

/// The limit for all of it. Other programs may run beside.
const SHOWN_MAX: Duration = Duration::from_secs(600);

#[tokio::test]
async fn the_demo_of_several_servers_shows_all_that_it_promises() {
    let demo = Invocation::of(binary("tombolo-demo")).arguments(["--once", "--servers", "3"]);

    let output = run(&demo, SHOWN_MAX).await.expect("the demo ends");

    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    for shown in [
        "through tunnel-server-2:",
        "killed the server tunnel-server-0, without a warning",
        "both watches went on, with one server less",
        "everything was shown",
        "nothing is left",
    ] {
        assert!(said.contains(shown), "{shown:?} is missing: {said}");
    }
}
