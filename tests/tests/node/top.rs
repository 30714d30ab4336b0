//! `kubectl top`: an aggregated API, served by a pod behind an APIService.

use tests::node::Image;
use tests::node_edge::{NodeEdge, POD, trial};

use super::kubectls::until;

const IMAGE: &str = "tombolo.test/metrics-server:1";
const API: &str = "v1beta1.metrics.k8s.io";

#[test]
fn top_shows_the_usage_of_nodes_and_pods_by_an_aggregated_api() {
    trial("top_shows_the_usage_of_nodes_and_pods_by_an_aggregated_api", async |edges| {
        let edge = &edges.edges[1];
        let node = format!("{}-node", edge.name);
        serve_metrics(edge).await;
        for (entry_point, kubectl) in [("direct", &edge.direct), ("tunneled", &edge.tunneled)] {
            // It has a pod's figures once it has asked the kubelet twice since the pod began.
            let of = |what: [&'static str; 3], name: String| async move {
                until(&format!("{entry_point}: the figures of {name}"), async || {
                    let output = kubectl.run(&what).await.expect("kubectl runs");
                    uses(&String::from_utf8_lossy(&output.stdout), &name)
                })
                .await
            };
            let [processor, memory] = of(["top", "nodes", "--no-headers"], node.clone()).await;
            assert!(processor > 0 && memory > 0, "{entry_point}: {processor} {memory}");
            let [_, memory] = of(["top", "pods", "--no-headers"], POD.to_owned()).await;
            assert!(memory > 0, "{entry_point}: {memory}");
        }
    });
}

/// The values in the line of `name`: thousandths of a processor, and mebibytes.
fn uses(message: &str, name: &str) -> Option<[u32; 2]> {
    let line = message.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    let mut words = line.split_whitespace().skip(1);
    let processor = words.next()?.strip_suffix('m')?.parse().ok()?;
    // Of a node there is a share behind each figure.
    let memory = words.find_map(|word| word.strip_suffix("Mi"))?.parse().ok()?;
    Some([processor, memory])
}

async fn serve_metrics(edge: &NodeEdge) {
    let program = &edge.node.assets().metrics_server;
    let image = Image {
        name: IMAGE,
        programs: &[(program, "bin/metrics-server")],
        entrypoint: &["/bin/metrics-server"],
        ..Image::default()
    };
    edge.node.load(&image).await.expect("an image");
    edge.apply("metrics-server", include_str!("metrics-server.yaml")).await;
    let api = format!("apiservice/{API}");
    let available = ["wait", "--for=condition=Available", &api, "--timeout=100s"];
    let output = edge.direct.run(&available).await.expect("kubectl runs");
    if !output.status.success() {
        let why = edge.direct.stdout(&["describe", &api]).await;
        let pods = edge.direct.stdout(&["describe", "pods", "--namespace=kube-system"]).await;
        let arguments = ["logs", "--namespace=kube-system", "deployment/metrics-server"];
        let logs = edge.direct.run(&arguments).await.expect("kubectl runs");
        panic!("{why}\n{pods}\n{}", String::from_utf8_lossy(&logs.stdout));
    }
}
