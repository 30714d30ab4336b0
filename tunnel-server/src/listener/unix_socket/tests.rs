//! Tests of folders and files that are accepted, and of those that are refused.

use super::*;

async fn bind(path: &Path) -> Result<LocalSocket, SocketError> {
    LocalSocket::bind("admin.socket", path, SocketAccess::Owner).await
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn folder_and_socket_are_private_and_the_socket_is_removed() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("a/b/admin.sock");

    let socket = bind(&path).await.unwrap();

    assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o700, 0o600));
    drop(socket);
    assert!(!path.exists());
}

#[test]
fn a_folder_is_accepted_only_if_nobody_else_can_enter_it() {
    let check = |is_folder, uid, mode| {
        check_folder(Path::new("/run/x"), SocketAccess::Owner, is_folder, uid, mode, 1000)
    };
    assert!(check(true, 1000, 0o40_700).is_ok());
    assert!(check(true, 1000, 0o40_500).is_ok());
    for open in [0o701, 0o710, 0o770, 0o755, 0o1777] {
        assert!(matches!(check(true, 1000, open), Err(SocketFault::Open { .. })), "{open:o}");
    }
    // A folder of root would be safe too, but it may not have been made for this server.
    for uid in [0, 1001] {
        assert!(matches!(check(true, uid, 0o700), Err(SocketFault::Foreign { .. })), "{uid}");
    }
    assert!(matches!(check(false, 1000, 0o700), Err(SocketFault::NotAFolder(_))));
}

#[tokio::test]
async fn a_folder_that_others_may_enter_is_refused_and_unchanged() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("open");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();

    let refused = bind(&folder.join("admin.sock")).await.err().unwrap();

    assert!(refused.to_string().contains("chmod 700"), "{refused}");
    assert_eq!(mode(&folder), 0o755);
}

#[tokio::test]
async fn a_dead_servers_socket_is_replaced_and_a_live_ones_is_not() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("s/admin.sock");
    let dead = bind(&path).await.unwrap();
    // As if the server was killed: the file stays, and nothing listens.
    let LocalSocket { listener, file, .. } = dead;
    drop(listener);

    let live = bind(&path).await.unwrap();
    // The old guard must not remove its successor's file.
    drop(file);
    let second = bind(&path).await.err().unwrap();

    assert!(matches!(second.fault, SocketFault::Live(_)), "{second}");
    assert!(UnixStream::connect(live.path()).await.is_ok());
}

#[tokio::test]
async fn a_file_that_is_not_a_socket_is_never_replaced() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("s/admin.sock");
    make_folder(path.parent().unwrap(), SocketAccess::Owner).unwrap();
    fs::write(&path, "precious").unwrap();

    let refused = bind(&path).await.err().unwrap();

    assert!(matches!(refused.fault, SocketFault::NotASocket(_)), "{refused}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn a_path_has_the_kernels_limit() {
    let scratch = tempfile::tempdir().unwrap();
    let room = PATH_BYTES_MAX - scratch.path().as_os_str().len() - "/s/".len();
    let longest = scratch.path().join("s").join("x".repeat(room));
    assert!(bind(&longest).await.is_ok());

    let longer = scratch.path().join("s").join("x".repeat(room + 1));
    assert!(matches!(bind(&longer).await.err().unwrap().fault, SocketFault::TooLong(_)));
}

#[tokio::test]
async fn a_socket_for_others_is_in_a_folder_that_only_its_owner_can_change() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("s/egress.sock");
    let socket = LocalSocket::bind("egress.uds.path", &path, SocketAccess::Everybody).await.unwrap();
    assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o755, 0o666));
    drop(socket);

    for writable in [0o775, 0o757, 0o777] {
        fs::set_permissions(path.parent().unwrap(), Permissions::from_mode(writable)).unwrap();
        let refused =
            LocalSocket::bind("egress.uds.path", &path, SocketAccess::Everybody).await.err().unwrap();
        let message = refused.to_string();
        assert!(
            message.starts_with("egress.uds.path: ") && message.contains("chmod 755"),
            "{writable:o}: {message}"
        );
    }
}
