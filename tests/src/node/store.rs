//! Images that several nodes share: imported once, and linked into each node's containerd.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::namespaces::{NodeNamespaces, SET_UP};
use super::settings::PODS;
use super::{Image, NodeError, assets, import, import_pause, start_containerd};
use crate::network::NetworkNamespace;
use crate::process::{Invocation, run};
use crate::scratch::Scratch;

/// The folder of containerd's files in the folder of a node.
const CONTAINERD: &str = "lib/containerd";
/// The limit for the links of one node.
const LINK_MAX: Duration = Duration::from_secs(60);

/// The files of a containerd that has imported images and runs no more.
#[derive(Debug)]
#[must_use = "the files are removed when this is dropped; nodes keep their links"]
pub struct ImageStore {
    scratch: Scratch,
}

impl ImageStore {
    /// Imports these images and that of every pod's sandbox. containerd runs in this network for so long.
    ///
    /// # Errors
    /// [`NodeError`].
    pub async fn import(network: &NetworkNamespace, images: &[Image<'_>]) -> Result<Self, NodeError> {
        let assets = assets()?;
        let scratch = Scratch::new("tombolo-images-")?;
        let folder = scratch.path();
        let enclosure = NodeNamespaces::new(network, folder, SET_UP, vec!["images".to_owned()]).await?;
        let containerd = start_containerd(&enclosure, &assets, folder, PODS).await?;
        import_pause(&enclosure, &assets, folder).await?;
        for image in images {
            import(&enclosure, &assets, folder, image).await?;
        }
        // Its databases are whole without its help: each import has ended with a transaction on disk.
        drop(containerd);
        drop(enclosure);
        Ok(Self { scratch })
    }

    /// Gives a new node all images. Layers are the same files for all nodes, because nobody writes to a layer. A
    /// database is a file of the node's own.
    pub(super) async fn link_into(&self, node: &Path) -> Result<(), NodeError> {
        let (from, to) = (self.scratch.path().join(CONTAINERD), node.join(CONTAINERD));
        fs::create_dir(node.join("lib"))?;
        let words = ["--archive", "--link", &from.display().to_string(), &to.display().to_string()];
        let output = run(&Invocation::of("cp").arguments(words), LINK_MAX).await?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(NodeError::Refused { program: "cp", message });
        }
        Ok(own_databases(&to)?)
    }
}

/// Replaces the links to databases by copies: they are the files `*.db` of containerd's plugins.
fn own_databases(containerd: &Path) -> io::Result<()> {
    for plugin in fs::read_dir(containerd)? {
        let plugin = plugin?.path();
        if !plugin.is_dir() {
            continue;
        }
        for entry in fs::read_dir(plugin)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "db") {
                let content = fs::read(&path)?;
                fs::remove_file(&path)?;
                fs::write(&path, content)?;
            }
        }
    }
    Ok(())
}
