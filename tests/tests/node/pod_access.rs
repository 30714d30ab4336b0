//! Further access to a pod: debug containers beside it, HTTP to it and to a Service by the API server,
//! `kubectl proxy`.

use tests::node_edge::{IMAGE, POD, trial};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::kubectls::{SOON, clients, until, wrote};

#[test]
fn a_debug_container_sees_the_processes_of_the_one_it_is_for() {
    trial("a_debug_container_sees_the_processes", async |edges| {
        let edge = &edges.edges[0];
        for client in clients(edge) {
            let pod = format!("debugged-{}", client.name);
            edge.run_pod(&pod, &format!("command: [pod, serve, {pod}]")).await;
            let image = format!("--image={IMAGE}");
            // It waits for somebody who types: of one that ends at once kubectl may see nothing, with or
            // without a tunnel.
            let says = "read line; cat /proc/1/cmdline; echo; echo \"heard $line\"; read end";
            let words = ["debug", &pod, &image, "--target=main", "-i", "--", "sh", "-c", says];
            let started = client.kubectl.start_listening(&words, &edge.file(&format!("{pod}.out"))).await;
            let (mut process, mut stdin) = started.expect("kubectl starts");

            stdin.write_all(b"hello\n").await.expect("kubectl reads");
            let message = wrote(&mut process, "heard hello\n").await.replace('\0', " ");
            stdin.write_all(b"bye\n").await.expect("kubectl reads");

            assert!(message.contains(&format!("pod serve {pod}")), "{}: {message}", client.name);
            let status = process.wait(SOON).await.expect("kubectl ends");
            assert!(status.success(), "{}: {}", client.name, process.tail());
        }
    });
}

#[test]
fn a_pod_and_a_service_answer_http_by_their_proxy_subresource() {
    trial("a_pod_and_a_service_answer_http", async |edges| {
        for edge in &edges.edges {
            edge.direct.stdout(&["expose", "pod", POD, "--port=80", "--target-port=8080"]).await;
            let says = format!("{} /some/path\n", edge.name);
            for kubectl in [&edge.direct, &edge.tunneled] {
                let pod = format!("/api/v1/namespaces/default/pods/{POD}:8080/proxy/some/path");
                assert_eq!(kubectl.stdout(&["get", "--raw", &pod]).await, says);
                let service = format!("/api/v1/namespaces/default/services/{POD}:80/proxy/some/path");
                until("the Service has its endpoint", async || {
                    let output = kubectl.run(&["get", "--raw", &service]).await.expect("kubectl runs");
                    (output.stdout == says.as_bytes()).then_some(())
                })
                .await;
            }
        }
    });
}

#[test]
fn a_kubectl_proxy_leads_to_the_pod_of_its_cluster() {
    trial("a_kubectl_proxy_leads_to_the_pod", async |edges| {
        for edge in &edges.edges {
            let output = edge.file("proxy.out");
            let mut proxy = edge
                .tunneled
                .start(&["proxy", "--port=0", "--append-server-path"], &output)
                .await
                .expect("kubectl starts");
            let message = wrote(&mut proxy, "\n").await;
            let address = message.trim().rsplit(' ').next().expect("an address").to_owned();
            let mut stream = TcpStream::connect(&address).await.expect("kubectl listens");
            let path = format!("/api/v1/namespaces/default/pods/{POD}:8080/proxy/by-proxy");
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.expect("it is taken");
            let mut answer = String::new();
            tokio::time::timeout(SOON, stream.read_to_string(&mut answer))
                .await
                .expect("it ends")
                .expect("it ends well");
            assert!(answer.ends_with(&format!("{} /by-proxy\n", edge.name)), "{answer}");
        }
    });
}
