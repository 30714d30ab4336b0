//! Checks of a daemon on this machine: folders that it alone may enter, and its readiness.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::check::Check;
use super::report::Report;

/// Longest wait for the readiness probe.
const READYZ_MAX: Duration = Duration::from_secs(5);

/// Longest response of the readiness probe that is read.
const READYZ_BYTES_MAX: u64 = 16 * 1024;

/// Checks a folder that only the user of the daemon `whose` may enter: the daemon starts with no other one. `key` is its configuration
/// key.
pub(super) fn folder(report: &mut Report, check: Check, path: &Path, key: &str, whose: &str) {
    let shown = path.display();
    match fs::metadata(path) {
        Ok(found) if !found.is_dir() => {
            report.fail(check, format!("{shown} is not a directory"), format!("name another one as {key}"));
        }
        Ok(found) if found.permissions().mode() & 0o077 != 0 => {
            let mode = found.permissions().mode() & 0o777;
            let problem = format!("others may enter {shown} (mode {mode:03o}), and {whose} refuses that");
            report.fail(check, problem, format!("run: chmod 700 {shown}"));
        }
        Ok(_) => report.ok(check, format!("only its owner may enter {shown}")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            report.ok(check, format!("{shown} does not exist yet; {whose} creates it"));
        }
        Err(error) => report.fail(
            check,
            format!("{shown}: {error}"),
            format!("run this as root or as the user of {whose}"),
        ),
    }
}

/// Asks the readiness probe of the daemon `whose` on this machine.
pub(super) async fn readiness(report: &mut Report, probes: SocketAddr, whose: &str) {
    const CHECK: Check = Check::Readiness;
    let reached = match probes.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::from((Ipv4Addr::LOCALHOST, probes.port())),
        IpAddr::V4(_) | IpAddr::V6(_) => probes,
    };
    let request = async {
        let mut stream = TcpStream::connect(reached).await?;
        stream.write_all(format!("GET /readyz HTTP/1.0\r\nHost: {reached}\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.take(READYZ_BYTES_MAX).read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    match timeout(READYZ_MAX, request).await {
        Ok(Ok(answer)) if answer.split(' ').nth(1) == Some("200") => {
            report.ok(CHECK, format!("{whose} is ready"))
        }
        Ok(Ok(answer)) => {
            let missing: Vec<&str> = answer.lines().filter(|line| line.starts_with("[-]")).collect();
            report.fail(CHECK, format!("{whose} is not ready: {}", missing.join(", ")), "see its log");
        }
        Ok(Err(error)) => {
            report.fail(
                CHECK,
                format!("no answer at {reached} ({error})"),
                format!("see whether {whose} runs, and its log"),
            );
        }
        Err(_) => report.fail(
            CHECK,
            format!("no answer at {reached} in time"),
            format!("see whether {whose} runs, and its log"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_others_may_enter_fails_with_its_mode_and_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tombolo");
        let line = |mode| {
            let mut report = Report::default();
            if let Some(mode) = mode {
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
            folder(&mut report, Check::AdminSocket, &path, "the folder of admin.socket", "the server");
            (report.exit_code(), report.lines().remove(0))
        };

        assert!(matches!(line(None), (0, text) if text.contains("does not exist yet")));
        fs::create_dir(&path).unwrap();
        for mode in [0o777, 0o710, 0o701] {
            let (code, text) = line(Some(mode));
            assert_eq!(code, 1, "{text}");
            assert!(text.contains(&format!("(mode {mode:o})")) && text.contains("chmod 700"), "{text}");
        }
        assert!(matches!(line(Some(0o700)), (0, text) if text.contains("only its owner")));
    }
}
