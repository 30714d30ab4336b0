//! A read with a small or large answer, in which every byte's position is known.

use std::time::Instant;

use super::{Observation, RequestContext, RequestEnd};
use crate::check::stream::Verifier;

pub(super) async fn perform(context: &RequestContext) -> Observation {
    context.may_begin().await;
    let (observation, ()) = tokio::join!(context.unless_hung(read(context)), context.pass_gate());
    observation.unwrap_or_else(Observation::hung)
}

async fn read(context: &RequestContext) -> Observation {
    let mut answer = match context.gateway.send(context.version, "GET", &context.path, &[], "").await {
        Ok(answer) => answer,
        Err(how) => return Observation::broken(how),
    };
    let mut resumed = context.phases.has_ended().map(|_| Instant::now());
    if answer.response.status() != 200 {
        let noticed_at = Some(Instant::now());
        return Observation::of(RequestEnd::refused(answer).await, noticed_at, resumed);
    }
    let mut verifier = Verifier::new(context.seed);
    let ended = answer
        .body(|bytes| {
            verifier.take(bytes);
            if resumed.is_none() && context.phases.has_ended().is_some() {
                resumed = Some(Instant::now());
            }
        })
        .await;
    let missing = (context.bytes as u64).saturating_sub(verifier.right_bytes());
    let end = match (verifier.fault(), ended) {
        (Some(fault), _) => RequestEnd::Wrong(fault.to_string()),
        (None, Err(how)) => return Observation { resumed, ..Observation::broken(how) },
        (None, Ok(())) if missing > 0 => {
            RequestEnd::Wrong(format!("a clean end, and {missing} bytes are missing"))
        }
        (None, Ok(())) => RequestEnd::Complete,
    };
    let lost = if end == RequestEnd::Complete { 0 } else { missing };
    Observation { lost, ..Observation::of(end, None, resumed) }
}
