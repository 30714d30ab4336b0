//! `tombolo summarize`: asks a cluster or a set for a summary, and prints it as a table.

mod question;
mod resources;
mod table;

use http::Method;
use serde_json::Value;
use url::form_urlencoded;

use crate::args::{SummarizeArgs, SummarizeOutput};
use crate::doctor;
use crate::https::{HttpsConnection, HttpsResponse, SendError};
use crate::print;
use crate::runtime::{self, RuntimeError};
use question::NotASummaryQuestion;
use resources::Resource;

/// The paths of a gateway under which one cluster or one set is.
const GATEWAY_PATHS: [&str; 2] = ["/clusters/", "/clustersets/"];

/// The reason why there is no summary.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SummarizeError {
    #[error(transparent)]
    Question(#[from] NotASummaryQuestion),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("{0}")]
    NotReached(String),
    #[error("the gateway gives no answer: {0}")]
    NoAnswer(#[from] SendError),
    #[error("{0}")]
    Refused(String),
    #[error("the gateway has no resource {0:?}: `kubectl api-resources` lists those that there are")]
    NoResource(String),
    #[error(
        "the server of the context has the path {0:?}: --cluster-set needs one of a gateway, as in https://GATEWAY/clusters/NAME"
    )]
    NotAGateway(String),
    #[error("the answer is no summary: the gateway is of a version that makes none")]
    NotASummary,
    #[error("the summary cannot be printed: {0}")]
    Print(#[from] std::io::Error),
}

/// Asks for the summary, and prints it with the counts of clusters.
///
/// # Errors
/// [`SummarizeError`]
pub(crate) fn show(args: &SummarizeArgs) -> Result<(), SummarizeError> {
    let question = question::of_args(args)?;
    let summary = runtime::run(async |scope| {
        let reached = doctor::reach_cluster(args.kubeconfig.clone(), args.context.as_deref(), scope).await;
        let mut reached = reached.map_err(|report| SummarizeError::NotReached(report.failures()))?;
        let prefix = match &args.cluster_set {
            Some(set) => prefix_of_set(&reached.prefix, set)?,
            None => reached.prefix.clone(),
        };
        let resource = resources::find(&mut reached.connection, &prefix, &args.resource).await?;
        let path = path(&prefix, &resource, args, &question);
        get(&mut reached.connection, &path).await
    })??;
    if summary["kind"] != "Summary" {
        return Err(SummarizeError::NotASummary);
    }
    match args.output {
        Some(SummarizeOutput::Json) => print::document(&format!("{summary:#}\n"))?,
        None => {
            print::lines(&table::lines(&summary, args))?;
            for note in table::notes(&summary) {
                print::note(&note)?;
            }
        }
    }
    Ok(())
}

/// The path of a set at the gateway whose path the context has.
fn prefix_of_set(prefix: &str, set: &str) -> Result<String, SummarizeError> {
    let is_of_gateway = GATEWAY_PATHS.iter().any(|path| prefix.starts_with(path));
    if is_of_gateway {
        Ok(format!("/clustersets/{set}"))
    } else {
        Err(SummarizeError::NotAGateway(prefix.to_owned()))
    }
}

fn path(prefix: &str, resource: &Resource, args: &SummarizeArgs, question: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("tombolo-reduce", question);
    if let Some(selector) = &args.selector {
        query.append_pair("labelSelector", selector);
    }
    // The API server knows the parameter as well, and takes it for the time of the list.
    if prefix.starts_with("/clustersets/") {
        query.append_pair("timeoutSeconds", &args.timeout.to_string());
    }
    let namespace = match (resource.is_namespaced, args.all_namespaces) {
        (true, false) => format!("/namespaces/{}", args.namespace),
        (true, true) | (false, _) => String::new(),
    };
    format!("{prefix}{}{namespace}/{}?{}", resource.group_path, resource.name, query.finish())
}

/// The JSON at a path of the gateway.
async fn get(connection: &mut HttpsConnection, path: &str) -> Result<Value, SummarizeError> {
    let HttpsResponse { status, body, .. } = connection.send(Method::GET, path, None).await?;
    let object: Value = serde_json::from_slice(&body).unwrap_or_default();
    if status == 200 {
        return Ok(object);
    }
    let message = object["message"].as_str().unwrap_or("without a reason");
    let causes = object["details"]["causes"].as_array().into_iter().flatten();
    let named = causes
        .filter_map(|cause| Some(format!("{}: {}", cause["field"].as_str()?, cause["message"].as_str()?)));
    let lines: Vec<String> =
        [format!("the answer is {status}: {message}")].into_iter().chain(named).collect();
    Err(SummarizeError::Refused(lines.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_asked_at_the_gateway_of_the_context() {
        assert_eq!(prefix_of_set("/clusters/edge-1", "live").unwrap(), "/clustersets/live");
        assert_eq!(prefix_of_set("/clustersets/global", "live").unwrap(), "/clustersets/live");
        assert!(prefix_of_set("", "live").is_err());
    }
}
