//! Encodings: JSON, YAML, protobuf, CBOR, tables and metadata alone, in answers and in requests.

use serde_json::{Value, json};
use tests::cbor;
use tests::real_edge::{RealEdge, RouteClients};
use tests::routes::{TestRequest, masked};

use super::{config_map, create};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const CBOR: &str = "application/cbor";

/// The first bytes of protobuf in Kubernetes.
const PROTOBUF_MAGIC: &[u8] = b"k8s\0";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_the_same_in_every_encoding() {
    let edge = RealEdge::shared().await;
    edge.namespace("encodings").await;
    let collection = "/api/v1/namespaces/encodings/configmaps";
    let version = create(&edge, collection, (0..5).map(|n| config_map(&format!("map-{n}"), "ä"))).await;
    let island = json!({ "apiVersion": "tombolo.test/v1", "kind": "Island", "metadata": { "name": "sylt" } });
    create(&edge, "/apis/tombolo.test/v1/namespaces/encodings/islands", [island]).await;
    let lines = edge.lines().await;

    let list = format!("{collection}?resourceVersion={version}&resourceVersionMatch=Exact");
    let one = format!("{collection}/map-1");
    let custom = "/apis/tombolo.test/v1/namespaces/encodings/islands/sylt";
    let metadata = |encoding, kind| format!("{encoding};as={kind};v=v1;g=meta.k8s.io");
    for (path, accept, begins) in [
        (list.as_str(), JSON.to_owned(), b"{".as_slice()),
        (&list, YAML.to_owned(), b"apiVersion"),
        (&list, PROTOBUF.to_owned(), PROTOBUF_MAGIC),
        (&list, metadata(JSON, "PartialObjectMetadataList"), b"{"),
        (&list, metadata(PROTOBUF, "PartialObjectMetadataList"), PROTOBUF_MAGIC),
        (&list, format!("{PROTOBUF};q=0.5,{YAML};q=0.9"), b"apiVersion"),
        (&one, PROTOBUF.to_owned(), PROTOBUF_MAGIC),
        (&one, metadata(PROTOBUF, "PartialObjectMetadata"), PROTOBUF_MAGIC),
        (&one, YAML.to_owned(), b"apiVersion"),
        (custom, JSON.to_owned(), b"{"),
        (custom, YAML.to_owned(), b"apiVersion"),
        (custom, metadata(JSON, "PartialObjectMetadata"), b"{"),
    ] {
        let answer = lines.agree(&TestRequest::get(path).accept(&accept)).await;
        assert!(answer.status == 200 && answer.body.starts_with(begins), "{path} {accept}: {answer:?}");
    }
    for (path, accept) in [(one.as_str(), "text/html"), (custom, PROTOBUF)] {
        let refused = lines.agree(&TestRequest::get(path).accept(accept)).await;
        assert_eq!(refused.status, 406, "{path} {accept}");
    }
    tables(&lines, &[&list, &one, custom]).await;
    cbor_answers(&lines, &[&list, &one, custom]).await;
}

/// Ages are of the moment, and the rest is the same.
async fn tables(lines: &RouteClients, paths: &[&str]) {
    for path in paths {
        for options in ["", "includeObject=Object", "includeObject=None"] {
            let joint = if path.contains('?') { '&' } else { '?' };
            let ask = TestRequest::get(format!("{path}{joint}{options}"));
            let [direct, through @ ..] =
                lines.ask(&ask.accept("application/json;as=Table;v=v1;g=meta.k8s.io")).await;
            assert!(masked(&direct.body).contains("\"kind\":\"Table\""), "{direct:?}");
            for answer in through {
                assert_eq!(answer.status, 200);
                assert_eq!(masked(&answer.body), masked(&direct.body), "{path} {options}");
            }
        }
    }
}

/// The order of a map's keys is drawn by lot, and the rest is the same.
async fn cbor_answers(lines: &RouteClients, paths: &[&str]) {
    for path in paths {
        let [direct, through @ ..] = lines.ask(&TestRequest::get(*path).accept(CBOR)).await;
        assert_eq!(direct.header("content-type"), Some(CBOR), "{direct:?}");
        let json: Value =
            serde_json::from_slice(&lines.direct().ask(&TestRequest::get(*path).accept(JSON)).await.body)
                .unwrap();
        for answer in through {
            assert_eq!(answer.lasting_headers(), direct.lasting_headers());
            assert_eq!(cbor::decode(&answer.body), std::slice::from_ref(&json), "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_taken_in_every_encoding() {
    let edge = RealEdge::shared().await;
    edge.namespace("bodies").await;
    let lines = edge.lines().await;
    let collection = "/api/v1/namespaces/bodies/configmaps";
    let object = config_map("m", "1");
    // What a dry run answers has no version yet, and so it can be created.
    let dry = TestRequest::with("POST", format!("{collection}?dryRun=All"), JSON, object.to_string());
    let protobuf = lines.direct().ask(&dry.accept(PROTOBUF)).await.body;
    let yaml = "{apiVersion: v1, kind: ConfigMap, metadata: {name: m, labels: {kept: 'no'}}, data: {a: '1', b: '2'}}";
    let bodies = [
        (JSON, object.to_string().into_bytes()),
        (YAML, yaml.as_bytes().to_vec()),
        (PROTOBUF, protobuf.to_vec()),
        (CBOR, cbor::encode(&object)),
    ];

    for line in lines.all() {
        for (encoding, body) in &bodies {
            let case = format!("{encoding} by {}", line.name);
            let created = line.ask(&TestRequest::with("POST", collection, encoding, body.clone())).await;
            assert_eq!(created.status, 201, "{case}: {created:?}");
            let read: Value = serde_json::from_slice(
                &lines.direct().ask(&TestRequest::get(format!("{collection}/m")).accept(JSON)).await.body,
            )
            .unwrap();
            assert_eq!(read["data"], object["data"], "{case}");
            assert_eq!(read["metadata"]["labels"], object["metadata"]["labels"], "{case}");

            // What is read in an encoding can be written back in it.
            let read = line.ask(&TestRequest::get(format!("{collection}/m")).accept(encoding)).await;
            assert_eq!(read.header("content-type"), Some(*encoding), "{case}");
            let replaced =
                line.ask(&TestRequest::with("PUT", format!("{collection}/m"), encoding, read.body)).await;
            assert_eq!(replaced.status, 200, "{case}: {replaced:?}");
            let deleted = line.ask(&TestRequest::of("DELETE", format!("{collection}/m"))).await;
            assert_eq!(deleted.status, 200, "{case}: {deleted:?}");
        }
    }
}
