//! The entry point of processes that are only a worker, or that measure a step.

use std::ffi::OsString;
use std::process::ExitCode;

#[expect(clippy::print_stderr, reason = "the process can report errors only on its terminal")]
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
