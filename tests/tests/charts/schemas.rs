//! The charts' values.schema.json: complete, in step with the daemons' configurations, and strict.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use syn::{Attribute, Fields, GenericArgument, Item, ItemStruct, LitStr, PathArguments, Type};
use tests::helm::combinations::COMBINATIONS;
use tests::helm::samples::resolved;
use tests::helm::{CHARTS, folder, objects};
use tests::sources::workspace;

/// Keys of the files that a chart sets itself, or does not offer.
const OWNED: [&str; 7] = [
    "stateDir",
    "probes",
    "drainGraceSeconds",
    "policy.file",
    // An interface of the host needs more rights than a restricted pod has.
    "vip",
    "enrollment.tokenFile",
    "enrollment.serviceAccountTokenFile",
];

/// The keys of every daemon.
const COMMON: &str = "daemon/src/config";

#[test]
fn every_value_is_typed_and_described_and_no_key_is_unknown() {
    for (chart, _) in CHARTS {
        let schema = schema(chart);
        let mut faults = Vec::new();
        walk(chart, &schema, false, &mut faults);
        for (name, definition) in schema["$defs"].as_object().unwrap() {
            walk(&format!("{chart} {name}"), definition, false, &mut faults);
        }
        assert_eq!(faults, Vec::<String>::new());
    }
}

/// The file lists each value with its default, so that people find it.
#[test]
fn values_yaml_has_every_value_of_the_schema() {
    for (chart, _) in CHARTS {
        let values = fs::read_to_string(folder(chart).join("values.yaml")).unwrap();
        let values = objects(&values).remove(0);
        let schema = schema(chart);
        let known = schema["properties"].as_object().unwrap();
        for (name, value) in known.iter().filter(|(name, _)| *name != "global") {
            assert!(values.get(name).is_some(), "{chart}: {name}");
            // Maps from a name have no keys until somebody sets some, and a configuration has its own defaults.
            let is_listed = !["config", "policy", "affinity", "resources"].contains(&name.as_str());
            for key in
                value["properties"].as_object().filter(|_| is_listed).into_iter().flat_map(|all| all.keys())
            {
                assert!(values[name].get(key).is_some() || key == "pullPolicy", "{chart}: {name}.{key}");
            }
        }
    }
}

/// A key that a daemon learns is in the chart's schema, and one that it forgets is not.
#[test]
fn the_schemas_have_exactly_the_keys_of_the_configurations() {
    for (chart, file) in
        [("tombolo-server", "tunnel-server/src/config"), ("tombolo-agent", "tunnel-agent/src/config")]
    {
        let schema = schema(chart);
        let mut expected = BTreeSet::new();
        keys_of_struct(&structs(&workspace().join(file)), "RawConfig", "", &mut expected);
        keys_of_struct(&structs(&workspace().join(COMMON)), "RawCommon", "", &mut expected);
        expected
            .retain(|key| !OWNED.iter().any(|owned| key == owned || key.starts_with(&format!("{owned}."))));
        let mut found = BTreeSet::new();
        keys_of_schema(&schema, &schema["properties"]["config"], "", &mut found);
        assert!(expected.len() > 15, "{expected:?}");
        assert_eq!(
            (
                found.difference(&expected).collect::<Vec<_>>(),
                expected.difference(&found).collect::<Vec<_>>()
            ),
            (vec![], vec![]),
            "{chart}: only in the schema, and only in RawConfig of {file}"
        );
    }
}

/// The schema of policy.yaml is made from the structs that read it, so helm refuses the same keys, words and counts.
#[test]
fn the_schema_of_the_policy_is_that_of_the_reference() {
    let path = "docs/reference/tombolo-policy.schema.json";
    let text = fs::read_to_string(workspace().join(path)).unwrap();
    let reference: Value = serde_json::from_str(&text).unwrap();

    let chart = &schema(SERVER)["properties"]["policy"];

    assert_eq!(chart["required"], json!(["rules"]));
    assert_eq!(
        chart["properties"],
        json!({ "rules": reference["properties"]["rules"] }),
        "copy `rules` of {path} to the schema of the chart"
    );
}

