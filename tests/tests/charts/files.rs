//! The files of a server's pod: the chart's ConfigMaps and the Secrets of `tombolo ca secrets`, read by the server.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;
use tests::binaries::binary;
use tests::helm::{object, objects};
use tests::process::{Invocation, run};
use tests::scratch::Scratch;

const RUN_MAX: Duration = Duration::from_secs(60);

/// The pod has exactly the ConfigMaps and Secrets of its volume, as the kubelet writes them.
#[tokio::test]
async fn a_server_reads_the_charts_configuration_and_the_printed_secrets() {
    let helm = helm!("a_server_reads_the_charts_configuration_and_the_printed_secrets");
    let files = PodFiles::new();
    let pki = files.pki();
    succeeds("tombolo", &["ca", "issue", "server", "--dir", &pki, "--name", "gateway.example"]).await;
    let secrets = objects(&succeeds("tombolo", &["ca", "secrets", "--dir", &pki]).await);
    let made = objects(&helm.template("tombolo-server", "host: gateway.example\n").await.unwrap());
    files.write(&made, &secrets, object(&made, "Deployment", "tunnel-server"));

    succeeds("tunnel-server", &files.words(&[])).await;
    let policy = files.pod().join("policy.yaml");
    succeeds("tombolo", &["policy", "check", policy.to_str().unwrap()]).await;

    // Each source counts: the server does not start without one of its files.
    fs::remove_file(files.pod().join("sealing.key")).unwrap();
    let message = fails("tunnel-server", &files.words(&[])).await;
    assert!(message.contains("sealing.key"), "{message}");
}

/// All pods have the same files, and each server finds its own by the name of its pod.
#[tokio::test]
async fn each_server_of_several_reads_its_own_of_the_shared_files() {
    let helm = helm!("each_server_of_several_reads_its_own_of_the_shared_files");
    let files = PodFiles::new();
    let pki = files.pki();
    let ids = ["tunnel-server-0", "tunnel-server-1"];
    for id in ids {
        let names = ["--name", "gateway.example"];
        let server = ["ca", "issue", "server", "--dir", &pki, "--id", id];
        succeeds("tombolo", &[server.as_slice(), &names].concat()).await;
        succeeds("tombolo", &["ca", "issue", "peer", "--dir", &pki, "--id", id]).await;
    }
    let words = ["ca", "secrets", "--dir", &pki, "--id", ids[0], "--id", ids[1]];
    let secrets = objects(&succeeds("tombolo", &words).await);
    let etcd = "endpoints: ['https://etcd:2379'], caFile: peer-ca.crt, certificateFile: tunnel-server-0-peer.crt, \
                keyFile: tunnel-server-0-peer.key";
    let values =
        format!("host: gateway.example\nreplicas: 2\nconfig: {{ directory: {{ etcd: {{ {etcd} }} }} }}\n");
    let made = objects(&helm.template("tombolo-server", &values).await.unwrap());
    files.write(&made, &secrets, object(&made, "StatefulSet", "tunnel-server"));

    for id in ids {
        succeeds("tunnel-server", &files.words(&["--server-id", id])).await;
    }

    // The third pod has no certificates yet, and a process without a name has none at all.
    let message = fails("tunnel-server", &files.words(&["--server-id", "tunnel-server-2"])).await;
    assert!(message.contains("tunnel-server-2-server.crt"), "{message}");
    let message = fails("tunnel-server", &files.words(&[])).await;
    assert!(message.contains("has $(serverId)") && message.contains("--server-id"), "{message}");
    let config = files.pod().join("server.yaml");
    let server = ["--server-id", ids[0]];
    let doctor = ["doctor", "server", "-o", "json", "--config", config.to_str().unwrap()];
    let found = run(&invocation("tombolo", &[doctor.as_slice(), &server].concat()), RUN_MAX).await.unwrap();
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(found.contains("the certificate of `peering` is of server tunnel-server-0"), "{found}");
}

/// The folder of an authority, and the folder that the kubelet would write.
struct PodFiles(Scratch);

impl PodFiles {
    fn new() -> Self {
        let scratch = Scratch::new("tombolo-files-").unwrap();
        let pki = scratch.path().join("pki");
        let made = std::process::Command::new(binary("tombolo"))
            .args(["ca", "init", "--dir", pki.to_str().unwrap()])
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        fs::create_dir(scratch.path().join("pod")).unwrap();
        Self(scratch)
    }

    fn pki(&self) -> String {
        self.0.path().join("pki").display().to_string()
    }

    fn pod(&self) -> PathBuf {
        self.0.path().join("pod")
    }

    /// The arguments of a server that reads the pod's configuration and changes nothing.
    fn words(&self, more: &[&str]) -> Vec<String> {
        let config = self.pod().join("server.yaml").display().to_string();
        let state = self.0.path().join("state").display().to_string();
        let words = ["--config", &config, "--state-dir", &state, "--dry-run"];
        words.iter().chain(more).map(|word| (*word).to_owned()).collect()
    }

    /// Writes the sources of the first volume of a workload's pods.
    fn write(&self, made: &[Value], secrets: &[Value], workload: &Value) {
        let volume = &workload["spec"]["template"]["spec"]["volumes"][0];
        for source in volume["projected"]["sources"].as_array().unwrap() {
            match source["secret"]["name"].as_str() {
                Some(secret) => {
                    write(&self.pod(), object(secrets, "Secret", secret), |text| BASE64.decode(text).unwrap())
                }
                None => {
                    let name = source["configMap"]["name"].as_str().unwrap();
                    write(&self.pod(), object(made, "ConfigMap", name), |text| text.as_bytes().to_vec());
                }
            }
        }
    }
}

/// Writes the data of a ConfigMap or a Secret as files, for their owner alone.
fn write(folder: &Path, object: &Value, decode: impl Fn(&str) -> Vec<u8>) {
    for (name, text) in object["data"].as_object().unwrap() {
        let path = folder.join(name);
        fs::write(&path, decode(text.as_str().unwrap())).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o440)).unwrap();
    }
}

/// Runs a program, which must succeed, and returns its stdout.
async fn succeeds(program: &str, words: &[impl AsRef<str>]) -> String {
    let output = run(&invocation(program, words), RUN_MAX).await.unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a program, which must fail, and returns its stderr.
async fn fails(program: &str, words: &[impl AsRef<str>]) -> String {
    let output = run(&invocation(program, words), RUN_MAX).await.unwrap();
    assert!(!output.status.success(), "{program}");
    String::from_utf8(output.stderr).unwrap()
}

fn invocation(program: &str, words: &[impl AsRef<str>]) -> Invocation {
    Invocation::of(binary(program)).arguments(words.iter().map(AsRef::as_ref))
}
