//! A read, small or large: every byte of its answer knows its place.

use std::time::Instant;

use super::{Observation, RequestContext, RequestEnd};
use crate::check::stream::Verifier;

pub(super) async fn perform(setting: &RequestContext) -> Observation {
    setting.may_begin().await;
    let (sight, ()) = tokio::join!(setting.unless_hung(read(setting)), setting.pass_gate());
    sight.unwrap_or_else(Observation::hung)
}

async fn read(setting: &RequestContext) -> Observation {
    let mut answer = match setting.door.send(setting.version, "GET", &setting.path, &[], "").await {
        Ok(answer) => answer,
        Err(how) => return Observation::broken(how),
    };
    let mut resumed = setting.cues.has_ended().map(|_| Instant::now());
    if answer.response.status() != 200 {
        let told = Some(Instant::now());
        return Observation::of(RequestEnd::refused(answer).await, told, resumed);
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
        (Some(fault), _) => RequestEnd::Wrong(fault.to_string()),
        (None, Err(how)) => return Observation { resumed, ..Observation::broken(how) },
        (None, Ok(())) if missing > 0 => {
            RequestEnd::Wrong(format!("a clean end, and {missing} bytes are missing"))
        }
        (None, Ok(())) => RequestEnd::Whole,
    };
    let lost = if end == RequestEnd::Whole { 0 } else { missing };
    Observation { lost, ..Observation::of(end, None, resumed) }
}
