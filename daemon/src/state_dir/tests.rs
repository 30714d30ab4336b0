//! Tests of permissions, and of files after a crash.

use tempfile::TempDir;

use super::*;

/// Any file whose loss matters.
const KEY: StateFile = StateFile::AuditChainKey;

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

    state.write(KEY, b"old").unwrap();
    state.write(KEY, b"new").unwrap();

    assert_eq!(read(&state, 16), Some(b"new".to_vec()));
    assert_eq!(mode(&state.path_of(KEY)), 0o600);
    assert_eq!(names(&path), [KEY.name()]);
}

#[test]
fn a_reader_never_sees_a_mixture_or_a_gap() {
    let (_home, path) = fresh("state");
    let state = StateDir::open(&path).unwrap();
    let (old, new) = (vec![b'a'; 64 * 1024], vec![b'b'; 64 * 1024]);
    state.write(KEY, &old).unwrap();

    std::thread::scope(|threads| {
        let writer = threads.spawn(|| {
            for round in 0..50 {
                state.write(KEY, if round % 2 == 0 { &new } else { &old }).unwrap();
            }
        });
        while !writer.is_finished() {
            let read = read(&state, 1 << 20).expect("the file is always there");
            assert!(read == old || read == new);
        }
    });
}

#[test]
fn a_temporary_file_of_an_earlier_crash_does_no_harm() {
    let (_home, path) = fresh("state");
    let state = StateDir::open(&path).unwrap();
    state.write(KEY, b"whole").unwrap();
    let temporary = path.join(format!(".{}.new", KEY.name()));
    fs::write(&temporary, b"ha").unwrap();
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o644)).unwrap();

    assert_eq!(read(&state, 16), Some(b"whole".to_vec()));

    state.write(KEY, b"newer").unwrap();
    assert_eq!(mode(&state.path_of(KEY)), 0o600, "the leftover's mode is not inherited");
    assert_eq!(names(&path), [KEY.name()]);
}

#[test]
fn a_write_that_fails_leaves_the_old_file() {
    let (_home, path) = fresh("state");
    let state = StateDir::open(&path).unwrap();
    state.write(KEY, b"old").unwrap();
    // A directory cannot be removed as a file, so the temporary file cannot be made.
    fs::create_dir(path.join(format!(".{}.new", KEY.name()))).unwrap();

    let error = state.write(KEY, b"new").unwrap_err().to_string();

    let shown = state.path_of(KEY);
    assert_eq!(error, format!("cannot write {}, and without it {}", shown.display(), KEY.cost()));
    assert_eq!(read(&state, 16), Some(b"old".to_vec()));
}

#[test]
fn reading_is_bounded_and_absence_is_no_error() {
    let (_home, path) = fresh("state");
    let state = StateDir::open(&path).unwrap();
    state.write(KEY, b"0123456789").unwrap();

    assert!(read(&state, 10).is_some());
    let refused = state.read(KEY, 9, any).unwrap_err();
    assert!(matches!(refused, StateError::Damaged { file: KEY, .. }), "{refused}");
    assert!(state.read(StateFile::Identity, 10, any).unwrap().is_none());
}

/// The daemon stops, and an operator reads which file it is, and whether it may be moved away.
#[test]
fn errors_about_a_state_file_have_its_path_its_cost_and_a_remedy() {
    let (_home, path) = fresh("state");
    let state = StateDir::open(&path).unwrap();
    for &file in StateFile::ALL {
        for content in [&b""[..], b"x", b"too large to be read at all"] {
            state.write(file, content).unwrap();

            let error = state.read(file, 8, digits).unwrap_err().to_string();

            for part in [&*state.path_of(file).display().to_string(), file.cost(), file.remedy()] {
                assert!(error.contains(part), "{error}");
            }
            assert_eq!(fs::read(state.path_of(file)).unwrap(), content, "it is left as it was");
        }
        fs::remove_file(state.path_of(file)).unwrap();
        fs::create_dir(state.path_of(file)).unwrap();
        let error = state.read(file, 8, digits).unwrap_err().to_string();
        assert!(error.starts_with("cannot read ") && error.contains(file.cost()), "{error}");
    }
}

#[test]
fn a_damaged_file_that_costs_little_is_kept_beside_and_made_anew() {
    let (_home, path) = fresh("state");
    let state = StateDir::open(&path).unwrap();
    let file = StateFile::EndpointKeys;
    for damaged in [&b""[..], b"x", b"too large to be read at all"] {
        state.write(file, damaged).unwrap();

        assert_eq!(state.read_or_replace(file, 8, digits).unwrap(), None);
        assert_eq!(fs::read(path.join("endpoint.keys.bad")).unwrap(), damaged);

        state.write(file, b"0123").unwrap();
        assert_eq!(state.read_or_replace(file, 8, digits).unwrap(), Some(b"0123".to_vec()));
    }
}

#[test]
fn a_locked_directory_is_refused_until_its_lock_is_dropped() {
    let (_home, path) = fresh("state");
    let (first, second) = (StateDir::open(&path).unwrap(), StateDir::open(&path).unwrap());

    let lock = first.lock().unwrap();
    assert!(matches!(second.lock(), Err(StateError::InUse(_))));

    drop(lock);
    assert!(second.lock().is_ok());
}

#[derive(Debug, thiserror::Error)]
#[error("not digits")]
struct NotDigits;

/// Accepts digits and nothing else, at least one of them.
fn digits(bytes: &[u8]) -> Result<Vec<u8>, NotDigits> {
    let is_good = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    if is_good { Ok(bytes.to_vec()) } else { Err(NotDigits) }
}

fn any(bytes: &[u8]) -> Result<Vec<u8>, NotDigits> {
    Ok(bytes.to_vec())
}

fn read(state: &StateDir, bytes_max: u64) -> Option<Vec<u8>> {
    state.read(KEY, bytes_max, any).unwrap()
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
