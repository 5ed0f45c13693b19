//! A process that is a worker and nothing else.

use std::process::ExitCode;

#[expect(clippy::print_stderr, reason = "a process with nobody to tell but its terminal")]
fn main() -> ExitCode {
    match windlass_worker::serve_on_stdin() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("worker: {error}");
            ExitCode::FAILURE
        }
    }
}
