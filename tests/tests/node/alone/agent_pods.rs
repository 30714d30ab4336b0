//! The agent as it ships for Kubernetes: deployed from `deploy/`, with the image of `.ci/image`.

use std::path::{Path, PathBuf};
use std::{env, fs};

use rustix::process::Signal;
use tests::enroll;
use tests::lab::{Lab, Uplink, run};
use tests::node;
use tests::node_edge::{NAMES, NodeEdge, caller};
use tests::rig::Rig;
use tests::skip::skip;
use tests::sources::copy_of_deploy;

/// The variable with the path of the image's archive from `.ci/image`, and the image's name.
const ARCHIVE: &str = "TOMBOLO_AGENT_IMAGE";
const IMAGE: &str = "tombolo.test/tunnel-agent";
const TAG: &str = "1";

pub const DEPLOYMENT: &str = "deployment/tunnel-agent";

/// Runs a trial with a cluster whose agent is a pod of its Deployment, enrolled by a token, behind this
/// uplink.
pub fn trial(test: &str, uplink: Uplink, does: impl AsyncFnOnce(&Lab, NodeEdge, &Rig) + Send) {
    if let Err(unable) = node::assets() {
        return skip(test, &unable.to_string());
    }
    let Some(archive) = env::var_os(ARCHIVE).map(PathBuf::from) else {
        return skip(
            test,
            &format!("{ARCHIVE} does not say where the image is, run: .ci/image tunnel-agent"),
        );
    };
    let done = run(async |lab| {
        let mut rig = lab.rig("").await;
        enroll::open(&mut rig).await;
        let mut edge = NodeEdge::start(lab, &rig, NAMES[0], uplink).await;
        // The agent beside the cluster goes before one in it comes.
        assert_eq!(Rig::ends_with(&mut edge.agent.process, Signal::TERM).await, Some(0));
        rig.disconnected(edge.name).await;

        edge.node.load_archive(&archive).await.expect("an image");
        deploy(&edge, &rig).await;
        let secret = enroll::at(&rig, &["token", "create", "--cluster", edge.name, "-o", "manifest"]).await;
        edge.apply("enrollment", &secret).await;
        rolled_out(&edge).await;
        does(lab, edge, &rig).await;
    });
    done.expect("a lab");
}

/// Applies the example's copy with the trial's server and image, and one agent: there is one node.
async fn deploy(edge: &NodeEdge, rig: &Rig) {
    let site = copy_of_deploy(&edge.file("deploy"), ["agent", "examples/edge-a"]);
    let config = site.join("agent.yaml");
    change(&config, "gateway.example:8443", &rig.dialed().to_string());
    change(&config, "\"alice\"", &format!("{:?}", caller(edge.name)));
    let rights = rig.tombolo(&["rbac", "--agent-config", config.to_str().expect("a path")]).await;
    fs::write(site.join("rbac.yaml"), rights).expect("it is ours");
    change(&site.join("kustomization.yaml"), "registry.example/tombolo/tunnel-agent", IMAGE);
    change(&site.join("kustomization.yaml"), "newTag: 0.1.0", &format!("newTag: \"{TAG}\""));
    let one = "replicas:\n- { name: tunnel-agent, count: 1 }\nimages:\n";
    change(&site.join("kustomization.yaml"), "images:\n", one);
    edge.direct.stdout(&["apply", "--kustomize", site.to_str().expect("a path")]).await;
}

pub fn change(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).expect("a file");
    assert!(text.contains(from), "{from}: {text}");
    fs::write(file, text.replace(from, to)).expect("it is ours");
}

/// Waits until the Deployment's pods are those of its newest template, and ready.
pub async fn rolled_out(edge: &NodeEdge) {
    are_rolled_out(edge, "tombolo", DEPLOYMENT).await;
}

/// The same for other owners of pods.
pub async fn are_rolled_out(edge: &NodeEdge, namespace: &str, owner: &str) {
    let status = ["rollout", "status", owner, "--namespace", namespace, "--timeout=100s"];
    let output = edge.direct.run(&status).await.expect("kubectl");
    if !output.status.success() {
        let pods = edge.direct.stdout(&["describe", "pods", "--namespace", namespace]).await;
        let log = ["logs", owner, "--namespace", namespace, "--tail=50"];
        let log = edge.direct.run(&log).await.expect("kubectl");
        panic!(
            "{}\n{pods}\n{}",
            String::from_utf8_lossy(&output.stderr),
            String::from_utf8_lossy(&log.stdout)
        );
    }
}
