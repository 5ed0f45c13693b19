//! The only place that prints. Data goes to stdout, everything else to stderr.

use crate::args::Globals;
use crate::error::CliError;

pub(crate) struct Ui {
    quiet: bool,
}

impl Ui {
    pub(crate) fn new(globals: &Globals) -> Self {
        Self { quiet: globals.quiet }
    }

    /// A line for the person at the terminal; not data.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            drop(std::io::Write::write_all(&mut std::io::stderr(), format!("{text}\n").as_bytes()));
        }
    }

    pub(crate) fn error(&self, error: &CliError) {
        let hint = error.hint.as_ref().map(|hint| format!("hint: {hint}\n")).unwrap_or_default();
        drop(std::io::Write::write_all(&mut std::io::stderr(), format!("error: {error}\n{hint}").as_bytes()));
    }
}
