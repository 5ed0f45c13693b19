//! `cargo xtask ci`: runs the checks from cheap to expensive, times each, and stops at the first failure.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::shell::{cargo, run};
use crate::{layers, test, words};

const HELP: &str = "\
cargo xtask ci [STEP...]: what CI runs, in this order, up to the first failure

  fmt      cargo fmt --all --check
  clippy   cargo clippy --workspace --all-targets -- -D warnings
  layers   cargo xtask layers
  words    cargo xtask words
  test     cargo xtask test

With steps named, only those run: `cargo xtask ci fmt clippy`.
";

struct CiStep {
    name: &'static str,
    perform: fn() -> Result<()>,
    /// The command to suggest when it fails.
    hint: &'static str,
}

const STEPS: &[CiStep] = &[
    CiStep { name: "fmt", perform: format, hint: "`cargo fmt --all` corrects it" },
    CiStep {
        name: "clippy",
        perform: lint,
        hint: "one crate alone: `cargo clippy -p CRATE --all-targets -- -D warnings`",
    },
    CiStep { name: "layers", perform: layers::check, hint: "the rules: `cargo xtask layers --help`" },
    CiStep { name: "words", perform: words::check, hint: "the words to use: docs/glossary.md" },
    CiStep { name: "test", perform: test_all, hint: "one crate alone: `cargo nextest run -p CRATE`" },
];

pub(crate) fn main(arguments: &[String]) -> Result<()> {
    if arguments.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return Ok(());
    }
    let steps = choose(arguments)?;
    let mut times = Vec::new();
    for step in steps {
        eprintln!("== {}", step.name);
        let start = Instant::now();
        let outcome = (step.perform)();
        times.push((step.name, start.elapsed(), outcome.is_ok()));
        if let Err(error) = outcome {
            eprint!("\n{}", summary(&times));
            return Err(error.context(failure(step)));
        }
    }
    eprint!("\n{}", summary(&times));
    Ok(())
}

/// The requested steps in the order of the table, or all of them.
fn choose(names: &[String]) -> Result<Vec<&'static CiStep>> {
    if let Some(unknown) = names.iter().find(|name| STEPS.iter().all(|step| step.name != name.as_str())) {
        let known: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        bail!("there is no step `{unknown}`; the steps are {}", known.join(", "));
    }
    let asked = |step: &&CiStep| names.is_empty() || names.iter().any(|name| name == step.name);
    Ok(STEPS.iter().filter(asked).collect())
}

fn failure(step: &CiStep) -> String {
    format!("step `{0}` failed; run it again with `cargo xtask ci {0}` ({1})", step.name, step.hint)
}

fn summary(times: &[(&str, Duration, bool)]) -> String {
    let mut text = String::new();
    for (name, time, passed) in times {
        let result = if *passed { "ok" } else { "FAILED" };
        writeln!(text, "{name:<8} {:>7.1} s  {result}", time.as_secs_f64())
            .expect("a String takes everything");
    }
    text
}

fn format() -> Result<()> {
    run(&mut cargo(["fmt", "--all", "--check"]))
}

fn lint() -> Result<()> {
    run(&mut cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn test_all() -> Result<()> {
    test::main(&[])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str]) -> Result<Vec<&'static str>> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Ok(choose(&names)?.iter().map(|step| step.name).collect())
    }

    #[test]
    fn steps_run_in_table_order_for_any_argument_order() {
        assert_eq!(chosen(&[]).unwrap(), ["fmt", "clippy", "layers", "words", "test"]);
        assert_eq!(chosen(&["layers", "fmt"]).unwrap(), ["fmt", "layers"]);
    }

    #[test]
    fn unknown_step_error_lists_steps() {
        let error = chosen(&["fmt", "lint"]).unwrap_err().to_string();
        assert!(error.contains("`lint`") && error.contains("fmt, clippy, layers, words, test"), "{error}");
    }

    #[test]
    fn help_names_every_step() {
        for step in STEPS {
            assert!(HELP.contains(&format!("\n  {} ", step.name)), "{}", step.name);
        }
    }

    #[test]
    fn summary_shows_duration_and_result_of_steps() {
        let times = [("fmt", Duration::from_millis(1240), true), ("clippy", Duration::from_secs(75), false)];
        assert_eq!(summary(&times), "fmt          1.2 s  ok\nclippy      75.0 s  FAILED\n");
    }

    #[test]
    fn failure_names_command_to_rerun_step() {
        assert!(failure(&STEPS[1]).contains("cargo xtask ci clippy"));
    }
}
