//! A read, small or large: every byte of its answer knows its place.

use std::time::Instant;

use super::{End, Setting, Sight};
use crate::check::stream::Verifier;

pub(super) async fn perform(setting: &Setting) -> Sight {
    setting.may_begin().await;
    let (sight, ()) = tokio::join!(setting.unless_hung(read(setting)), setting.pass_gate());
    sight.unwrap_or_else(Sight::hung)
}

async fn read(setting: &Setting) -> Sight {
    let mut answer = match setting.door.send(setting.version, "GET", &setting.path, &[], "").await {
        Ok(answer) => answer,
        Err(how) => return Sight::broken(how),
    };
    let mut resumed = setting.cues.has_ended().map(|_| Instant::now());
    if answer.response.status() != 200 {
        let told = Some(Instant::now());
        return Sight::of(End::refused(answer).await, told, resumed);
    }
    let mut verifier = Verifier::new(setting.seed);
    let ended = answer
        .body(|bytes| {
            verifier.take(bytes);
            if resumed.is_none() && setting.cues.has_ended().is_some() {
                resumed = Some(Instant::now());
            }
        })
        .await;
    let missing = (setting.bytes as u64).saturating_sub(verifier.right_bytes());
    let end = match (verifier.fault(), ended) {
        (Some(fault), _) => End::Wrong(fault.to_string()),
        (None, Err(how)) => return Sight { resumed, ..Sight::broken(how) },
        (None, Ok(())) if missing > 0 => End::Wrong(format!("a clean end, and {missing} bytes are missing")),
        (None, Ok(())) => End::Whole,
    };
    let lost = if end == End::Whole { 0 } else { missing };
    Sight { lost, ..Sight::of(end, None, resumed) }
}
