//! Images of containers, written from static programs without an engine or a registry.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::json;

use super::tar::Archive;
use crate::process::{Invocation, ProcessError, run};

/// The limit for one question about the libraries of a program.
const LDD_MAX: Duration = Duration::from_secs(10);

/// The content of an image: one layer, and the program that runs.
#[derive(Debug, Clone, Default)]
pub struct Image<'a> {
    /// Its name with its tag, such as `tombolo.test/pause:1`; pods name it so, with `imagePullPolicy: Never`.
    pub name: &'a str,
    /// Programs of this machine and where they are in the image, without the first slash.
    pub programs: &'a [(&'a Path, &'a str)],
    /// Symbolic links and their targets.
    pub links: &'a [(&'a str, &'a str)],
    /// The command line that the container runs.
    pub entrypoint: &'a [&'a str],
    /// The user that runs it, for example `65532:65532`; empty is root.
    pub user: &'a str,
}

impl Image<'_> {
    /// Writes it as an archive that `docker load` and `ctr images import` read.
    pub(super) fn write(&self, archive: &Path) -> io::Result<()> {
        let layer = self.layer()?;
        let config = json!({
            "architecture": architecture(), "os": "linux",
            "config": { "Entrypoint": self.entrypoint, "User": self.user, "Env": ["PATH=/bin"] },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", sha256(&layer))] },
        })
        .to_string();
        let name = format!("{}.json", sha256(config.as_bytes()));
        let manifest = json!([{ "Config": name, "RepoTags": [self.name], "Layers": ["layer.tar"] }]);
        let complete = Archive::default()
            .file(&name, 0o644, config.as_bytes())
            .file("layer.tar", 0o644, &layer)
            .file("manifest.json", 0o644, manifest.to_string().as_bytes());
        fs::write(archive, complete.finish())
    }

    fn layer(&self) -> io::Result<Vec<u8>> {
        // Where a shell may write; whose pods have a read-only root mount something there.
        let mut layer = Archive::default().folder("bin/", 0o755).folder("tmp/", 0o1777);
        for (program, path) in self.programs {
            layer = layer.file(path, 0o755, &fs::read(program)?);
        }
        Ok(self.links.iter().fold(layer, |layer, (path, target)| layer.link(path, target)).finish())
    }
}

/// The name of this machine's processor in Go, and so in every image.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The shared libraries of a program on this machine, and their loader.
///
/// # Errors
/// `ldd` cannot be run.
pub async fn libraries_of(program: &Path) -> Result<Vec<PathBuf>, ProcessError> {
    let ldd = Invocation::of("ldd").arguments([program.display().to_string()]);
    let listed = String::from_utf8_lossy(&run(&ldd, LDD_MAX).await?.stdout).into_owned();
    Ok(listed.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect())
}

/// The content of an image: a program at its place, and libraries at the places that they have on this machine.
pub fn with_libraries<'a>(
    program: (&'a Path, &'a str),
    libraries: &'a [PathBuf],
) -> Vec<(&'a Path, &'a str)> {
    let places =
        libraries.iter().filter_map(|path| Some((path.as_path(), path.to_str()?.trim_start_matches('/'))));
    std::iter::once(program).chain(places).collect()
}

/// SHA-256 in hexadecimal digits, as images and `sha256sum` write it.
pub fn sha256(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
