//! The files of a server's pod: the chart's ConfigMaps and the Secrets of `tombolo ca secrets`, read by the server.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;
use tests::binaries::binary;
use tests::helm::{Helm, object, objects};
use tests::process::{Invocation, run};
use tests::scratch::Scratch;
use tests::skip::skip;

const RUN_MAX: Duration = Duration::from_secs(60);

/// The pod has exactly the ConfigMaps and Secrets of its volume, as the kubelet writes them.
#[tokio::test]
async fn a_server_reads_the_charts_configuration_and_the_printed_secrets() {
    let helm = match Helm::find() {
        Ok(helm) => helm,
        Err(missing) => {
            return skip(
                "a_server_reads_the_charts_configuration_and_the_printed_secrets",
                &missing.to_string(),
            );
        }
    };
    let scratch = Scratch::new("tombolo-files-").unwrap();
    let pki = scratch.path().join("pki");
    let pki = pki.to_str().unwrap();
    succeeds("tombolo", &["ca", "init", "--dir", pki]).await;
    succeeds("tombolo", &["ca", "issue", "server", "--dir", pki, "--name", "gateway.example"]).await;
    let secrets = objects(&succeeds("tombolo", &["ca", "secrets", "--dir", pki]).await);
    let made = objects(&helm.template("tombolo-server", "host: gateway.example\n").await.unwrap());
    let pod = scratch.path().join("pod");
    fs::create_dir(&pod).unwrap();
    let volume = &object(&made, "Deployment", "tunnel-server")["spec"]["template"]["spec"]["volumes"][0];
    let sources = volume["projected"]["sources"].as_array().unwrap();
    for source in sources {
        match source["secret"]["name"].as_str() {
            Some(secret) => {
                write(&pod, object(&secrets, "Secret", secret), |text| BASE64.decode(text).unwrap())
            }
            None => {
                let name = source["configMap"]["name"].as_str().unwrap();
                write(&pod, object(&made, "ConfigMap", name), |text| text.as_bytes().to_vec());
            }
        }
    }

    let config = pod.join("server.yaml");
    let state = scratch.path().join("state").display().to_string();
    let words = ["--config", config.to_str().unwrap(), "--state-dir", &state, "--dry-run"];
    succeeds("tunnel-server", &words).await;
    succeeds("tombolo", &["policy", "check", pod.join("policy.yaml").to_str().unwrap()]).await;

    // Each source counts: the server does not start without one of its files.
    fs::remove_file(pod.join("sealing.key")).unwrap();
    let output = run(&Invocation::of(binary("tunnel-server")).arguments(words), RUN_MAX).await.unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("sealing.key"), "{message}");
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
async fn succeeds(program: &str, words: &[&str]) -> String {
    let invocation = Invocation::of(binary(program)).arguments(words.iter().copied());
    let output = run(&invocation, RUN_MAX).await.unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
