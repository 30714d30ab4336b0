//! The images of a control plane, written from the programs that the tests run anyway, under the names of the real ones.

use std::path::Path;

use super::SiteNetwork;
use crate::kube::assets::{Assets, NodeAssets, pinned_etcd, pinned_kubernetes};
use crate::node::{Image, ImageStore, NodeError};

/// The program and the repository of etcd.
const ETCD: &str = "etcd";

/// The name of a program's image, such as `registry.k8s.io/kube-apiserver:v1.36.3`.
fn image(program: &str) -> String {
    match program {
        ETCD => format!("registry.k8s.io/{ETCD}:{}-0", pinned_etcd().trim_start_matches('v')),
        kubernetes => format!("registry.k8s.io/{kubernetes}:{}", pinned_kubernetes()),
    }
}

/// All images of a control plane, beside that of every pod's sandbox.
pub(super) async fn store(
    network: &SiteNetwork,
    node: &NodeAssets,
    assets: &Assets,
) -> Result<ImageStore, NodeError> {
    let programs: [(&str, &Path); 4] = [
        (ETCD, &assets.etcd),
        ("kube-apiserver", &assets.apiserver),
        ("kube-controller-manager", &node.controller_manager),
        ("kube-scheduler", &node.scheduler),
    ];
    let names = programs.map(|(program, _)| image(program));
    let paths = programs.map(|(program, _)| format!("bin/{program}"));
    let contents: Vec<[(&Path, &str); 1]> =
        programs.iter().zip(&paths).map(|((_, file), path)| [(*file, path.as_str())]).collect();
    let entrypoints = programs.map(|(program, _)| [program]);
    let images: Vec<Image<'_>> = (0..programs.len())
        .map(|at| Image {
            name: &names[at],
            programs: &contents[at],
            entrypoint: &entrypoints[at],
            ..Image::default()
        })
        .collect();
    ImageStore::import(network.core(), &images).await
}
