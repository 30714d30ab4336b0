//! get, watch, exec, attach and port-forward with kube-rs, for the tests: the arguments, the outputs and the exit codes are kubectl's.
//!
//! ```text
//! get configmaps [--watch] -o name
//! exec [-i | -t] POD -- COMMAND...
//! attach -i POD
//! port-forward pod/POD :PORT...
//! ```

use std::error::Error;
use std::pin::pin;
use std::process::ExitCode;

use futures::{SinkExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{AttachParams, AttachedProcess, ListParams, TerminalSize, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, copy_bidirectional, stderr, stdin, stdout,
};
use tokio::net::{TcpListener, TcpStream};

type Failure = Box<dyn Error + Send + Sync>;

/// The sizes that a terminal has one after the other; the second one is sent once the first one has been printed there.
const SIZES: [TerminalSize; 2] =
    [TerminalSize { width: 77, height: 33 }, TerminalSize { width: 88, height: 44 }];

#[tokio::main]
async fn main() -> ExitCode {
    run().await.unwrap_or_else(|error| {
        eprintln!("{}", chain(&*error));
        ExitCode::FAILURE
    })
}

/// An error and what caused it.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        said.push_str(&format!(": {error}"));
        cause = error.source();
    }
    said
}

async fn run() -> Result<ExitCode, Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let client = Client::try_default().await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    match words.as_slice() {
        ["get", "configmaps", "-o", "name"] => {
            let maps = Api::<ConfigMap>::default_namespaced(client).list(&ListParams::default()).await?;
            maps.items.iter().for_each(named);
            Ok(ExitCode::SUCCESS)
        }
        ["get", "configmaps", "--watch", "-o", "name"] => watched(&Api::default_namespaced(client)).await,
        ["exec", "-t", pod, "--", command @ ..] => {
            let tty = AttachParams::default().stderr(false).tty(true);
            joined(pods.exec(pod, command.iter().copied(), &tty).await?).await
        }
        ["exec", "-i", pod, "--", command @ ..] => {
            joined(pods.exec(pod, command.iter().copied(), &with_stdin()).await?).await
        }
        ["exec", pod, "--", command @ ..] => {
            joined(pods.exec(pod, command.iter().copied(), &AttachParams::default()).await?).await
        }
        ["attach", "-i", pod] => joined(pods.attach(pod, &with_stdin()).await?).await,
        ["port-forward", pod, ports @ ..] => {
            let pod = pod.strip_prefix("pod/").ok_or("only pods are forwarded to")?;
            forwarded(pods, pod.to_owned(), ports).await
        }
        _ => Err("see the head of main.rs".into()),
    }
}

fn named(map: &ConfigMap) {
    println!("configmap/{}", map.name_any());
}

/// Prints the existing objects, and then each change until it is killed.
async fn watched(maps: &Api<ConfigMap>) -> Result<ExitCode, Failure> {
    let mut events = pin!(maps.watch(&WatchParams::default(), "0").await?);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(map) | WatchEvent::Modified(map) | WatchEvent::Deleted(map) => named(&map),
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) => return Err(format!("{status:?}").into()),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn with_stdin() -> AttachParams {
    AttachParams::default().stdin(true)
}

/// Joins a process' streams to ours until it has ended, and ends as it did.
async fn joined(mut process: AttachedProcess) -> Result<ExitCode, Failure> {
    let status = process.take_status().ok_or("a process has a status")?;
    if let Some(mut writer) = process.stdin() {
        // It ends with ours, or with the process.
        tokio::spawn(async move {
            copy(&mut stdin(), &mut writer).await?;
            writer.shutdown().await
        });
    }
    let (mut out, err) = (process.stdout(), process.stderr());
    if let (Some(mut sizes), Some(out)) = (process.terminal_size(), &mut out) {
        let [first, second] = SIZES;
        sizes.send(first).await?;
        until_the_first_size_is_said(out).await?;
        sizes.send(second).await?;
    }
    tokio::try_join!(said(out, stdout()), said(err, stderr()))?;
    let status = status.await;
    process.join().await?;
    code(status.ok_or("the process ended without a status")?)
}

async fn until_the_first_size_is_said(from: &mut (impl AsyncRead + Unpin)) -> Result<(), Failure> {
    let first = format!("{} {}", SIZES[0].height, SIZES[0].width);
    let mut seen = String::new();
    while !seen.contains(&first) {
        let mut bytes = [0; 64];
        let count = from.read(&mut bytes).await?;
        if count == 0 {
            return Err(format!("it ended behind {seen:?}").into());
        }
        seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    stdout().write_all(seen.as_bytes()).await?;
    Ok(())
}

async fn said(from: Option<impl AsyncRead + Unpin>, mut to: impl AsyncWrite + Unpin) -> Result<(), Failure> {
    if let Some(mut from) = from {
        copy(&mut from, &mut to).await?;
        to.flush().await?;
    }
    Ok(())
}

/// Kubernetes puts the exit code of a command into the causes of a Status.
fn code(status: Status) -> Result<ExitCode, Failure> {
    if status.status.as_deref() == Some("Success") {
        return Ok(ExitCode::SUCCESS);
    }
    let causes = status.details.clone().and_then(|details| details.causes).unwrap_or_default();
    let code = causes.into_iter().find(|cause| cause.reason.as_deref() == Some("ExitCode"));
    match code.and_then(|cause| cause.message?.parse::<u8>().ok()) {
        Some(code) => Ok(code.into()),
        None => Err(format!("{status:?}").into()),
    }
}

/// Listens for each port, prints the address, and forwards until it is killed. Each connection has a stream of its own.
async fn forwarded(pods: Api<Pod>, pod: String, ports: &[&str]) -> Result<ExitCode, Failure> {
    let mut listeners = Vec::new();
    for port in ports {
        let port: u16 = port.trim_start_matches(':').parse()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("Forwarding from {} -> {port}", listener.local_addr()?);
        listeners.push(tokio::spawn(accepted(pods.clone(), pod.clone(), port, listener)));
    }
    for listener in listeners {
        listener.await??;
    }
    Ok(ExitCode::SUCCESS)
}

async fn accepted(pods: Api<Pod>, pod: String, port: u16, listener: TcpListener) -> Result<(), Failure> {
    loop {
        let (stream, _) = listener.accept().await?;
        let (pods, pod) = (pods.clone(), pod.clone());
        tokio::spawn(async move {
            if let Err(error) = carried(&pods, &pod, port, stream).await {
                eprintln!("{error}");
            }
        });
    }
}

async fn carried(pods: &Api<Pod>, pod: &str, port: u16, mut ours: TcpStream) -> Result<(), Failure> {
    let mut forwarder = pods.portforward(pod, &[port]).await?;
    let mut theirs = forwarder.take_stream(port).ok_or("a forwarded port has a stream")?;
    copy_bidirectional(&mut ours, &mut theirs).await?;
    drop(theirs);
    forwarder.join().await?;
    Ok(())
}
