//! Addresses of a range, after the records were moved.

use std::fs;

use tests::lab::trial;

use super::state;

const RANGE: &str = "vip:\n  entryPoints:\n  - { name: six, sources: [10.8.3.0/24], range: { network: 'fd00:7::/64', clusters: ";
const SECOND: &str = "fd00:7::2/128";

/// Without its records the server would give the first free address to the one cluster that is left.
#[test]
fn a_cluster_keeps_its_address_of_a_range_in_moved_records() {
    trial("a_cluster_keeps_its_address_of_a_range_in_moved_records", async |lab| {
        let mut rig = lab.rig(&format!("{RANGE}[edge-a, edge-b] }} }}")).await;
        assert!(state(lab).await.contains(SECOND));
        rig.tombolo(&["server", "export", "--out", "records.jsonl", "--socket", "admin/admin.sock"]).await;
        rig.kill_server();

        fs::remove_dir_all(rig.path().join("server.state")).expect("it is ours");
        rig.tombolo(&["server", "import", "records.jsonl", "--config", "server.yaml"]).await;
        rig.write_config(|config| config.replace("clusters: [edge-a, edge-b]", "clusters: [edge-b]"));
        rig.start_server().await;

        let restored = state(lab).await;
        assert!(restored.contains(SECOND) && !restored.contains("fd00:7::1/128"), "{restored}");
    });
}
