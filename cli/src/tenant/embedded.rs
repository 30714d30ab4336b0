//! The charts that this program has in it.

use std::path::{Path, PathBuf};

use crate::files::{self, Existing, NewFile, WriteError};

/// A chart with all of its files, by their paths.
#[derive(Debug)]
pub(super) struct EmbeddedChart {
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
}

/// The files of a chart of this source tree.
macro_rules! chart {
    ($name:literal, [$($path:literal),+ $(,)?]) => {
        EmbeddedChart {
            name: $name,
            files: &[$(($path, include_str!(concat!("../../../deploy/charts/", $name, "/", $path)))),+],
        }
    };
}

/// The control plane of a tenant.
pub(super) const CONTROL_PLANE: EmbeddedChart = chart!(
    "tenant-control-plane",
    [
        "Chart.yaml",
        "values.yaml",
        "values.schema.json",
        "templates/NOTES.txt",
        "templates/_helpers.tpl",
        "templates/apiserver.yaml",
        "templates/controllers.yaml",
        "templates/etcd.yaml",
    ]
);

/// The agents of a cluster.
pub(super) const AGENT: EmbeddedChart = chart!(
    "tombolo-agent",
    [
        "Chart.yaml",
        "values.yaml",
        "values.schema.json",
        "files/alerts.yaml",
        "templates/NOTES.txt",
        "templates/_helpers.tpl",
        "templates/caller-roles.yaml",
        "templates/config.yaml",
        "templates/disruption-budget.yaml",
        "templates/monitoring.yaml",
        "templates/namespace.yaml",
        "templates/network-policy.yaml",
        "templates/rbac.yaml",
        "templates/secret.yaml",
        "templates/workload.yaml",
        "templates/tests/doctor.yaml",
    ]
);

impl EmbeddedChart {
    /// Writes the chart into a folder, and returns its own folder there.
    ///
    /// # Errors
    /// [`WriteError`]
    pub(super) fn write(&self, folder: &Path) -> Result<PathBuf, WriteError> {
        let chart = folder.join(self.name);
        let mut all = Vec::new();
        for (path, text) in self.files {
            let file = chart.join(path);
            if let Some(parent) = file.parent() {
                files::create_directory(parent)?;
            }
            all.push(NewFile::public(file, *text));
        }
        files::write_all(all, Existing::Replace)?;
        Ok(chart)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;

    #[test]
    fn the_program_has_every_file_of_the_charts() {
        for chart in [CONTROL_PLANE, AGENT] {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/charts").join(chart.name);
            let mut found = BTreeSet::new();
            walk(&source, &source, &mut found);
            assert_eq!(
                chart.files.iter().map(|(path, _)| (*path).to_owned()).collect::<BTreeSet<_>>(),
                found
            );

            let folder = tempfile::tempdir().unwrap();
            let written = chart.write(folder.path()).unwrap();
            for (path, text) in chart.files {
                assert_eq!(fs::read_to_string(written.join(path)).unwrap(), *text, "{path}");
            }
        }
    }

    fn walk(root: &Path, folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                walk(root, &entry.path(), found);
            } else {
                found.insert(entry.path().strip_prefix(root).unwrap().display().to_string());
            }
        }
    }
}
