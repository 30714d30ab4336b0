//! 50 MB of objects: listed in one piece, in chunks and compressed, each the same byte for byte.

use tests::real_edge::{RealEdge, RouteClients};
use tests::routes::TestRequest;

use super::{config_map, outputs_agree, without_age};

const COLLECTION: &str = "/api/v1/namespaces/bulk/configmaps";

/// As many objects, each of [`OBJECT_BYTES`]: more than 50 MB.
const OBJECTS: usize = 104;

/// Below etcd's 1.5 MiB for one object.
const OBJECT_BYTES: usize = 500 * 1024;

/// Objects that are created at once.
const WRITERS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_50_mb_is_the_same_in_one_piece_in_chunks_and_compressed() {
    let edge = RealEdge::shared().await;
    edge.namespace("bulk").await;
    let lines = edge.lines().await;
    fill(&lines).await;
    let head = lines.direct().ask(&TestRequest::get(format!("{COLLECTION}?limit=1"))).await;
    let version = version_of(&head.body);
    let list = format!("{COLLECTION}?resourceVersion={version}&resourceVersionMatch=Exact");

    // One after the other: 50 MB each.
    let complete = same(&lines, &TestRequest::get(&list)).await;
    assert!(complete.bytes > 50_000_000, "{complete:?}");
    let protobuf = same(&lines, &TestRequest::get(&list).accept("application/vnd.kubernetes.protobuf")).await;
    assert!(protobuf.bytes > 50_000_000, "{protobuf:?}");
    let gzipped = same(&lines, &TestRequest::get(&list).header("accept-encoding", "gzip")).await;
    assert!(gzipped.is_compressed && gzipped.bytes < complete.bytes, "{gzipped:?}");

    let mut chunks = 0;
    let mut next = Some(format!("{list}&limit=40"));
    while let Some(path) = next {
        let chunk = lines.agree(&TestRequest::get(path).header("accept-encoding", "identity")).await;
        chunks += 1;
        next = continue_of(&chunk.body).map(|token| format!("{COLLECTION}?limit=40&continue={token}"));
    }
    assert_eq!(chunks, 3);
    by_kubectl(&edge).await;
}

/// kubectl lists all objects by every route, in five chunks. It prints a table, because parsing 50 MB of JSON
/// takes it a minute here.
async fn by_kubectl(edge: &RealEdge) {
    let words = ["get", "configmaps", "-n", "bulk", "--chunk-size=25", "--no-headers"];
    let listed = outputs_agree(&edge.routes, &words, without_age, true).await;
    assert_eq!(listed.matches("map-").count(), OBJECTS, "{listed}");
}

/// The properties that all answers to one request share.
#[derive(Debug)]
struct Same {
    bytes: usize,
    is_compressed: bool,
}

/// Asks along each way, one after the other.
async fn same(lines: &RouteClients, ask: &TestRequest) -> Same {
    let mut all = Vec::new();
    for line in lines.all() {
        let answer = line.ask(ask).await;
        assert_eq!(answer.status, 200, "{} {ask:?}", line.name);
        all.push((answer.lasting_headers(), answer.body));
    }
    let is_compressed = all[0].0.contains(&("content-encoding".to_owned(), "gzip".to_owned()));
    for (headers, body) in &all[1..] {
        assert_eq!(*headers, all[0].0, "{ask:?}");
        assert!(*body == all[0].1, "{ask:?}");
    }
    Same { bytes: all[0].1.len(), is_compressed }
}

async fn fill(lines: &RouteClients) {
    let write = async |writer: usize| {
        for number in (writer..OBJECTS).step_by(WRITERS) {
            let object = config_map(&format!("map-{number:03}"), &text(number));
            let ask = TestRequest::with("POST", COLLECTION, "application/json", object.to_string());
            let answer = lines.direct().ask(&ask).await;
            assert_eq!(answer.status, 201, "{answer:?}");
        }
    };
    tokio::join!(write(0), write(1), write(2), write(3));
}

/// Text that no compression makes small, another for each number.
fn text(number: usize) -> String {
    let mut state = number as u64 + 1;
    let letter = |_| {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let drawn = state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 58;
        char::from(b'0' + u8::try_from(drawn).expect("six bits"))
    };
    (0..OBJECT_BYTES).map(letter).collect()
}

fn version_of(list: &[u8]) -> String {
    value_of(list, "\"resourceVersion\":\"").expect("a list has a version")
}

fn continue_of(list: &[u8]) -> Option<String> {
    value_of(list, "\"continue\":\"")
}

/// The first value behind a key; of a list's own metadata, which comes first.
fn value_of(list: &[u8], key: &str) -> Option<String> {
    let head = String::from_utf8_lossy(&list[..list.len().min(1024)]).into_owned();
    let (_, behind) = head.split_once(key)?;
    behind.split_once('"').map(|(value, _)| value.to_owned())
}
