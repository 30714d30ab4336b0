//! Ordinary kubectl commands over a link that loses and delays packets.

use tests::caller::{Http2Caller, SOON};
use tests::fake_api::{Behaviour, FakeApiOptions, WatchFeed};
use tests::lab::{Uplink, trial};
use tokio::time::timeout;

/// The size of the list: enough for many packets.
const LIST_BYTES: usize = 256 * 1024;
const EVENTS: usize = 50;

/// The link delays packets and loses one in twenty.
#[test]
fn a_list_and_a_watch_are_complete_over_a_slow_and_lossy_link() {
    trial("a_list_and_a_watch_are_whole_over_a_lossy_link", async |lab| {
        let rig = lab.rig("").await;
        let site = lab.site("edge-a", Uplink::simulated("delay=20ms loss=5%").with(&["--seed", "5"])).await;
        let api = site.fake_api(FakeApiOptions::default()).await;
        let list: String = (0..LIST_BYTES).map(|at| char::from(b'a' + (at % 23) as u8)).collect();
        let feed = WatchFeed::new();
        api.on("/list", Behaviour::json(list.clone()));
        api.on("/watch", Behaviour::Watch(feed.clone()));
        let _agent = site.agent(&rig, &api, "").await;

        let mut watcher = Http2Caller::dial(&rig).await;
        let (answer, _) = watcher.send("GET", "/clusters/edge-a/watch", &[], true);
        let mut events = timeout(SOON, answer).await.expect("a head in time").unwrap().into_body();
        let mut caller = Http2Caller::dial(&rig).await;
        for number in 0..EVENTS {
            feed.push(format!("event {number}\n"));
            if number % 25 == 0 {
                let answer = caller.ask("GET", "/clusters/edge-a/list", &[]).await.unwrap();
                assert!(answer.body() == list.as_bytes(), "{} bytes", answer.body().len());
            }
        }
        let mut seen = String::new();
        while !seen.contains(&format!("event {}\n", EVENTS - 1)) {
            let data =
                timeout(SOON, events.data()).await.expect("an event in time").expect("no end").unwrap();
            seen.push_str(std::str::from_utf8(&data).unwrap());
        }
        assert_eq!(seen, (0..EVENTS).map(|number| format!("event {number}\n")).collect::<String>());

        let stats = site.link().stats().await;
        for entry_point in ["a_to_b", "b_to_a"] {
            assert!(stats[entry_point]["dropped_loss"].as_u64() > Some(0), "{stats}");
        }
    });
}
