//! The parts of a tenant's control plane in the host cluster, and the wait until they are ready.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::host::{Host, HostError};
use super::record::TENANT;
use crate::print;

/// Pause between two looks at the parts.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The kinds of parts, as kubectl lists them.
const KINDS: &str = "statefulsets,daemonsets,deployments";

/// A control plane did not become ready.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PartsError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(
        "{parts} not ready within {seconds} s{reasons}; see `tombolo tenant status`, and run the command again to go on"
    )]
    NotReady {
        /// The parts that are not ready.
        parts: String,
        /// The limit of the wait, in seconds.
        seconds: u64,
        /// The words of the host cluster, if it has some.
        reasons: String,
    },
    #[error("cannot print")]
    Print(#[from] std::io::Error),
}

/// A part: a DaemonSet, a Deployment or a StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) ready: u64,
    pub(super) wanted: u64,
    /// True if all pods are as the part's template says.
    pub(super) is_updated: bool,
}

impl Part {
    pub(super) fn is_done(&self) -> bool {
        self.wanted > 0 && self.ready >= self.wanted && self.is_updated
    }

    /// The tag of the image; the whole name if it has none.
    pub(super) fn version(&self) -> &str {
        let name = self.image.split('@').next().unwrap_or_default();
        match name.rsplit_once(':') {
            Some((_, tag)) if !tag.contains('/') => tag,
            _ => &self.image,
        }
    }

    fn parse(object: &Value) -> Self {
        let (spec, status) = (&object["spec"], &object["status"]);
        let count = |value: &Value| value.as_u64().unwrap_or_default();
        let (wanted, ready, updated, all) = if object["kind"] == "DaemonSet" {
            let wanted = count(&status["desiredNumberScheduled"]);
            (wanted, count(&status["numberReady"]), count(&status["updatedNumberScheduled"]), wanted)
        } else {
            let all = count(&status["replicas"]);
            (
                count(&spec["replicas"]),
                count(&status["readyReplicas"]),
                count(&status["updatedReplicas"]),
                all,
            )
        };
        let is_seen = status["observedGeneration"] == object["metadata"]["generation"];
        Self {
            name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            image: spec["template"]["spec"]["containers"][0]["image"].as_str().unwrap_or_default().to_owned(),
            ready,
            wanted,
            is_updated: is_seen && updated >= wanted && all <= wanted,
        }
    }
}

/// The parts of a control plane, by their names; none if it is not installed.
///
/// # Errors
/// [`HostError`]
pub(super) fn read(host: &Host) -> Result<Vec<Part>, HostError> {
    let objects = host.list(&[KINDS, "--selector", TENANT])?;
    let mut parts: Vec<Part> = objects.iter().map(Part::parse).collect();
    parts.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(parts)
}

/// The parts of all tenants, with their namespaces.
///
/// # Errors
/// [`HostError`]
pub(super) fn read_all(host: &Host) -> Result<Vec<(String, Part)>, HostError> {
    let objects = host.list(&[KINDS, "--all-namespaces", "--selector", TENANT])?;
    let namespace = |object: &Value| object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    Ok(objects.iter().map(|object| (namespace(object), Part::parse(object))).collect())
}

/// Waits until all parts are ready and as their templates say, and tells the progress.
///
/// # Errors
/// [`PartsError`]
pub(super) fn wait(host: &Host, limit: Duration) -> Result<(), PartsError> {
    let end = Instant::now() + limit;
    let mut told = String::new();
    loop {
        let parts = read(host)?;
        let missing: Vec<&Part> = parts.iter().filter(|part| !part.is_done()).collect();
        if !parts.is_empty() && missing.is_empty() {
            return Ok(());
        }
        let progress = missing.iter().map(|part| text(part)).collect::<Vec<_>>().join(", ");
        if Instant::now() >= end {
            let reasons = reasons(&host.list(&["pods,persistentvolumeclaims"])?);
            return Err(PartsError::NotReady { parts: progress, seconds: limit.as_secs(), reasons });
        }
        if progress != told {
            print::note(&format!("waiting for {progress}"))?;
            told = progress;
        }
        sleep(LOOK_EVERY);
    }
}

