//! Folders and files that are taken, and those that are not.

use super::*;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn folder_and_socket_are_made_for_their_owner_alone_and_the_socket_goes_with_its_server() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("a/b/admin.sock");

    let socket = AdminSocket::bind(&path).await.unwrap();

    assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o700, 0o600));
    drop(socket);
    assert!(!path.exists());
}

#[test]
fn a_folder_is_taken_only_if_nobody_else_can_enter_it() {
    let judge = |is_folder, uid, mode| judge_folder(Path::new("/run/x"), is_folder, uid, mode, 1000);
    assert!(judge(true, 1000, 0o40_700).is_ok());
    assert!(judge(true, 1000, 0o40_500).is_ok());
    for open in [0o701, 0o710, 0o770, 0o755, 0o1777] {
        assert!(matches!(judge(true, 1000, open), Err(SocketError::Open { .. })), "{open:o}");
    }
    // Root's folder would do, but whoever made it so may not have meant us.
    for uid in [0, 1001] {
        assert!(matches!(judge(true, uid, 0o700), Err(SocketError::Foreign { .. })), "{uid}");
    }
    assert!(matches!(judge(false, 1000, 0o700), Err(SocketError::NotAFolder(_))));
}

#[tokio::test]
async fn a_folder_that_others_may_enter_is_refused_and_left_as_it_is() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("open");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();

    let refused = AdminSocket::bind(&folder.join("admin.sock")).await.err().unwrap();

    assert!(refused.to_string().contains("chmod 700"), "{refused}");
    assert_eq!(mode(&folder), 0o755);
}

#[tokio::test]
async fn a_dead_servers_socket_is_replaced_and_a_live_ones_is_not() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("s/admin.sock");
    let dead = AdminSocket::bind(&path).await.unwrap();
    // As if killed: the file stays, nobody listens.
    let AdminSocket { listener, file, .. } = dead;
    drop(listener);

    let live = AdminSocket::bind(&path).await.unwrap();
    // The dead one's last act must not take its successor's file.
    drop(file);
    let second = AdminSocket::bind(&path).await.err().unwrap();

    assert!(matches!(second, SocketError::Live(_)), "{second}");
    assert!(UnixStream::connect(live.path()).await.is_ok());
}

#[tokio::test]
async fn what_is_no_socket_is_never_replaced() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("s/admin.sock");
    make_folder(path.parent().unwrap()).unwrap();
    fs::write(&path, "precious").unwrap();

    let refused = AdminSocket::bind(&path).await.err().unwrap();

    assert!(matches!(refused, SocketError::NotASocket(_)), "{refused}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn a_path_has_the_kernels_limit() {
    let scratch = tempfile::tempdir().unwrap();
    let room = PATH_BYTES_MAX - scratch.path().as_os_str().len() - "/s/".len();
    let longest = scratch.path().join("s").join("x".repeat(room));
    assert!(AdminSocket::bind(&longest).await.is_ok());

    let longer = scratch.path().join("s").join("x".repeat(room + 1));
    assert!(matches!(AdminSocket::bind(&longer).await.err().unwrap(), SocketError::TooLong(_)));
}
