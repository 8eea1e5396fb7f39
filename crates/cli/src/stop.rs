//! Ending a long run early: the first SIGINT or SIGTERM asks it to print what it has found, a later one ends the
//! process as if nobody had asked for them.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering};

use lapis_crash::StopFlag;

static RAISED: AtomicBool = AtomicBool::new(false);
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// When the first came, in milliseconds of the clock; 0 before it.
static FIRST_MS: AtomicI64 = AtomicI64::new(0);
/// One that comes sooner after the first is the same request: `timeout` sends two at once.
const SAME_MS: i64 = 300;

extern "C" fn on_signal(signal: i32) {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the struct; a handler may make it.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    let now_ms = (now.tv_sec * 1000 + now.tv_nsec / 1_000_000).max(1);
    match FIRST_MS.compare_exchange(0, now_ms, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => {
            SIGNAL.store(signal, Ordering::Relaxed);
            RAISED.store(true, Ordering::Relaxed);
        }
        Err(first_ms) if now_ms - first_ms < SAME_MS => {}
        Err(_) => {
            handle_with(signal, libc::SIG_DFL);
            // SAFETY: a handler may make the call; the signal comes when it has returned.
            unsafe { libc::raise(signal) };
        }
    }
}

fn handle_with(signal: i32, handler: libc::sighandler_t) {
    // SAFETY: the handler is the default one or `on_signal`, which uses atomics and calls that handlers may make.
    unsafe { libc::signal(signal, handler) };
}

/// A flag that these signals raise from now on, in place of ending the process.
pub fn on_signals() -> StopFlag {
    let handler = on_signal as extern "C" fn(i32) as libc::sighandler_t;
    [libc::SIGINT, libc::SIGTERM].into_iter().for_each(|signal| handle_with(signal, handler));
    StopFlag::at(&RAISED)
}

/// The exit code of a run that a signal has ended early: that of a process which the signal has ended, to a shell.
pub fn exit_code() -> u8 {
    128 + SIGNAL.load(Ordering::Relaxed) as u8
}
