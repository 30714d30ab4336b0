//! A cluster's address as Kubernetes objects: a Service without a selector, and an EndpointSlice with the
//! address.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::{Value, json};

use super::kind::ObjectKind;
use super::owner::Owner;

/// The manager of an EndpointSlice, as a label. Kubernetes' own controllers leave such slices alone.
/// <https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/#management>
const SLICES_MANAGED_BY: &str = "tombolo.dev";

/// The name and number of a Service's port. A kubeconfig uses `https://NAME.NAMESPACE.svc`.
const PORT_NAME: &str = "https";
const PORT: u16 = 443;

/// An action that brings one object in step.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SyncAction {
    /// Create an object whose name is free.
    Create(Value),
    /// Change our object. The new one contains its UID.
    Apply(Value),
    /// Remove our object, which is no longer needed.
    Remove(ObjectRef),
}

/// Identifies one object in one version, so that no other is changed in its place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectRef {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
}

impl ObjectKind {
    /// The object of a cluster with this address, as `owner` makes it. Of the Service, the address gives family and port.
    pub(super) fn object(self, owner: &Owner, cluster: &str, address: SocketAddr) -> Value {
        let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
        match self {
            Self::Service => json!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": { "name": cluster, "labels": owner.labels(self) },
                "spec": {
                    "type": "ClusterIP",
                    "ipFamilies": [family],
                    "ipFamilyPolicy": "SingleStack",
                    "ports": [{ "name": PORT_NAME, "port": PORT, "protocol": "TCP", "targetPort": address.port() }],
                },
            }),
            Self::Slice => {
                let mut labels = owner.labels(self);
                labels["kubernetes.io/service-name"] = cluster.into();
                labels["endpointslice.kubernetes.io/managed-by"] = SLICES_MANAGED_BY.into();
                json!({
                    "apiVersion": "discovery.k8s.io/v1",
                    "kind": "EndpointSlice",
                    "metadata": { "name": owner.slice_name(cluster), "labels": labels },
                    "addressType": family,
                    "endpoints": [{ "addresses": [address.ip().to_string()], "conditions": { "ready": true } }],
                    "ports": [{ "name": PORT_NAME, "port": address.port(), "protocol": "TCP" }],
                })
            }
        }
    }
}

impl SyncAction {
    /// The name of the object.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Create(object) | Self::Apply(object) => {
                object["metadata"]["name"].as_str().unwrap_or_default()
            }
            Self::Remove(marks) => &marks.name,
        }
    }
}

impl ObjectRef {
    /// Reads the reference from an object. `None` if it has no name, UID or version.
    pub(super) fn from_object(object: &Value) -> Option<Self> {
        let text = |key: &str| object["metadata"][key].as_str().map(str::to_owned);
        Some(Self { name: text("name")?, uid: text("uid")?, resource_version: text("resourceVersion")? })
    }
}

/// The actions that turn the objects `found`, all ours, into those `wanted` by name.
pub(super) fn plan(found: &[Value], wanted: &BTreeMap<String, Value>) -> Vec<SyncAction> {
    let named: BTreeMap<ObjectRef, &Value> =
        found.iter().filter_map(|object| Some((ObjectRef::from_object(object)?, object))).collect();
    let is_there = |name: &String| named.keys().any(|marks| marks.name == *name);
    let created = wanted
        .iter()
        .filter(|(name, _)| !is_there(name))
        .map(|(_, object)| SyncAction::Create(object.clone()));
    let kept = named.iter().filter_map(|(marks, found)| match wanted.get(&marks.name) {
        Some(object) if matches_wanted(found, object) => None,
        Some(object) => {
            let mut object = object.clone();
            object["metadata"]["uid"] = marks.uid.clone().into();
            Some(SyncAction::Apply(object))
        }
        None => Some(SyncAction::Remove(marks.clone())),
    });
    created.chain(kept).collect()
}

/// Returns true if an object contains everything `wanted`, with equal lists, and has no selector. A selector
/// would add pods' addresses to ours.
pub(super) fn matches_wanted(found: &Value, wanted: &Value) -> bool {
    let selector = &found["spec"]["selector"];
    covers(found, wanted) && selector.as_object().is_none_or(serde_json::Map::is_empty)
}