/// The tag of an image is the chart's appVersion unless a value sets it.
#[test]
fn the_charts_have_the_version_of_the_programs() {
    for (chart, _) in CHARTS {
        let about = fs::read_to_string(folder(chart).join("Chart.yaml")).unwrap();
        let about = objects(&about).remove(0);
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!((&about["version"], &about["appVersion"]), (&version.into(), &version.into()), "{chart}");
    }
}

#[tokio::test]
async fn unknown_and_ill_typed_values_are_refused_by_the_schema() {
    let helm = helm!("unknown_and_ill_typed_values_are_refused_by_the_schema");
    for (chart, values, place) in REFUSED {
        let least = COMBINATIONS.iter().find(|combination| combination.chart == *chart).unwrap().values;
        assert!(helm.template(chart, least).await.is_ok());

        let refused = helm.template(chart, values).await.expect_err(values);

        assert!(refused.contains("values don't meet the specifications"), "{values}: {refused}");
        assert!(refused.contains(place), "{values}: {refused}");
    }
}

const SERVER: &str = "tombolo-server";
const AGENT: &str = "tombolo-agent";
const TENANT: &str = "tenant-control-plane";

/// A chart, values, and the words by which the refusal names the place.
const REFUSED: &[(&str, &str, &str)] = &[
    (SERVER, "replicaCount: 2", "'replicaCount' not allowed"),
    (SERVER, "host: 7", "/host"),
    (SERVER, "host: 'gateway.example:8443'", "/host"),
    (SERVER, "host: 'https://gateway.example'", "/host"),
    (SERVER, "image: { digest: latest }", "/image/digest"),
    (SERVER, "image: { repository: '' }", "/image/repository"),
    (SERVER, "imagePullSecrets: [registry]", "/imagePullSecrets/0"),
    (SERVER, "config: { enrolment: {} }", "'enrolment' not allowed"),
    (SERVER, "config: { stateDir: /x }", "'stateDir' not allowed"),
    (SERVER, "config: { gateway: { listen: 8443 } }", "/config/gateway/listen"),
    (SERVER, "config: { gateway: { listen: '8443' } }", "/config/gateway/listen"),
    (SERVER, "config: { tunnel: { outageLimitSeconds: 5 } }", "/config/tunnel/outageLimitSeconds"),
    (SERVER, "config: { limits: { caller: { request: 5 } } }", "'request' not allowed"),
    (SERVER, "config: { egress: [{ tcp: { listen: 1 } }] }", "/config/egress/0/tcp/listen"),
    (SERVER, "policy: { rules: [{ efect: Allow }] }", "'efect' not allowed"),
    (SERVER, "policy: { rules: [{ effect: allow }] }", "/policy/rules/0/effect"),
    (SERVER, "policy: { rules: [] }", "/policy/rules"),
    (
        SERVER,
        "policy: { rules: [{ mode: dial, targets: [{ hosts: ['*'], ports: [0] }] }] }",
        "/targets/0/ports/0",
    ),
    (SERVER, "secrets: { server: '' }", "/secrets/server"),
    (SERVER, "storage: { keep: 'yes' }", "/storage/keep"),
    (SERVER, "storage: { size: 2 GiB }", "/storage/size"),
    (SERVER, "service: { type: ExternalName }", "/service/type"),
    (SERVER, "service: { ports: { gatway: 443 } }", "'gatway' not allowed"),
    (SERVER, "service: { nodePorts: { gateway: '30443' } }", "/service/nodePorts/gateway"),
    (SERVER, "service: { expose: [all] }", "/service/expose/0"),
    // A NetworkPolicy reads an empty list of peers as everybody.
    (SERVER, "networkPolicy: { from: { enrollment: [] } }", "/networkPolicy/from/enrollment"),
    (SERVER, "networkPolicy: { from: { admin: [{ ipblock: {} }] } }", "'ipblock' not allowed"),
    (SERVER, "extraFiles: [{ secret: a, configMap: b }]", "/extraFiles/0"),
    (SERVER, "resources: { limits: { memory: true } }", "/resources/limits/memory"),
    (SERVER, "tolerations: [{ operater: Exists }]", "'operater' not allowed"),
    (SERVER, "nodeSelector: { disk: 1 }", "/nodeSelector/disk"),
    (SERVER, "affinity: { nodeAffinity: { required: [] } }", "'required' not allowed"),
    (SERVER, "drainGraceSeconds: 0", "/drainGraceSeconds"),
    (SERVER, "monitoring: { podMonitor: { interval: often } }", "/monitoring/podMonitor/interval"),
    (AGENT, "kind: StatefulSet", "/kind"),
    (AGENT, "replicas: '2'", "/replicas"),
    (AGENT, "topologySpread: [{ topologyKey: zone }]", "/topologySpread/0"),
    (AGENT, "config: { cluster: Edge }", "/config/cluster"),
    (AGENT, "config: { servers: [gateway] }", "/config/servers/0"),
    (AGENT, "config: { servers: 'gateway:1' }", "/config/servers"),
    (AGENT, "config: { enrollment: { pin: abc } }", "/config/enrollment/pin"),
    (AGENT, "config: { enrollment: { tokenFile: x } }", "'tokenFile' not allowed"),
    (AGENT, "config: { impersonation: { user: [a] } }", "'user' not allowed"),
    (AGENT, "config: { tenants: [{ kind: Node, port: 1 }] }", "/config/tenants/0/kind"),
    (AGENT, "rbac: { profile: any }", "/rbac/profile"),
    (AGENT, "callerRoles: [{ clusterRole: view }]", "/callerRoles/0"),
    (AGENT, "callerRoles: [{ user: a, group: b, clusterRole: view }]", "/callerRoles/0"),
    (AGENT, "env: [{ name: A, valueFrom: { fieldRef: {} } }]", "'fieldRef' not allowed"),
    (AGENT, "probesListen: 9091", "/probesListen"),
    (AGENT, "tokens: x", "'tokens' not allowed"),
    (TENANT, "members: 3", "'members' not allowed"),
    (TENANT, "tenant: Acme", "/tenant"),
    (TENANT, "images: { etcd: { digest: latest } }", "/images/etcd/digest"),
    (TENANT, "portBase: 443", "/portBase"),
    (TENANT, "portBase: 30000", "/portBase"),
    (TENANT, "serviceNetwork: 10.97.0.0", "/serviceNetwork"),
    (TENANT, "services: { etcdData: [etcd.example] }", "/services/etcdData/0"),
    (TENANT, "etcd: { data: { storage: much } }", "/etcd/data/storage"),
    (TENANT, "apiserver: { extraArgs: [v=2] }", "/apiserver/extraArgs/0"),
    (TENANT, "controllerManager: { replicas: 0 }", "/controllerManager/replicas"),
];

