//! The configuration files of a node's daemons: containerd, the pods' network and kubelet.

use std::path::Path;

use serde_json::{Value, json};

/// The image of every pod's sandbox.
pub(super) const PAUSE_IMAGE: &str = "tombolo.test/pause:1";
/// containerd's socket, in the box.
pub(super) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
/// The addresses of pods, of every node the same whose cluster has only that one.
pub const PODS: &str = "10.244.0.0/24";

/// containerd 1.6, with local images and no registry.
///
/// `restrict_oom_score_adj`: without CAP_SYS_RESOURCE no container starts otherwise.
pub(super) fn containerd(debian: &Path, network: &Path) -> String {
    let (plugins, network) = (debian.join("usr/lib/cni"), network.display());
    format!(
        "version = 2\nroot = \"/var/lib/containerd\"\nstate = \"/run/containerd\"\n\
         disabled_plugins = [\"io.containerd.snapshotter.v1.aufs\", \"io.containerd.snapshotter.v1.btrfs\", \
         \"io.containerd.snapshotter.v1.devmapper\", \"io.containerd.snapshotter.v1.zfs\", \
         \"io.containerd.tracing.processor.v1.otlp\"]\n\
         [grpc]\naddress = \"{CONTAINERD_SOCKET}\"\n\
         [plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"{PAUSE_IMAGE}\"\nrestrict_oom_score_adj = true\n\
         [plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"{}\"\nconf_dir = \"{network}\"\n",
        plugins.display(),
    )
}

/// A bridge for all pods, with addresses of this network; translation of addresses is the machine's (`machine::prepare`).
pub(super) fn network(pods: &str) -> Value {
    json!({
        "cniVersion": "0.4.0", "name": "pods", "plugins": [{
            "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
            "ipam": { "type": "host-local", "ranges": [[{ "subnet": pods }]], "routes": [{ "dst": "0.0.0.0/0" }] },
        }],
    })
}

/// kubelet, below a folder of control groups of its own, and never short of anything that it would evict pods
/// for. The CA of its callers and the socket of its runtime are to be added.
pub fn kubelet(cgroups: &str) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "failCgroupV1": false, "cgroupDriver": "cgroupfs", "cgroupRoot": format!("/{cgroups}"),
        "failSwapOn": false, "oomScoreAdj": 0, "imageGCHighThresholdPercent": 100,
        "evictionHard": { "memory.available": "1Mi", "nodefs.available": "0.1%", "imagefs.available": "0.1%" },
        "authentication": { "anonymous": { "enabled": false }, "webhook": { "enabled": true } },
        "authorization": { "mode": "Webhook" },
        // The trials wait for nothing that takes its time on purpose.
        "syncFrequency": "10s", "nodeStatusUpdateFrequency": "5s", "shutdownGracePeriod": "0s",
    })
}
