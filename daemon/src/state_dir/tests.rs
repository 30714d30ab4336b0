//! Tests of permissions, and of files after a crash.

use tempfile::TempDir;

use super::*;

#[test]
fn a_new_directory_is_closed_to_others_and_its_parents_are_not() {
    let (home, path) = fresh("tombolo/server");

    StateDir::open(&path).unwrap();

    assert_eq!(mode(&path), 0o700);
    assert_ne!(mode(&home.path().join("tombolo")), 0o700);
}

#[test]
fn a_directory_open_to_others_is_refused_with_the_remedy() {
    let (_home, path) = fresh("state");
    fs::create_dir(&path).unwrap();
    for open in [0o710, 0o701, 0o755] {
        fs::set_permissions(&path, fs::Permissions::from_mode(open)).unwrap();

        let error = StateDir::open(&path).unwrap_err();

        let shown = path.display();
        let text = format!("others may enter {shown} (mode {open:03o}), run: chmod 700 {shown}");
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn a_file_instead_of_the_directory_is_refused() {
    let (_home, path) = fresh("state");
    fs::write(&path, "").unwrap();

    assert!(matches!(StateDir::open(&path), Err(StateError::NotADirectory(_))));
}

#[test]
fn a_written_file_is_private_and_leaves_no_temporary_file() {
    let (_home, path) = fresh("state");
    let state = StateDir::open(&path).unwrap();

    state.write("reset.key", b"old").unwrap();
    state.write("reset.key", b"new").unwrap();

    assert_eq!(state.read("reset.key", 16).unwrap().as_deref(), Some(b"new".as_slice()));
    assert_eq!(mode(&path.join("reset.key")), 0o600);
    assert_eq!(names(&path), ["reset.key"]);
}

#[test]
fn a_reader_never_sees_a_mixture_or_a_gap() {
    let (_home, path) = fresh("state");
    let state = StateDir::open(&path).unwrap();
    let (old, new) = (vec![b'a'; 64 * 1024], vec![b'b'; 64 * 1024]);
    state.write("key", &old).unwrap();

    std::thread::scope(|threads| {
        let writer = threads.spawn(|| {
            for round in 0..50 {
                state.write("key", if round % 2 == 0 { &new } else { &old }).unwrap();
            }
        });
        while !writer.is_finished() {
            let read = state.read("key", 1 << 20).unwrap().expect("the file is always there");
            assert!(read == old || read == new);
        }
    });
}

#[test]
fn a_temporary_file_of_an_earlier_crash_does_no_harm() {
    let (_home, path) = fresh("state");
    let state = StateDir::open(&path).unwrap();
    state.write("key", b"whole").unwrap();
    fs::write(path.join(".key.new"), b"ha").unwrap();
    fs::set_permissions(path.join(".key.new"), fs::Permissions::from_mode(0o644)).unwrap();

    assert_eq!(state.read("key", 16).unwrap().as_deref(), Some(b"whole".as_slice()));

    state.write("key", b"newer").unwrap();
    assert_eq!(mode(&path.join("key")), 0o600, "the leftover's mode is not inherited");
    assert_eq!(names(&path), ["key"]);
}

#[test]
fn a_write_that_fails_leaves_the_old_file() {
    let (_home, path) = fresh("state");
    let state = StateDir::open(&path).unwrap();
    state.write("key", b"old").unwrap();
    // A directory cannot be removed as a file, so the temporary file cannot be made.
    fs::create_dir(path.join(".key.new")).unwrap();

    let error = state.write("key", b"new").unwrap_err();

    assert_eq!(error.to_string(), format!("cannot write {}", path.join("key").display()));
    assert_eq!(state.read("key", 16).unwrap().as_deref(), Some(b"old".as_slice()));
}

#[test]
fn reading_is_bounded_and_absence_is_no_error() {
    let (_home, path) = fresh("state");
    let state = StateDir::open(&path).unwrap();
    state.write("key", b"0123456789").unwrap();

    assert!(state.read("key", 10).unwrap().is_some());
    assert!(matches!(state.read("key", 9), Err(StateError::TooLarge { bytes_max: 9, .. })));
    assert!(state.read("other", 10).unwrap().is_none());
}

#[test]
fn no_name_leads_out_of_the_directory() {
    let (_home, path) = fresh("state");
    let state = StateDir::open(&path).unwrap();

    for name in ["", ".", "..", "../key", "a/b", "/etc/passwd", ".key.new", "a\0b"] {
        assert!(matches!(state.write(name, b""), Err(StateError::NotAName(_))), "{name:?}");
        assert!(matches!(state.read(name, 1), Err(StateError::NotAName(_))), "{name:?}");
    }
}

fn fresh(name: &str) -> (TempDir, PathBuf) {
    let home = TempDir::new().unwrap();
    let path = home.path().join(name);
    (home, path)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn names(path: &Path) -> Vec<String> {
    fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}
