//! The images of a control plane, written from the programs that the tests run anyway, under the names of the real ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::SiteNetwork;
use crate::kube::assets::{Assets, NodeAssets, pinned_etcd, pinned_kubernetes};
use crate::node::{Image, ImageStore, NodeError};
use crate::process::{Invocation, run};
use crate::scratch::Scratch;

/// The limit for giving one program another name.
const RENAME_MAX: Duration = Duration::from_secs(60);

/// The program and the repository of etcd.
const ETCD: &str = "etcd";

/// The name of a program's image of a release of Kubernetes, such as `registry.k8s.io/kube-apiserver:v1.36.3`.
fn image(program: &str, release: &str) -> String {
    match program {
        ETCD => format!("registry.k8s.io/{ETCD}:{}-0", pinned_etcd().trim_start_matches('v')),
        kubernetes => format!("registry.k8s.io/{kubernetes}:{release}"),
    }
}

/// All images of a control plane, beside that of every pod's sandbox, and those of other releases.
pub(super) async fn store(
    network: &SiteNetwork,
    node: &NodeAssets,
    assets: &Assets,
    others: &[&str],
) -> Result<ImageStore, NodeError> {
    let of_kubernetes: [(&str, &Path); 3] = [
        ("kube-apiserver", &assets.apiserver),
        ("kube-controller-manager", &node.controller_manager),
        ("kube-scheduler", &node.scheduler),
    ];
    let scratch = Scratch::new("tombolo-releases-")?;
    let mut programs: Vec<(&str, &str, PathBuf)> = vec![(ETCD, pinned_kubernetes(), assets.etcd.clone())];
    for (program, file) in of_kubernetes {
        programs.push((program, pinned_kubernetes(), file.to_owned()));
        for other in others {
            let copy = scratch.path().join(format!("{program}-{other}"));
            fs::copy(file, &copy)?;
            name_release(&copy, other).await?;
            programs.push((program, other, copy));
        }
    }
    let names: Vec<String> = programs.iter().map(|(program, release, _)| image(program, release)).collect();
    let paths: Vec<String> = programs.iter().map(|(program, ..)| format!("bin/{program}")).collect();
    let contents: Vec<[(&Path, &str); 1]> =
        programs.iter().zip(&paths).map(|((_, _, file), path)| [(file.as_path(), path.as_str())]).collect();
    let entrypoints: Vec<[&str; 1]> = programs.iter().map(|(program, ..)| [*program]).collect();
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

/// Gives a program the name of another release in place of its own.
async fn name_release(program: &Path, release: &str) -> Result<(), NodeError> {
    let own = pinned_kubernetes();
    assert_eq!(own.len(), release.len(), "the name of a release takes the place of {own}");
    let change = format!("s/{}/{release}/g", own.replace('.', "\\."));
    let words = ["-i".to_owned(), change, program.display().to_string()];
    let sed = Invocation::of("sed").arguments(words).variable("LC_ALL", "C");
    let output = run(&sed, RENAME_MAX).await?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(NodeError::Refused { program: "sed", message });
    }
    Ok(())
}
