//! After `sys::forbid_exec`, no system call executes a program, on any thread.
//!
//! The ban cannot be lifted, so each trial is a process of its own: this test binary again, with an
//! environment variable that selects its part.
#![cfg(target_os = "linux")]

use std::env;
use std::ffi::{CString, c_char, c_long};
use std::io;
use std::process::{Command, Output};
use std::ptr;
use std::sync::mpsc;
use std::thread;

const ROLE: &str = "SYS_TRIAL_ROLE";
const TRIAL: &str = "no_call_starts_a_program_on_any_thread_whether_it_is_older_or_younger";
const PROGRAM: &str = "/bin/true";

#[test]
fn no_call_starts_a_program_on_any_thread_whether_it_is_older_or_younger() {
    if env::var_os(ROLE).is_some() {
        confined();
        return;
    }
    let output = run_again("confined");

    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
}

/// The part of the trial's own process. The harness's main thread is older than all of its threads, and is
/// not checked.
fn confined() {
    let (ask, asked) = mpsc::channel::<()>();
    let older = thread::spawn(move || {
        asked.recv().expect("asked");
        every_call()
    });
    assert_eq!(spawned(), Ok(()), "what is refused below can be done otherwise");
    assert!(status("NoNewPrivs:").ends_with('0') && status("Seccomp:").ends_with('0'), "not yet");

    sys::forbid_exec().expect("a kernel with seccomp");

    ask.send(()).expect("it waits");
    let refused = vec![Err(libc::EPERM); every_call().len()];
    assert_eq!(every_call(), refused, "the thread that asked for it");
    assert_eq!(older.join().expect("no panic"), refused, "a thread from before");
    assert_eq!(thread::spawn(every_call).join().expect("no panic"), refused, "a thread from after");
    assert!(status("NoNewPrivs:").ends_with('1'), "{}", status("NoNewPrivs:"));
    assert!(status("Seccomp:").ends_with('2'), "{}", status("Seccomp:"));
}

/// The outcomes of executing a program by each way there is: success, or the kernel's error number.
fn every_call() -> Vec<Result<(), i32>> {
    let path = CString::new(PROGRAM).expect("no NUL");
    let arguments = [path.as_ptr(), ptr::null::<c_char>()];
    let by_number = |number: c_long| {
        #[expect(unsafe_code, reason = "no safe function makes this call")]
        // SAFETY: path and arguments end in NUL and outlive the call. One that succeeds ends this process, which is a trial's.
        let outcome =
            unsafe { libc::syscall(number, path.as_ptr(), arguments.as_ptr(), ptr::null::<c_char>()) };
        outcome_of(outcome)
    };
    let at = |number: c_long| {
        #[expect(unsafe_code, reason = "no safe function makes this call")]
        // SAFETY: as above.
        let outcome = unsafe {
            libc::syscall(number, libc::AT_FDCWD, path.as_ptr(), arguments.as_ptr(), ptr::null::<c_char>(), 0)
        };
        outcome_of(outcome)
    };
    let mut tried = vec![spawned(), by_number(libc::SYS_execve), at(libc::SYS_execveat)];
    if cfg!(target_arch = "x86_64") {
        tried.extend([by_number(0x4000_0000 + 520), at(0x4000_0000 + 545)]);
    }
    tried
}

/// The outcome of starting a child process, as a library would.
fn spawned() -> Result<(), i32> {
    let ended = Command::new(PROGRAM).status();
    ended.map(drop).map_err(|error| error.raw_os_error().expect("the kernel's error"))
}

fn outcome_of(outcome: c_long) -> Result<(), i32> {
    if outcome == -1 {
        Err(io::Error::last_os_error().raw_os_error().expect("the kernel's error"))
    } else {
        Ok(())
    }
}

/// A line of proc_pid_status(5) of this thread.
fn status(line: &str) -> String {
    let text = std::fs::read_to_string("/proc/thread-self/status").expect("proc is mounted");
    text.lines().find(|text| text.starts_with(line)).expect("proc_pid_status(5)").to_owned()
}

/// Runs this test binary again, with this trial alone.
fn run_again(role: &str) -> Output {
    let program = env::current_exe().expect("this program");
    Command::new(program).args(["--exact", TRIAL]).env(ROLE, role).output().expect("it can be started again")
}
