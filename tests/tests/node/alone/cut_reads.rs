//! Reads from a pod when the API server dies: over WebSocket an error, over SPDY no worse than without the
//! tunnel.

use std::fs;

use tests::node_edge::{NodeEdge, POD};

use super::behind;
use crate::kubectls::{SOON, clients, until};

/// More than any window and buffer on the way, so that the reading surely is not over when it is cut.
const BYTES: u64 = 4_000_000_000;
/// So much has arrived before.
const ARRIVED: u64 = 1_000_000;

/// Over SPDY it ends as it does without the tunnel.
#[test]
fn a_cut_read_is_an_error_over_websocket() {
    behind("a_cut_read_is_an_error_over_websocket", "delay=1ms", async |mut edge: NodeEdge| {
        let words = ["exec", POD, "--", "pod", "flood", &BYTES.to_string()];
        let mut readings = Vec::new();
        for client in clients(&edge) {
            let output = edge.file(&format!("{}-cut.out", client.name));
            let process = client.kubectl.start(&words, &output).await.expect("kubectl starts");
            until("something arrives", async || {
                fs::metadata(&output).is_ok_and(|file| file.len() >= ARRIVED).then_some(())
            })
            .await;
            readings.push((client.name, process, output));
        }

        edge.cluster.kill_apiserver();

        let mut codes = Vec::new();
        for (name, mut process, output) in readings {
            let status = process.wait(SOON).await.unwrap_or_else(|_| panic!("{name} does not end"));
            let bytes = fs::metadata(&output).expect("a file that kubectl writes").len();
            assert!(bytes < BYTES, "{name}: it was over before it was cut");
            codes.push(status.code());
        }
        let [direct_websocket, direct_spdy, websocket, spdy] = codes[..] else { panic!("four: {codes:?}") };
        println!("through the tunnel {websocket:?} {spdy:?}, beside it {direct_websocket:?} {direct_spdy:?}");
        assert_eq!((websocket, direct_websocket), (Some(1), Some(1)));
        // kubectl takes the end of a SPDY connection for the end of the command: nobody on the way can tell
        // it otherwise.
        assert!(spdy == Some(1) || spdy == direct_spdy, "{spdy:?} and {direct_spdy:?}");
    });
}
