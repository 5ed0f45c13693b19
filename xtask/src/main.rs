//! `cargo xtask`: development tasks of the project. This file only reads the first argument and calls the task.
//!
//! Only std, anyhow and serde_json, so that it builds in seconds; none of it is part of the product.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool prints")]

mod bench;
mod ci;
mod compat;
mod docs;
mod htcondor;
mod layers;
mod python;
mod reqmgr2;
mod shell;
mod slurm;
mod soak;
mod test;
mod words;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask: tests, checks, documents and benchmarks of this repository

  cargo xtask test [ARGS...]    runs all tests, also on a fresh machine:
                                finds or installs what the tests need, builds, then runs
                                `cargo nextest run --workspace` and the doc tests
  cargo xtask ci [STEP...]      what CI runs: fmt, clippy, layers, test; or only the steps named
  cargo xtask docs              writes the man pages and the references that are made from the code
  cargo xtask compat            Torc's own command line against `windlass serve`
  cargo xtask layers            checks that dependencies between the crates point downwards
  cargo xtask words             checks names and texts against docs/glossary.md
  cargo xtask bench [A B C D]   windlass against fork+exec, xargs and its peers, interleaved
  cargo xtask soak [OPTIONS]    simulated requests with many failures, seed after seed

`cargo xtask COMMAND --help` describes a command.
";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next();
    let rest: Vec<String> = words.collect();
    let outcome = match command.as_deref() {
        Some("test") => test::main(&rest),
        Some("ci") => ci::main(&rest),
        Some("docs") => docs::main(&rest),
        Some("compat") => compat::main(&rest),
        Some("layers") => layers::main(&rest),
        Some("words") => words::main(&rest),
        Some("bench") => bench::main(&rest),
        Some("soak") => soak::main(&rest),
        None | Some("help" | "--help" | "-h") => {
            print!("{HELP}");
            Ok(())
        }
        Some(unknown) => {
            eprintln!("error: there is no command `{unknown}`\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
