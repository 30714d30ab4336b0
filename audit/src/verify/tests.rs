//! Tests of verification: intact logs pass, and changed logs are refused.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::checkpoint::CHECKPOINTS_FILE;
use crate::event::{Completion, EndReason, Event, User};
use crate::files::{Files, Limits};
use crate::keys::SigningKey;
use crate::settings::{Settings, Sync, Target};
use crate::shared::{Entry, EntryKind, Shared};
use crate::writer::{Recovered, Writer};

/// Size of a file in these tests: a few lines.
const FILE_BYTES: u64 = 2_500;

#[test]
fn an_intact_log_is_verified_with_either_key_and_with_both() {
    let log = WrittenLog::new(20);
    let report = verify(&log.sources(), &log.both_keys()).unwrap();
    assert!(report.files >= 3 && report.checkpoints > report.files, "{report:?}");
    assert_eq!((report.first, report.covered_up_to, report.open), (1, report.last, 0));
    assert!(report.is_chain_verified);

    let chain = verify(&log.sources(), &VerifyKeys { public: None, ..log.both_keys() }).unwrap();
    assert!(!chain.is_signature_verified && chain.covered_up_to == chain.last);
    let public = verify(&log.sources(), &VerifyKeys { chain: None, ..log.both_keys() }).unwrap();
    assert!(!public.is_chain_verified && public.covered_up_to == report.last);
    assert!(matches!(verify(&log.sources(), &VerifyKeys::default()), Err(VerifyError::NoKey)));
}

#[test]
fn every_changed_byte_of_a_log_and_its_checkpoints_is_noticed() {
    let log = WrittenLog::new(3);
    let mut paths = log.sources().files;
    paths.push(log.directory.path().join(CHECKPOINTS_FILE));
    for path in paths {
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).unwrap();
            assert!(verify(&log.sources(), &log.both_keys()).is_err(), "{} byte {at}", path.display());
        }
        fs::write(&path, &whole).unwrap();
    }
    verify(&log.sources(), &log.both_keys()).unwrap();
}

#[test]
fn a_fault_names_its_file_its_line_and_its_kind() {
    let log = WrittenLog::new(20);
    let files = log.sources().files;
    log.edit(&files[1], |lines| drop(lines.remove(1)));

    let VerifyError::Fault(fault) = verify(&log.sources(), &log.both_keys()).unwrap_err() else {
        panic!("a fault")
    };

    assert_eq!((&fault.file, fault.line), (&files[1], Some(2)));
    assert!(fault.to_string().contains("line 2, has the number"), "{fault}");
}

#[test]
fn a_truncated_end_is_noticed_only_through_a_later_checkpoint() {
    let log = WrittenLog::new(20);
    let last = log.sources().files.pop().unwrap();
    log.edit(&last, |lines| drop(lines.pop()));

    let cut = verify(&log.sources(), &log.both_keys()).unwrap_err();
    assert!(matches!(&cut, VerifyError::Fault(Fault { kind: FaultKind::CutOff { .. }, .. })), "{cut}");

    // Without the later checkpoint the cut is invisible: checkpoints must be kept elsewhere.
    log.edit(&log.directory.path().join(CHECKPOINTS_FILE), |lines| drop(lines.pop()));
    verify(&log.sources(), &log.both_keys()).unwrap();
}

/// An attacker who can cut the log and does not have the signing key can only take the checkpoints away, too.
#[test]
fn the_chain_key_alone_notices_a_cut_end_by_checkpoints_beside() {
    let log = WrittenLog::new(20);
    let chain = VerifyKeys { public: None, ..log.both_keys() };
    let files = log.sources().files;
    let last = files.last().unwrap().clone();
    log.edit(&last, |lines| drop(lines.pop()));
    let is_cut_off = |paths: &[PathBuf], keys: &VerifyKeys| {
        let cut = verify(&Sources::from_paths(paths, None).unwrap(), keys).unwrap_err();
        assert!(matches!(&cut, VerifyError::Fault(Fault { kind: FaultKind::CutOff { .. }, .. })), "{cut}");
    };

    is_cut_off(&[log.directory.path().to_owned()], &chain);
    is_cut_off(&files, &chain);
    is_cut_off(std::slice::from_ref(&last), &VerifyKeys { chain: None, ..log.both_keys() });
    // All of the last file is taken away.
    fs::remove_file(&last).unwrap();
    let missing = verify(&log.sources(), &chain).unwrap_err();
    assert!(matches!(&missing, VerifyError::Fault(Fault { kind: FaultKind::Missing(_), .. })), "{missing}");
}

#[test]
fn some_files_of_an_intact_log_are_verified_with_their_checkpoints() {
    let log = WrittenLog::new(20);
    let files = log.sources().files;
    for some in [&files[..1], &files[..2], &files[..]] {
        let report = verify(&Sources::from_paths(some, None).unwrap(), &log.both_keys()).unwrap();
        assert!(report.checkpoints > 0 && report.is_chain_verified, "{report:?}");
    }
}

