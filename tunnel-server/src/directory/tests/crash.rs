//! A process that is killed in the middle of writing, again and again. This test starts itself as that
//! process.

use std::io::{BufRead as _, BufReader};

use super::*;

/// The environment variable with the state directory of the writing process.
const STATE: &str = "TOMBOLO_TEST_DIRECTORY";

/// The number of times that the writer is killed.
const KILLS: usize = 12;

#[tokio::test]
async fn what_was_acknowledged_outlives_kills_in_the_middle_of_writes() {
    if let Ok(state) = std::env::var(STATE) {
        return write_for_ever(Path::new(&state)).await;
    }
    let state = tempfile::tempdir().unwrap();
    let mut acknowledged: u64 = 0;
    for round in 0..KILLS {
        let mut writer = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "directory::tests::crash::what_was_acknowledged_outlives_kills_in_the_middle_of_writes",
            ])
            .args(["--nocapture", "--test-threads=1"])
            .env(STATE, state.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let written = BufReader::new(writer.stdout.take().unwrap()).lines().map_while(Result::ok);
        let written = written.filter_map(|line| line.strip_prefix("wrote ")?.parse::<u64>().ok());
        // The writer is killed at another point each time. Its unacknowledged writes can be there or not.
        acknowledged = written.take(5 + round * 3).last().expect("the writer writes");
        writer.kill().unwrap();
        writer.wait().unwrap();

        let directory = open(&state).expect("the store opens after a kill");
        let entries = directory.entries(|_, _| true);
        let [entry] = entries.as_slice() else { panic!("{entries:?}") };
        let found: u64 = entry.record.labels["count"].parse().unwrap();
        assert!(found >= acknowledged, "{found} is there, {acknowledged} was acknowledged");
        // In order: each revocation was acknowledged before the label that counts it was written.
        let serial = |count: u64| AgentCredential { serial: format!("{count:x}"), issued: UnixSeconds(0) };
        let agent = proto::spiffe::AgentId::parse("spiffe://tombolo/cluster/c/agent/x", "tombolo").unwrap();
        assert!((1..=found).all(|count| directory.admits(&agent, &serial(count)).is_err()));
    }
    assert!(acknowledged > 0);
}

/// Counts, and prints each number once it is written.
#[expect(clippy::print_stdout, reason = "its parent reads")]
async fn write_for_ever(state: &Path) {
    let directory = Directory::open(&state_dir(state)).unwrap();
    let edge = id("edge-a");
    let now = at(5);
    let made = directory.create_cluster(edge.clone(), ClusterSpecUpdate::default(), now).await;
    assert!(matches!(made, Ok(()) | Err(ClusterError::Exists(_))), "{made:?}");
    let count =
        directory.entries(|_, _| true)[0].record.labels.get("count").map(|count| count.parse().unwrap());
    for count in count.unwrap_or(0u64) + 1.. {
        let update = ClusterSpecUpdate {
            set_labels: vec![("count".to_owned(), count.to_string())],
            ..ClusterSpecUpdate::default()
        };
        directory.revoke(Revoked::Serial(format!("{count:x}")), now).await.unwrap();
        directory.update_cluster(edge.clone(), update).await.unwrap();
        println!("wrote {count}");
    }
}
