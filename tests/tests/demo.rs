//! The demo is a test, too: it ends with an error if something is not as it says. It is alone in its target, because
//! what it shows has a time.

use std::time::Duration;

use tests::binaries::binary;
use tests::process::{Invocation, run};
use tests::skip::skip;

/// The limit for all of it; ten seconds are darkness. Other programs may run beside.
const SHOWN_MAX: Duration = Duration::from_secs(600);

/// Without network namespaces it shows less, and says so.
#[tokio::test]
async fn the_demo_shows_all_that_it_promises() {
    let demo = Invocation::of(binary("tombolo-demo")).arguments(["--once"]);

    let output = run(&demo, SHOWN_MAX).await.expect("the demo ends");

    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    for shown in [
        "$ tunnel-server --config",
        "$ tunnel-agent --config",
        "watch, shell and request have gone on",
        "still process",
        "the rule nobody-reads-secrets-of-edge-b denies it",
        "nothing was started again",
        "everything was shown",
        "nothing is left",
    ] {
        assert!(said.contains(shown), "{shown:?} is missing: {said}");
    }
    match said.lines().find(|line| line.contains("not shown here: ")) {
        Some(reason) => skip("the_demo_shows_all_that_it_promises", reason),
        None => assert_eq!(said.matches("kubernetes-admin").count(), 2, "{said}"),
    }
}
