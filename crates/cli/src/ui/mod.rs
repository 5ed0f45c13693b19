//! The only place that prints. Data goes to stdout, everything else to stderr.

mod ask;
mod beside;
mod csv;
pub(crate) mod diff;
pub(crate) mod gauge;
pub(crate) mod listing;
pub(crate) mod live;
pub(crate) mod outcome;
pub(crate) mod progress;
pub(crate) mod style;
pub(crate) mod summary;
pub(crate) mod table;
mod terminal;
pub(crate) mod text;
mod watch;

use crate::args::{Format, Globals};
use crate::error::{CliError, Kind};
use serde::Serialize;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write};
use std::path::Path;
use style::{Paint, Tone};
use table::Table;
use windlass_spec::Diagnostics;

pub(crate) use beside::WorkerLine;

#[derive(Debug)]
pub(crate) struct Ui {
    format: Format,
    quiet: bool,
    stdout: io::Stdout,
    stderr: io::Stderr,
    paint_out: Paint,
    paint_err: Paint,
}

impl Ui {
    pub(crate) fn new(globals: &Globals) -> Self {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let paint = |is_terminal| Paint { enabled: terminal::wants_color(globals.color, is_terminal) };
        Self {
            format: globals.format,
            quiet: globals.quiet,
            paint_out: paint(stdout.is_terminal()),
            paint_err: paint(stderr.is_terminal()),
            stdout,
            stderr,
        }
    }

    pub(crate) fn json_wanted(&self) -> bool {
        self.format == Format::Json
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// How to colour what goes to stdout.
    pub(crate) fn paint_out(&self) -> Paint {
        self.paint_out
    }

    /// How to colour what goes to stderr.
    pub(crate) fn paint_err(&self) -> Paint {
        self.paint_err
    }

    /// The width of the terminal on stdout; `None` if there is none and nothing should be cut.
    pub(crate) fn width_out(&self) -> Option<usize> {
        terminal::size(&self.stdout).map(|size| size.columns)
    }

    /// Data, as lines on stdout.
    pub(crate) fn print_lines(&self, lines: &[String]) -> Result<(), CliError> {
        let mut text = lines.join("\n");
        if !lines.is_empty() {
            text.push('\n');
        }
        self.print_bytes(text::printable(&text).as_bytes())
    }

    pub(crate) fn print_line(&self, line: &str) -> Result<(), CliError> {
        self.print_bytes(format!("{}\n", text::printable(line)).as_bytes())
    }

    /// Data as it is, on stdout, at once.
    pub(crate) fn print_bytes(&self, bytes: &[u8]) -> Result<(), CliError> {
        let mut stdout = self.stdout.lock();
        stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|e| output_error(&e))
    }

    /// Text that jobs or other users wrote: as it is into a file or a pipe, harmless on a terminal.
    pub(crate) fn print_text_of_others(&self, bytes: &[u8]) -> Result<(), CliError> {
        if self.stdout.is_terminal() {
            return self.print_bytes(text::printable(&String::from_utf8_lossy(bytes)).as_bytes());
        }
        self.print_bytes(bytes)
    }

    /// A file that a job wrote, on stdout, however large.
    pub(crate) fn print_from(&self, file: &mut impl io::Read, path: &Path) -> Result<(), CliError> {
        const AT_ONCE: u64 = 64 * 1024;
        let mut file = io::BufReader::with_capacity(AT_ONCE as usize, file);
        let mut buffer = Vec::new();
        loop {
            buffer.clear();
            // Whole lines for a terminal, so that no letter is torn; else as much as there is.
            let read = if self.stdout.is_terminal() {
                file.by_ref().take(AT_ONCE).read_until(b'\n', &mut buffer)
            } else {
                file.fill_buf().map(|bytes| buffer.extend_from_slice(bytes)).map(|()| buffer.len())
            };
            match read {
                Ok(0) => return Ok(()),
                Ok(n) if self.stdout.is_terminal() => self.print_text_of_others(&buffer[..n])?,
                Ok(n) => {
                    self.print_bytes(&buffer)?;
                    file.consume(n);
                }
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
        let mut stdout = io::BufWriter::new(self.stdout.lock());
        serde_json::to_writer_pretty(&mut stdout, value)
            .map_err(io::Error::from)
            .and_then(|()| stdout.write_all(b"\n"))
            .and_then(|()| stdout.flush())
            .map_err(|e| output_error(&e))
    }

    /// One line of a stream of JSON values (NDJSON).
    pub(crate) fn print_json_line(&self, value: &impl Serialize) -> Result<(), CliError> {
        let line = serde_json::to_string(value).map_err(|e| output_error(&e.into()))?;
        self.print_bytes(format!("{line}\n").as_bytes())
    }

    pub(crate) fn print_help(&self, help: &clap::builder::StyledStr) -> Result<(), CliError> {
        let text = if self.paint_out.enabled { help.ansi().to_string() } else { help.to_string() };
        self.print_bytes(text.as_bytes())
    }

    /// Talk for the person at the terminal; not data, and silent with `--quiet`.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            say(&self.stderr, text);
        }
    }

    pub(crate) fn warn(&self, text: &str) {
        say(&self.stderr, &format!("{} {text}", self.paint_err().apply(Tone::Warn, "warning:")));
    }

    /// What is worth saying about a spec file that is used all the same.
    pub(crate) fn spec_warnings(&self, warnings: &Diagnostics) {
        if self.quiet || warnings.count() == 0 {
            return;
        }
        if self.json_wanted() {
            let wire = serde_json::json!({ "warnings": warnings.reports() });
            return say(&self.stderr, &wire.to_string());
        }
        say(&self.stderr, warnings.render(self.paint_err().spec_style()).trim_end_matches('\n'));
    }

    /// Text for stderr that matters also with `--quiet`.
    pub(crate) fn say_lines(&self, lines: &[String]) {
        if !lines.is_empty() {
            say(&self.stderr, &lines.join("\n"));
        }
    }

    /// The error that ends the program.
    pub(crate) fn error(&self, error: &CliError) {
        if error.kind == Kind::OutputClosed {
            return;
        }
        say(&self.stderr, &render_error(error, self.format, self.paint_err()));
    }
}

/// A mistake in the command line, as JSON: what was asked for is not known well enough for a [`Ui`].
pub(crate) fn say_usage_error(error: &CliError) {
    say(&io::stderr(), &render_error(error, Format::Json, Paint { enabled: false }));
}

/// Writes a line to stderr. If that is not possible there is nobody left to tell.
fn say(stderr: &io::Stderr, text: &str) {
    drop(stderr.lock().write_all(format!("{}\n", text::printable(text)).as_bytes()));
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
    if format == Format::Json {
        let wire = Wire {
            error: &error.message,
            hint: error.hint.as_deref(),
            kind: error.kind,
            exit_code: error.kind.exit().code(),
            diagnostics: (!error.diagnostics.is_empty())
                .then(|| error.diagnostics.iter().flat_map(windlass_spec::Diagnostics::reports).collect()),
        };
        return serde_json::to_string(&wire).unwrap_or_else(|_| error.message.clone());
    }
    let found: String = error.diagnostics.iter().map(|found| found.render(paint.spec_style())).collect();
    let sign = |tone, word| paint.apply(tone, word);
    let hint = error.hint.as_ref().map(|hint| format!("\n{} {hint}", sign(Tone::Busy, "hint:")));
    format!("{found}{} {}{}", sign(Tone::Bad, "error:"), error.message, hint.unwrap_or_default())
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