fn schema(chart: &str) -> Value {
    let text = fs::read_to_string(folder(chart).join("values.schema.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Collects the places without a type or a description, and the objects that allow unknown keys.
fn walk(place: &str, schema: &Value, is_item: bool, faults: &mut Vec<String>) {
    if schema.get("$ref").is_some() {
        return;
    }
    if schema.get("type").is_none() {
        faults.push(format!("{place}: no type"));
    }
    let description = schema["description"].as_str().unwrap_or_default();
    if !is_item && description.len() < 5 {
        faults.push(format!("{place}: no description"));
    }
    // Helm hands these values to every chart of a release.
    if schema["type"] == "object" && !place.ends_with(".global") {
        match &schema["additionalProperties"] {
            Value::Bool(false) => {}
            Value::Object(values) => {
                walk(&format!("{place}.*"), &Value::Object(values.clone()), true, faults)
            }
            other => faults.push(format!("{place}: additionalProperties {other}")),
        }
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{place}.{name}"), property, false, faults);
    }
    if schema["type"] == "array" {
        walk(&format!("{place}[]"), &schema["items"], true, faults);
    }
}

/// The paths of the keys below a part of the schema, lists without their brackets.
fn keys_of_schema(root: &Value, part: &Value, before: &str, keys: &mut BTreeSet<String>) {
    let part = resolved(root, part);
    if part["type"] == "array" {
        return keys_of_schema(root, &part["items"], before, keys);
    }
    for (name, property) in part["properties"].as_object().into_iter().flatten() {
        let key = format!("{before}{name}");
        keys_of_schema(root, property, &format!("{key}."), keys);
        keys.insert(key);
    }
}

/// The structs in the Rust files below a folder, and in the file of its name, by their names.
fn structs(folder: &Path) -> BTreeMap<String, ItemStruct> {
    let mut found = BTreeMap::new();
    let mut pending = vec![folder.to_owned(), folder.with_extension("rs")];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).unwrap();
            // The files `tests.rs` have structs of their own.
            let entries = entries.map(|entry| entry.unwrap().path());
            pending.extend(entries.filter(|path| path.file_stem().is_some_and(|stem| stem != "tests")));
            continue;
        }
        // A fuzzer keeps its inputs beside the sources.
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let items = syn::parse_file(&text).unwrap().items;
        for item in items {
            if let Item::Struct(item) = item {
                found.insert(item.ident.to_string(), item);
            }
        }
    }
    found
}

