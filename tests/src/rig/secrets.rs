//! Finds a trial's secrets in logs and in the audit log, where they must never be.

use std::fs;
use std::path::{Path, PathBuf};

use super::{AGENT_TOKEN, TOKEN};

/// Lines of a PEM file that are shorter are its ends, or too little to be known again.
const KEY_LINE_CHARS: usize = 40;

/// Sentences about every place under a trial's folder that contains one of its secrets.
pub(super) fn leaked(folder: &Path) -> Vec<String> {
    let files = files(folder);
    let of = |extension: &'static str| files.iter().filter(move |path| has_extension(path, extension));
    let secrets: Vec<(String, String)> = [TOKEN, AGENT_TOKEN]
        .map(|token| (format!("the token {token}"), token.to_owned()))
        .into_iter()
        .chain(of("key").flat_map(|path| key_lines(path)))
        .chain(of("token").flat_map(|path| complete(path)))
        .chain(of("kubeconfig").flat_map(|path| credentials(path)))
        .collect();
    let logs = files.iter().filter(|path| has_extension(path, "log") || is_audit(path));
    logs.flat_map(|path| {
        let text = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        let found = secrets.iter().filter(move |(_, secret)| text.contains(secret.as_str()));
        found.map(|(name, _)| format!("{name} stands in {}", path.display()))
    })
    .collect()
}

/// The parts of a private key by which it is recognized.
fn key_lines(path: &Path) -> Vec<(String, String)> {
    let pem = fs::read_to_string(path).unwrap_or_default();
    let lines = pem.lines().filter(|line| line.len() >= KEY_LINE_CHARS && !line.starts_with('-'));
    lines.map(|line| (format!("the key {}", path.display()), line.to_owned())).collect()
}

/// A file that contains only a secret, such as a pod's token.
fn complete(path: &Path) -> Option<(String, String)> {
    let secret = fs::read_to_string(path).ok()?.trim().to_owned();
    (secret.len() >= KEY_LINE_CHARS).then(|| (format!("the token in {}", path.display()), secret))
}

/// The tokens and keys of a kubeconfig.
fn credentials(path: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = |line: &str| {
        let (key, value) = line.trim().split_once(": ")?;
        matches!(key, "token" | "client-key-data").then(|| value.trim_matches('"').to_owned())
    };
    let values = text.lines().filter_map(value);
    values.map(|value| (format!("a credential of {}", path.display()), value)).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        // A folder may be gone by now: programs still run.
        for path in fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found
}

fn has_extension(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|extension| extension == wanted)
}

/// Returns true if the path is one of the audit log's files, but not its key.
fn is_audit(path: &Path) -> bool {
    path.parent().and_then(Path::file_name).is_some_and(|folder| folder == "audit")
        && !has_extension(path, "key")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    /// Tokens count in logs, and a single line of a key counts in the audit log.
    #[test]
    fn only_planted_secrets_are_found_in_logs_and_in_the_audit_log() {
        let scratch = Scratch::new("tombolo-secrets-").unwrap();
        let line = "MC4CAQAwBQYDK2VwBCIEIJ0s3Q2Xn5nY8n1kqk0lX9Y1";
        let folder = scratch.path();
        fs::create_dir_all(folder.join("state/audit")).unwrap();
        fs::write(folder.join("tokens.csv"), TOKEN).unwrap();
        fs::write(folder.join("ca.key"), format!("-----BEGIN PRIVATE KEY-----\n{line}\n")).unwrap();
        fs::write(
            folder.join("edge.kubeconfig"),
            "users:\n- name: edge\n  user:\n    token: \"sesame-sesame\"\n",
        )
        .unwrap();
        fs::write(folder.join("server.log"), "quiet\n").unwrap();
        fs::write(folder.join("state/audit/audit.log"), "{}\n").unwrap();
        assert_eq!(leaked(folder), Vec::<String>::new());

        fs::write(folder.join("server.log"), format!("authorization: Bearer {TOKEN}\n")).unwrap();
        fs::write(folder.join("state/audit/audit.log"), format!("{{\"{line}\"}}\n")).unwrap();
        fs::write(folder.join("agent.log"), "401 for sesame-sesame\n").unwrap();
        assert_eq!(leaked(folder).len(), 3, "{:?}", leaked(folder));
    }
}