#[test]
fn files_of_another_server_are_refused() {
    let (log, other) = (WrittenLog::new(20), WrittenLog::new(20));
    verify(&log.sources(), &other.both_keys()).unwrap_err();
    let (own, foreign) = (log.sources().files, other.sources().files);
    fs::copy(&foreign[1], &own[1]).unwrap();
    verify(&log.sources(), &log.both_keys()).unwrap_err();
    verify(&log.sources(), &VerifyKeys { chain: None, ..log.both_keys() }).unwrap_err();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_mutation_of_a_log_is_noticed(mutation in mutation(), chosen in any::<(u64, u64)>()) {
        let log = WrittenLog::new(24);
        if log.is_changed_by(mutation, chosen) {
            prop_assert!(verify(&log.sources(), &log.both_keys()).is_err(), "{mutation:?} {chosen:?}");
            let public = VerifyKeys { chain: None, ..log.both_keys() };
            prop_assert!(verify(&log.sources(), &public).is_err(), "with the public key: {mutation:?} {chosen:?}");
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Mutation {
    Byte(u8),
    RemoveLine,
    DoubleLine,
    ExchangeLines,
    InsertLine,
    CutFile,
    RemoveFile,
    ExchangeFiles,
    EmptyFile,
    Append,
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        (1..=255_u8).prop_map(Mutation::Byte),
        Just(Mutation::RemoveLine),
        Just(Mutation::DoubleLine),
        Just(Mutation::ExchangeLines),
        Just(Mutation::InsertLine),
        Just(Mutation::CutFile),
        Just(Mutation::RemoveFile),
        Just(Mutation::ExchangeFiles),
        Just(Mutation::EmptyFile),
        Just(Mutation::Append),
    ]
}

/// A log that was written and closed, with its keys.
struct WrittenLog {
    directory: TempDir,
    chain: ChainKey,
    signing: SigningKey,
}

impl WrittenLog {
    /// Writes a log with this many exchanges, in several files.
    fn new(exchanges: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (chain, signing) = (ChainKey::generate().unwrap(), SigningKey::generate().unwrap());
        let limits = Limits { bytes_max: FILE_BYTES, kept: 100, sync_each: false };
        let sink = Files::open(directory.path(), limits, VecDeque::new(), None).unwrap();
        let checkpoints =
            crate::checkpoint::Checkpoints::open(directory.path(), signing.clone(), 0, 0).unwrap();
        let recovered = Recovered {
            sink: Box::new(sink),
            checkpoints,
            head: crate::chain::Head::START,
            pending: Vec::new(),
            cut_bytes: 0,
            lock: fs::File::open(directory.path()).unwrap(),
        };
        let settings = Settings {
            server: "server-1".into(),
            directory: directory.path().to_owned(),
            target: Target::Files { bytes_max: FILE_BYTES, kept: 100 },
            sync: Sync::Interval,
        };
        let shared = Arc::new(Shared::new());
        let mut writer = Writer::begin(&settings, &chain, recovered, Arc::clone(&shared)).unwrap();
        for n in 0..exchanges {
            let user = User { username: format!("user-{n}"), ..User::default() };
            let event = Arc::new(Event::new("get", format!("/api/v1/pods/{n}"), user));
            let completion = Some(Completion::new(None, EndReason::Clean));
            // Written one by one, so that files rotate between them.
            writer.put(vec![Entry { event, completion, kind: EntryKind::BestEffort }]);
        }
        shared.queue.close();
        writer.run();
        Self { directory, chain, signing }
    }

    fn sources(&self) -> Sources {
        Sources::from_paths(&[Path::to_owned(self.directory.path())], None).unwrap()
    }

    fn both_keys(&self) -> VerifyKeys {
        VerifyKeys { chain: Some(self.chain.clone()), public: Some(self.signing.public().unwrap()) }
    }

    fn edit(&self, path: &Path, edit: impl FnOnce(&mut Vec<String>)) {
        let text = fs::read_to_string(path).unwrap();
        let mut lines = text.split_inclusive('\n').map(str::to_owned).collect();
        edit(&mut lines);
        fs::write(path, lines.concat()).unwrap();
    }

    /// Returns true if the mutation changes the log at all.
    fn is_changed_by(&self, mutation: Mutation, (first, second): (u64, u64)) -> bool {
        let files = self.sources().files;
        let of = |number: u64, count: usize| usize::try_from(number % count as u64).unwrap();
        let path: &PathBuf = &files[of(first, files.len())];
        let before = fs::read(path).unwrap();
        let lines = before.iter().filter(|byte| **byte == b'\n').count();
        let (one, other) = (of(second, lines), of(second / 7, lines));
        match mutation {
            Mutation::Byte(change) => {
                let mut bytes = before.clone();
                bytes[of(second, before.len())] ^= change;
                fs::write(path, bytes).unwrap();
            }
            Mutation::RemoveLine => self.edit(path, |lines| drop(lines.remove(one))),
            Mutation::DoubleLine => self.edit(path, |lines| lines.insert(other, lines[one].clone())),
            Mutation::ExchangeLines => self.edit(path, |lines| lines.swap(one, other)),
            Mutation::InsertLine => self.edit(path, |lines| lines.insert(one, "{}\n".to_owned())),
            Mutation::CutFile => fs::write(path, &before[..of(second, before.len())]).unwrap(),
            Mutation::RemoveFile => fs::remove_file(path).unwrap(),
            Mutation::ExchangeFiles => {
                let with = &files[of(second, files.len())];
                fs::write(path, fs::read(with).unwrap()).unwrap();
                fs::write(with, &before).unwrap();
            }
            Mutation::EmptyFile => fs::write(path, b"").unwrap(),
            Mutation::Append => self.edit(path, |lines| lines.push(lines[one].clone())),
        }
        fs::read(path).map_or(true, |after| after != before)
    }
}