/// The paths of the keys of a struct that serde reads.
fn keys_of_struct(
    structs: &BTreeMap<String, ItemStruct>,
    name: &str,
    before: &str,
    keys: &mut BTreeSet<String>,
) {
    let Fields::Named(fields) = &structs[name].fields else { panic!("{name} has no names") };
    for field in &fields.named {
        // The former name of a key, which is refused.
        if leaf_types(&field.ty).contains(&"IgnoredAny".to_owned()) {
            continue;
        }
        let ident = field.ident.as_ref().unwrap().to_string();
        let key = format!("{before}{}", renamed(&field.attrs).unwrap_or_else(|| camel_case(&ident)));
        for inner in leaf_types(&field.ty).iter().filter(|inner| structs.contains_key(*inner)) {
            let is_flat = field.attrs.iter().any(|attribute| has_word(attribute, "flatten"));
            let before = if is_flat { before.to_owned() } else { format!("{key}.") };
            keys_of_struct(structs, inner, &before, keys);
        }
        keys.insert(key);
    }
}

/// The names in a type such as `Option<Vec<RawServer>>`, but not those in the values of a map.
fn leaf_types(of: &Type) -> Vec<String> {
    let Type::Path(path) = of else { return Vec::new() };
    let Some(last) = path.path.segments.last() else { return Vec::new() };
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return vec![last.ident.to_string()];
    };
    if last.ident == "BTreeMap" {
        return Vec::new();
    }
    let types = arguments.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(inner) => Some(leaf_types(inner)),
        _ => None,
    });
    types.flatten().collect()
}

fn has_word(attribute: &Attribute, word: &str) -> bool {
    let mut is_there = false;
    if attribute.path().is_ident("serde") {
        let _ = attribute.parse_nested_meta(|meta| {
            is_there |= meta.path.is_ident(word);
            if meta.input.peek(syn::Token![=]) {
                meta.value()?.parse::<syn::Lit>()?;
            }
            Ok(())
        });
    }
    is_there
}

/// The name of `#[serde(rename = "NAME")]`.
fn renamed(attributes: &[Attribute]) -> Option<String> {
    let mut name = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        let parsed = attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("rename") {
                name = Some(meta.value()?.parse::<LitStr>()?.value());
            } else if meta.input.peek(syn::Token![=]) {
                meta.value()?.parse::<syn::Lit>()?;
            }
            Ok(())
        });
        parsed.unwrap();
    }
    name
}

/// As `#[serde(rename_all = "camelCase")]` does.
fn camel_case(ident: &str) -> String {
    let mut words = ident.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |text, word| {
        let (head, tail) = word.split_at(1.min(word.len()));
        text + &head.to_uppercase() + tail
    })
}
