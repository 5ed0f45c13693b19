//! The only place that prints. Data goes to stdout, everything else to stderr.

pub(crate) mod outcome;
pub(crate) mod progress;
pub(crate) mod style;
pub(crate) mod summary;
pub(crate) mod table;
mod terminal;
pub(crate) mod text;
mod watch;

use crate::args::{ColorChoice, Format, Globals};
use crate::error::{CliError, Kind};
use serde::Serialize;
use std::io::{self, IsTerminal as _, Write};
use std::path::Path;
use style::{Paint, Tone};
use table::Table;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ui {
    format: Format,
    quiet: bool,
    color: ColorChoice,
}

impl Ui {
    pub(crate) fn new(globals: &Globals) -> Self {
        Self { format: globals.format, quiet: globals.quiet, color: globals.color }
    }

    pub(crate) fn json_wanted(&self) -> bool {
        self.format == Format::Json
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// How to colour what goes to stdout.
    pub(crate) fn paint_out(&self) -> Paint {
        Paint { enabled: terminal::wants_color(self.color, io::stdout().is_terminal()) }
    }

    /// How to colour what goes to stderr.
    pub(crate) fn paint_err(&self) -> Paint {
        Paint { enabled: terminal::wants_color(self.color, io::stderr().is_terminal()) }
    }

    /// The width of the terminal on stdout; `None` if there is none and nothing should be cut.
    pub(crate) fn width_out(&self) -> Option<usize> {
        terminal::size(io::stdout()).map(|size| size.columns)
    }

    /// Data, as lines on stdout.
    pub(crate) fn print_lines(&self, lines: &[String]) -> Result<(), CliError> {
        let mut text = lines.join("\n");
        if !lines.is_empty() {
            text.push('\n');
        }
        self.print_bytes(text.as_bytes())
    }

    pub(crate) fn print_line(&self, line: &str) -> Result<(), CliError> {
        self.print_bytes(format!("{line}\n").as_bytes())
    }

    /// Data as it is, on stdout, at once.
    pub(crate) fn print_bytes(&self, bytes: &[u8]) -> Result<(), CliError> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|e| output_error(&e))
    }

    /// A file as it is, on stdout, however large.
    pub(crate) fn print_from(&self, file: &mut impl io::Read, path: &Path) -> Result<(), CliError> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(n) => self.print_bytes(&buffer[..n])?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(CliError::io(format!("cannot read {}: {e}", path.display()))),
            }
        }
    }

    pub(crate) fn print_table(&self, table: &Table) -> Result<(), CliError> {
        self.print_lines(&table.render(self.width_out(), self.paint_out()))
    }

    /// One JSON value on stdout, readable.
    pub(crate) fn print_json(&self, value: &impl Serialize) -> Result<(), CliError> {
        let mut stdout = io::BufWriter::new(io::stdout().lock());
        serde_json::to_writer_pretty(&mut stdout, value)
            .map_err(io::Error::from)
            .and_then(|()| stdout.write_all(b"\n"))
            .and_then(|()| stdout.flush())
            .map_err(|e| output_error(&e))
    }

    /// One line of a stream of JSON values (NDJSON).
    pub(crate) fn print_json_line(&self, value: &impl Serialize) -> Result<(), CliError> {
        let line = serde_json::to_string(value).map_err(|e| output_error(&e.into()))?;
        self.print_line(&line)
    }

    /// Talk for the person at the terminal; not data, and silent with `--quiet`.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            say(text);
        }
    }

    pub(crate) fn warn(&self, text: &str) {
        say(&format!("{} {text}", self.paint_err().apply(Tone::Warn, "warning:")));
    }

    /// Text for stderr that matters also with `--quiet`.
    pub(crate) fn say_lines(&self, lines: &[String]) {
        if !lines.is_empty() {
            say(&lines.join("\n"));
        }
    }

    /// The error that ends the program.
    pub(crate) fn error(&self, error: &CliError) {
        if error.kind == Kind::OutputClosed {
            return;
        }
        say(&render_error(error, self.format, self.paint_err()));
    }
}

/// Writes a line to stderr. If that is not possible there is nobody left to tell.
fn say(text: &str) {
    drop(io::stderr().lock().write_all(format!("{text}\n").as_bytes()));
}

fn output_error(error: &io::Error) -> CliError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => CliError::new(Kind::OutputClosed, "the reader of the output went away"),
        _ => CliError::io(format!("cannot write to stdout: {error}")),
    }
}

fn render_error(error: &CliError, format: Format, paint: Paint) -> String {
    #[derive(Serialize)]
    struct Wire<'a> {
        error: &'a str,
        hint: Option<&'a str>,
        kind: Kind,
        exit_code: u8,
        /// Only for errors in a spec file.
        #[serde(skip_serializing_if = "Option::is_none")]
        diagnostics: Option<Vec<windlass_spec::Report>>,
    }
    match format {
        Format::Json => {
            let wire = Wire {
                error: &error.message,
                hint: error.hint.as_deref(),
                kind: error.kind,
                exit_code: error.kind.exit().code(),
                diagnostics: error.diagnostics.as_ref().map(|found| found.reports()),
            };
            serde_json::to_string(&wire).unwrap_or_else(|_| error.message.clone())
        }
        Format::Table => {
            let style = if paint.enabled { windlass_spec::Style::Ansi } else { windlass_spec::Style::Plain };
            let mut text = error.diagnostics.as_ref().map(|found| found.render(style)).unwrap_or_default();
            text.push_str(&format!("{} {}", paint.apply(Tone::Bad, "error:"), error.message));
            if let Some(hint) = &error.hint {
                text.push_str(&format!("\n{} {hint}", paint.apply(Tone::Busy, "hint:")));
            }
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_come_with_what_to_do() {
        let error = CliError::user("no workflow `sim`").with_hint("see `windlass workflows`");
        assert_eq!(
            render_error(&error, Format::Table, Paint::PLAIN),
            "error: no workflow `sim`\nhint: see `windlass workflows`"
        );
        assert_eq!(
            render_error(&error, Format::Json, Paint::PLAIN),
            r#"{"error":"no workflow `sim`","hint":"see `windlass workflows`","kind":"user","exit_code":2}"#
        );
    }
}
