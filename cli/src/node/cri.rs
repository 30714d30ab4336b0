//! The container runtime, by the Container Runtime Interface: `k8s.io/cri-api`, `runtime.v1`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon::Scope;
use http::Uri;
use http::uri::PathAndQuery;
use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::admin::Channel;

/// Longest wait for one answer. A pod is stopped within its grace period, which kubelet's default makes 30 s.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// The runtime does not answer, or says no.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CriError {
    #[error("nothing answers at {0}; start the container runtime, or name its socket with --cri-socket")]
    NotThere(PathBuf, #[source] std::io::Error),
    #[error("the program at {0} speaks no HTTP/2, so it is no container runtime")]
    NotHttp2(PathBuf, #[source] hyper::Error),
    #[error("the container runtime does not answer {call} within {} s", ANSWER_MAX.as_secs())]
    Timeout {
        /// The name of the call.
        call: &'static str,
    },
    #[error(
        "the container runtime refuses {call}: {message}. It must serve the Container Runtime Interface (containerd: \"cri\" must not be in \
         disabled_plugins of /etc/containerd/config.toml)"
    )]
    Refused {
        /// The name of the call.
        call: &'static str,
        /// The message of its answer.
        message: String,
    },
}

/// The driver by which the runtime makes control groups. kubelet has to use the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CgroupDriver {
    Systemd,
    Cgroupfs,
}

impl CgroupDriver {
    /// The name in kubelet's configuration.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Systemd => "systemd",
            Self::Cgroupfs => "cgroupfs",
        }
    }
}

/// A connection to the runtime of this machine.
pub(super) struct Runtime(Grpc<Channel>);

#[derive(Clone, PartialEq, Message)]
struct VersionRequest {}

#[derive(Clone, PartialEq, Message)]
struct VersionResponse {
    #[prost(string, tag = "2")]
    runtime_name: String,
    #[prost(string, tag = "3")]
    runtime_version: String,
}

#[derive(Clone, PartialEq, Message)]
struct RuntimeConfigRequest {}

#[derive(Clone, PartialEq, Message)]
struct RuntimeConfigResponse {
    #[prost(message, optional, tag = "1")]
    linux: Option<LinuxRuntimeConfiguration>,
}

#[derive(Clone, PartialEq, Message)]
struct LinuxRuntimeConfiguration {
    /// 0 is systemd, 1 cgroupfs.
    #[prost(int32, tag = "1")]
    cgroup_driver: i32,
}

#[derive(Clone, PartialEq, Message)]
struct ListPodSandboxRequest {}

#[derive(Clone, PartialEq, Message)]
struct ListPodSandboxResponse {
    #[prost(message, repeated, tag = "1")]
    items: Vec<PodSandbox>,
}

#[derive(Clone, PartialEq, Message)]
struct PodSandbox {
    #[prost(string, tag = "1")]
    id: String,
}

/// The same for `StopPodSandbox` and `RemovePodSandbox`.
#[derive(Clone, PartialEq, Message)]
struct PodSandboxRequest {
    #[prost(string, tag = "1")]
    pod_sandbox_id: String,
}

#[derive(Clone, PartialEq, Message)]
struct Nothing {}

impl Runtime {
    /// Connects to the runtime's socket.
    ///
    /// # Errors
    /// [`CriError::NotThere`], [`CriError::NotHttp2`]
    pub(super) async fn connect(socket: &Path, scope: &Scope) -> Result<Self, CriError> {
        let stream = UnixStream::connect(socket).await;
        let stream = stream.map_err(|error| CriError::NotThere(socket.to_owned(), error))?;
        let handshake = http2::handshake(scope.clone(), TokioIo::new(stream)).await;
        let (requests, connection) =
            handshake.map_err(|error| CriError::NotHttp2(socket.to_owned(), error))?;
        scope.spawn_background(async move {
            // A request that is waiting for its response gets the error.
            let _ = connection.await;
        });
        Ok(Self(Grpc::with_origin(Channel::from(requests), Uri::from_static("http://runtime"))))
    }

    /// The name and the version of the runtime, for people.
    ///
    /// # Errors
    /// [`CriError`]
    pub(super) async fn version(&mut self) -> Result<String, CriError> {
        const CALL: &str = "Version";
        let answer =
            self.call::<_, VersionResponse>(CALL, "/runtime.v1.RuntimeService/Version", VersionRequest {});
        let answer = answer.await?.map_err(|status| refused(CALL, &status))?;
        Ok(format!("{} {}", answer.runtime_name, answer.runtime_version))
    }

    /// The driver of control groups; `None` from a runtime that is too old to say it.
    ///
    /// # Errors
    /// [`CriError`]
    pub(super) async fn cgroup_driver(&mut self) -> Result<Option<CgroupDriver>, CriError> {
        const CALL: &str = "RuntimeConfig";
        let path = "/runtime.v1.RuntimeService/RuntimeConfig";
        match self.call::<_, RuntimeConfigResponse>(CALL, path, RuntimeConfigRequest {}).await? {
            Ok(answer) => Ok(answer.linux.map(|linux| match linux.cgroup_driver {
                0 => CgroupDriver::Systemd,
                _ => CgroupDriver::Cgroupfs,
            })),
            Err(status) if status.code() == Code::Unimplemented => Ok(None),
            Err(status) => Err(refused(CALL, &status)),
        }
    }

    /// Stops and removes all pods, and returns their number.
    ///
    /// # Errors
    /// [`CriError`]
    pub(super) async fn remove_pods(&mut self) -> Result<usize, CriError> {
        const CALL: &str = "ListPodSandbox";
        let path = "/runtime.v1.RuntimeService/ListPodSandbox";
        let answer = self.call::<_, ListPodSandboxResponse>(CALL, path, ListPodSandboxRequest {}).await?;
        let pods = answer.map_err(|status| refused(CALL, &status))?.items;
        for pod in &pods {
            for (call, path) in [
                ("StopPodSandbox", "/runtime.v1.RuntimeService/StopPodSandbox"),
                ("RemovePodSandbox", "/runtime.v1.RuntimeService/RemovePodSandbox"),
            ] {
                let request = PodSandboxRequest { pod_sandbox_id: pod.id.clone() };
                let answer = self.call::<_, Nothing>(call, path, request).await?;
                answer.map_err(|status| refused(call, &status))?;
            }
        }
        Ok(pods.len())
    }

    async fn call<Q, A>(
        &mut self,
        call: &'static str,
        path: &'static str,
        request: Q,
    ) -> Result<Result<A, Status>, CriError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let exchange = async {
            self.0.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let path = PathAndQuery::from_static(path);
            let answer = self.0.unary(Request::new(request), path, ProstCodec::<Q, A>::default()).await?;
            Ok(answer.into_inner())
        };
        timeout(ANSWER_MAX, exchange).await.map_err(|_| CriError::Timeout { call })
    }
}

fn refused(call: &'static str, status: &Status) -> CriError {
    CriError::Refused { call, message: status.message().to_owned() }
}