fn text(part: &Part) -> String {
    let Part { name, ready, wanted, .. } = part;
    let rest = if ready == wanted { " (being replaced)" } else { "" };
    format!("{name} {ready}/{wanted}{rest}")
}

/// The reasons that the host cluster gives, as a list that follows a sentence.
fn reasons(objects: &[Value]) -> String {
    let mut found: Vec<String> = objects.iter().filter_map(reason).collect();
    found.sort();
    found.dedup();
    found.iter().map(|reason| format!("; {reason}")).collect()
}

fn reason(object: &Value) -> Option<String> {
    let name = object["metadata"]["name"].as_str()?;
    let (status, phase) = (&object["status"], object["status"]["phase"].as_str()?);
    if object["kind"] == "PersistentVolumeClaim" {
        return (phase != "Bound").then(|| format!("the volume {name} is {phase}"));
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut unscheduled =
        conditions.filter(|condition| condition["type"] == "PodScheduled" && condition["status"] == "False");
    if let Some(message) = unscheduled.find_map(|condition| condition["message"].as_str()) {
        return Some(format!("the pod {name} has no node: {message}"));
    }
    let waiting = &status["containerStatuses"][0]["state"]["waiting"];
    let reason = waiting["reason"].as_str()?;
    Some(format!("the pod {name} waits: {reason} {}", waiting["message"].as_str().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_part_is_done_when_all_pods_are_ready_and_new() {
        let daemons = |generation: u64, ready: u64, updated: u64| {
            Part::parse(&json!({
                "kind": "DaemonSet", "metadata": { "name": "apiserver", "generation": 2 },
                "spec": { "template": { "spec": { "containers": [{ "image": "r:5000/k:v1.36.3" }] } } },
                "status": {
                    "observedGeneration": generation, "desiredNumberScheduled": 3, "numberReady": ready,
                    "updatedNumberScheduled": updated,
                },
            }))
        };
        assert!(daemons(2, 3, 3).is_done());
        assert_eq!(daemons(2, 3, 3).version(), "v1.36.3");
        for not in [daemons(1, 3, 3), daemons(2, 2, 3), daemons(2, 3, 2)] {
            assert!(!not.is_done(), "{not:?}");
        }
        let set = |replicas: u64, updated: u64| {
            Part::parse(&json!({
                "kind": "Deployment", "metadata": { "name": "scheduler", "generation": 1 },
                "spec": { "replicas": 2 },
                "status": { "observedGeneration": 1, "replicas": replicas, "readyReplicas": 2, "updatedReplicas": updated },
            }))
        };
        assert!(set(2, 2).is_done());
        assert!(!set(3, 2).is_done(), "an old pod is left");
        assert!(!set(2, 1).is_done());
        let none = json!({ "kind": "DaemonSet", "metadata": { "generation": 1 }, "status": { "observedGeneration": 1 } });
        assert!(!Part::parse(&none).is_done(), "no node has the label");
    }

    #[test]
    fn the_reasons_are_those_of_the_host_cluster() {
        let objects = [
            json!({ "kind": "PersistentVolumeClaim", "metadata": { "name": "data-0" }, "status": { "phase": "Pending" } }),
            json!({ "kind": "PersistentVolumeClaim", "metadata": { "name": "data-1" }, "status": { "phase": "Bound" } }),
            json!({ "kind": "Pod", "metadata": { "name": "a" }, "status": { "phase": "Pending",
                "conditions": [{ "type": "PodScheduled", "status": "False", "message": "0/3 nodes" }] } }),
            json!({ "kind": "Pod", "metadata": { "name": "b" }, "status": { "phase": "Running",
                "containerStatuses": [{ "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "10s" } } }] } }),
            json!({ "kind": "Pod", "metadata": { "name": "c" }, "status": { "phase": "Running" } }),
        ];
        assert_eq!(
            reasons(&objects),
            "; the pod a has no node: 0/3 nodes; the pod b waits: CrashLoopBackOff 10s; the volume data-0 is Pending"
        );
    }
}
