//! A write with a mark of its own.

use std::time::Instant;

use serde_json::json;

use super::{Observation, RequestContext, RequestEnd};

pub(super) async fn perform(setting: &RequestContext) -> Observation {
    setting.may_begin().await;
    let (sight, ()) = tokio::join!(setting.unless_hung(write(setting)), setting.pass_gate());
    sight.unwrap_or_else(Observation::hung)
}

async fn write(setting: &RequestContext) -> Observation {
    // The name is the mark, so that a write counts of which nothing but the head has come.
    let mark = setting.path.rsplit('/').next().unwrap_or_default();
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": mark }, "data": { "mark": mark } });
    let headers = [("content-type", "application/apply-patch+yaml")];
    let mut answer = match setting
        .door
        .send(setting.version, "PATCH", &setting.path, &headers, object.to_string())
        .await
    {
        Ok(answer) => answer,
        Err(how) => return Observation::broken(how),
    };
    if !answer.response.status().is_success() {
        let told = Some(Instant::now());
        return Observation::of(
            RequestEnd::refused(answer).await,
            told,
            setting.cues.has_ended().map(|_| Instant::now()),
        );
    }
    let mut text = Vec::new();
    if let Err(how) = answer.body(|bytes| text.extend_from_slice(bytes)).await {
        return Observation::broken(how);
    }
    let resumed = setting.cues.has_ended().map(|_| Instant::now());
    let is_whole =
        serde_json::from_slice::<serde_json::Value>(&text).is_ok_and(|object| object["data"]["mark"] == mark);
    let end = if is_whole {
        RequestEnd::Whole
    } else {
        RequestEnd::Wrong("a clean end of half an object".to_owned())
    };
    Observation::of(end, None, resumed)
}
