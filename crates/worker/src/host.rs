//! A process that is a worker, or stands in for a job of one that runs elsewhere, and nothing else.

use std::ffi::OsString;
use std::process::ExitCode;

#[expect(clippy::print_stderr, reason = "a process with nobody to tell but its terminal")]
fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(exit) = windlass_worker::run_step_if_requested(&words) {
        return exit;
    }
    match windlass_worker::serve_on_stdin() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("worker: {error}");
            ExitCode::FAILURE
        }
    }
}
