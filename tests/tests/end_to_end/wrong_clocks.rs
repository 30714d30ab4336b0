//! Agents that start with a wrong clock, as devices without a battery do.

use rustix::process::Signal;
use tests::clock::Shift;
use tests::fake_api::FakeApi;
use tests::rig::{ApiServer, Rig};

/// A certificate of any agent is over after it.
const TWENTY_YEARS: i64 = 20 * 365 * 24;

/// Its certificate was issued by hand. An enrolled agent is tried in `enrollment`.
#[tokio::test]
async fn an_agent_with_a_wrong_clock_waits_and_connects_once_it_is_right() {
    for (shift, side) in
        [(Shift::to_1970(), "clock is behind by"), (Shift::hours(TWENTY_YEARS), "clock is ahead by")]
    {
        let (mut rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
        rig.take_clocks();
        rig.set_clocks(shift);

        let mut agent = rig.agent_with("edge-a", &ApiServer::of_fake(&rig, &api), "").await;

        rig.logged("edge-a.log", 0, "the agent's certificate is not valid by this machine's clock").await;
        rig.logged("edge-a.log", 0, side).await;
        rig.set_clocks(Shift::hours(0));
        rig.connected("edge-a").await;
        rig.logged("edge-a.log", 0, "the agent's certificate is valid by this machine's clock").await;
        assert_eq!(Rig::ends_with(&mut agent.process, Signal::TERM).await, Some(0));
    }
}