fn covers(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| found.get(key).is_some_and(|found| covers(found, wanted)))
        }
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len()
                && found.iter().zip(wanted).all(|(found, wanted)| covers(found, wanted))
        }
        _ => found == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        Owner::new("gateway".to_owned(), None)
    }

    /// The object as an API server returns it, with fields of its own.
    fn kept(kind: ObjectKind, name: &str, address: &str) -> Value {
        let mut object = kind.object(&owner(), name, address.parse().unwrap());
        object["metadata"]["uid"] = format!("uid-{name}").into();
        object["metadata"]["resourceVersion"] = "7".into();
        object["metadata"]["labels"]["more"] = "theirs".into();
        if kind == ObjectKind::Service {
            object["spec"]["clusterIP"] = "10.96.0.7".into();
        }
        object
    }

    fn wanted(kind: ObjectKind, all: &[(&str, &str)]) -> BTreeMap<String, Value> {
        all.iter()
            .map(|(name, address)| {
                ((*name).to_owned(), kind.object(&owner(), name, address.parse().unwrap()))
            })
            .collect()
    }

    /// Equal objects stay, different ones are applied, missing ones created, superfluous ones removed.
    #[test]
    fn a_plan_creates_applies_and_removes_only_what_differs() {
        for kind in [ObjectKind::Service, ObjectKind::Slice] {
            let found = [("a", "10.0.0.1:443"), ("b", "10.0.0.2:443"), ("gone", "10.0.0.3:443")];
            let found = found.map(|(name, address)| kept(kind, name, address));
            let wanted =
                wanted(kind, &[("a", "10.0.0.1:443"), ("b", "10.0.0.2:6443"), ("new", "10.0.0.4:443")]);

            let actions = plan(&found, &wanted);

            let mut applied = wanted["b"].clone();
            applied["metadata"]["uid"] = "uid-b".into();
            let marks =
                ObjectRef { name: "gone".into(), uid: "uid-gone".into(), resource_version: "7".into() };
            assert_eq!(
                actions,
                [
                    SyncAction::Create(wanted["new"].clone()),
                    SyncAction::Apply(applied),
                    SyncAction::Remove(marks)
                ],
                "{kind:?}"
            );
        }
    }

    #[test]
    fn an_object_that_leads_elsewhere_does_not_match() {
        let wanted = |kind: ObjectKind| kind.object(&owner(), "a", "10.0.0.1:443".parse().unwrap());
        for (kind, path, value) in [
            (ObjectKind::Service, "/metadata/labels/tombolo.dev~1server", json!("other")),
            (ObjectKind::Service, "/spec/selector", json!({ "app": "theirs" })),
            (ObjectKind::Service, "/spec/type", json!("NodePort")),
            (ObjectKind::Service, "/spec/ports", json!([])),
            (ObjectKind::Service, "/spec/ports/0/name", json!("http")),
            (ObjectKind::Slice, "/metadata/labels/kubernetes.io~1service-name", json!("b")),
            (ObjectKind::Slice, "/endpoints/0/addresses", json!(["10.0.0.1", "10.0.0.2"])),
            (ObjectKind::Slice, "/endpoints/0/addresses/0", json!("10.0.0.2")),
            (ObjectKind::Slice, "/endpoints/0/conditions/ready", json!(false)),
            (ObjectKind::Slice, "/ports/0/port", json!(80)),
        ] {
            let mut found = kept(kind, "a", "10.0.0.1:443");
            assert!(matches_wanted(&found, &wanted(kind)), "{kind:?}");
            found["spec"]["selector"] = Value::Null;
            *found.pointer_mut(path).unwrap() = value;
            assert!(!matches_wanted(&found, &wanted(kind)), "{path}");
        }
    }

    #[test]
    fn an_ipv6_address_makes_an_ipv6_service_and_slice() {
        let address = "[fd00::1]:443".parse().unwrap();
        let service = ObjectKind::Service.object(&owner(), "a", address);
        let slice = ObjectKind::Slice.object(&owner(), "a", address);
        assert_eq!(service["spec"]["ipFamilies"], json!(["IPv6"]));
        assert_eq!(
            (&slice["addressType"], &slice["endpoints"][0]["addresses"]),
            (&json!("IPv6"), &json!(["fd00::1"]))
        );
    }
}
