//! Reads spec files and prints their problems: `cargo run -p windlass-spec --example check -- FILE…`

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::io::IsTerminal as _;
use windlass_spec::{DiagnosticStyle, NoAttachments, SpecSource};

fn main() -> std::io::Result<()> {
    let style = if std::io::stdout().is_terminal() { DiagnosticStyle::Ansi } else { DiagnosticStyle::Plain };
    for path in std::env::args().skip(1) {
        match windlass_spec::load_spec(SpecSource::new(&path, &std::fs::read(&path)?), &NoAttachments) {
            Ok(workflow) => println!("{path}: `{}` with {} jobs", workflow.name(), workflow.job_count()),
            Err(diagnostics) => print!("{}", diagnostics.render(style)),
        }
    }
    Ok(())
}
