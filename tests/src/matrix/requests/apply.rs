//! A write with a mark of its own.

use std::time::Instant;

use serde_json::json;

use super::{Observation, RequestContext, RequestEnd};

pub(super) async fn perform(context: &RequestContext) -> Observation {
    context.may_begin().await;
    let (observation, ()) = tokio::join!(context.unless_hung(write(context)), context.pass_gate());
    observation.unwrap_or_else(Observation::hung)
}

async fn write(context: &RequestContext) -> Observation {
    // The name is the mark, so that a write counts of which nothing but the head has come.
    let mark = context.path.rsplit('/').next().unwrap_or_default();
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": mark }, "data": { "mark": mark } });
    let headers = [("content-type", "application/apply-patch+yaml")];
    let mut answer = match context
        .gateway
        .send(context.version, "PATCH", &context.path, &headers, object.to_string())
        .await
    {
        Ok(answer) => answer,
        Err(how) => return Observation::broken(how),
    };
    if !answer.response.status().is_success() {
        let noticed_at = Some(Instant::now());
        return Observation::of(
            RequestEnd::refused(answer).await,
            noticed_at,
            context.phases.has_ended().map(|_| Instant::now()),
        );
    }
    let mut text = Vec::new();
    if let Err(how) = answer.body(|bytes| text.extend_from_slice(bytes)).await {
        return Observation::broken(how);
    }
    let resumed = context.phases.has_ended().map(|_| Instant::now());
    let is_complete =
        serde_json::from_slice::<serde_json::Value>(&text).is_ok_and(|object| object["data"]["mark"] == mark);
    let end = if is_complete {
        RequestEnd::Complete
    } else {
        RequestEnd::Wrong("a clean end of half an object".to_owned())
    };
    Observation::of(end, None, resumed)
}
