//! The only module that prints. Data goes to stdout, everything else to stderr.

pub(crate) mod attempt_end;
mod csv;
pub(crate) mod diff;
pub(crate) mod listing;
pub(crate) mod progress;
pub(crate) mod progress_bar;
mod prompts;
mod run_observers;
pub(crate) mod run_summary;
pub(crate) mod style;
pub(crate) mod table;
mod terminal;
pub(crate) mod terminal_block;
pub(crate) mod text;
mod worker_status_line;

use crate::args::{GlobalArgs, OutputFormat};
use crate::error::{CliError, CliErrorKind};
use serde::Serialize;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write};
use std::path::Path;
use style::{TextPainter, TextTone};
use table::TextTable;
use windlass_spec::SpecDiagnostics;

pub(crate) use worker_status_line::WorkerStatusLine;

#[derive(Debug)]
pub(crate) struct TerminalUi {
    format: OutputFormat,
    quiet: bool,
    stdout: io::Stdout,
    stderr: io::Stderr,
    stdout_painter: TextPainter,
    stderr_painter: TextPainter,
}

impl TerminalUi {
    pub(crate) fn new(globals: &GlobalArgs) -> Self {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let paint = |is_terminal| TextPainter { enabled: terminal::wants_color(globals.color, is_terminal) };
        Self {
            format: globals.format,
            quiet: globals.quiet,
            stdout_painter: paint(stdout.is_terminal()),
            stderr_painter: paint(stderr.is_terminal()),
            stdout,
            stderr,
        }
    }

    pub(crate) fn wants_json(&self) -> bool {
        self.format == OutputFormat::Json
    }

    pub(crate) fn format(&self) -> OutputFormat {
        self.format
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Colors for stdout.
    pub(crate) fn stdout_painter(&self) -> TextPainter {
        self.stdout_painter
    }

    /// Colors for stderr.
    pub(crate) fn stderr_painter(&self) -> TextPainter {
        self.stderr_painter
    }

    /// The width of the terminal on stdout; `None` if there is none and nothing should be truncated.
    pub(crate) fn stdout_width(&self) -> Option<usize> {
        terminal::terminal_size(&self.stdout).map(|size| size.columns)
    }

    /// Prints data as lines on stdout.
    pub(crate) fn print_lines(&self, lines: &[String]) -> Result<(), CliError> {
        let mut text = lines.join("\n");
        if !lines.is_empty() {
            text.push('\n');
        }
        self.print_bytes(text::escape_control(&text).as_bytes())
    }

    pub(crate) fn print_line(&self, line: &str) -> Result<(), CliError> {
        self.print_bytes(format!("{}\n", text::escape_control(line)).as_bytes())
    }

    /// Prints data unchanged on stdout, and flushes.
    pub(crate) fn print_bytes(&self, bytes: &[u8]) -> Result<(), CliError> {
        let mut stdout = self.stdout.lock();
        stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|e| output_error(&e))
    }

    /// Prints text written by jobs or other users: unchanged to a file or pipe, escaped on a terminal.
    pub(crate) fn print_untrusted_text(&self, bytes: &[u8]) -> Result<(), CliError> {
        if self.stdout.is_terminal() {
            return self.print_bytes(text::escape_control(&String::from_utf8_lossy(bytes)).as_bytes());
        }
        self.print_bytes(bytes)
    }

    /// Text of a report, possibly with colors, or a format for programs: control characters are escaped on a terminal.
    pub(crate) fn print_rendered_text(&self, text: &str) -> Result<(), CliError> {
        if self.stdout.is_terminal() {
            return self.print_bytes(text::escape_control(text).as_bytes());
        }
        self.print_bytes(style::unmark_colors(text).as_bytes())
    }

    /// Prints a file written by a job on stdout, of any size.
    pub(crate) fn print_file(&self, file: &mut impl io::Read, path: &Path) -> Result<(), CliError> {
        const AT_ONCE: u64 = 64 * 1024;
        let mut file = io::BufReader::with_capacity(AT_ONCE as usize, file);
        let mut buffer = Vec::new();
        loop {
            buffer.clear();
            // Whole lines for a terminal, so that no character is split; otherwise all bytes that were read.
            let read = if self.stdout.is_terminal() {
                file.by_ref().take(AT_ONCE).read_until(b'\n', &mut buffer)
            } else {
                file.fill_buf().map(|bytes| buffer.extend_from_slice(bytes)).map(|()| buffer.len())
            };
            match read {
                Ok(0) => return Ok(()),
                Ok(n) if self.stdout.is_terminal() => self.print_untrusted_text(&buffer[..n])?,
                Ok(n) => {
                    self.print_bytes(&buffer)?;
                    file.consume(n);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(CliError::io(format!("cannot read {}: {e}", path.display()))),
            }
        }
    }

    pub(crate) fn print_table(&self, table: &TextTable) -> Result<(), CliError> {
        self.print_lines(&table.render(self.stdout_width(), self.stdout_painter()))
    }

    /// Prints one JSON value on stdout, indented.
    pub(crate) fn print_json(&self, value: &impl Serialize) -> Result<(), CliError> {
        let mut stdout = io::BufWriter::new(self.stdout.lock());
        serde_json::to_writer_pretty(text::JsonEscaper(&mut stdout), value)
            .map_err(io::Error::from)
            .and_then(|()| stdout.write_all(b"\n"))
            .and_then(|()| stdout.flush())
            .map_err(|e| output_error(&e))
    }

    /// Prints one line of a stream of JSON values (NDJSON).
    pub(crate) fn print_json_line(&self, value: &impl Serialize) -> Result<(), CliError> {
        let line = serde_json::to_string(value).map_err(|e| output_error(&e.into()))?;
        self.print_bytes(format!("{}\n", text::escape_json(&line)).as_bytes())
    }

    pub(crate) fn print_help(&self, help: &clap::builder::StyledStr) -> Result<(), CliError> {
        let text = if self.stdout_painter.enabled { help.ansi().to_string() } else { help.to_string() };
        self.print_bytes(text.as_bytes())
    }

    /// Prints a note for the user on stderr; suppressed by `--quiet`.
    pub(crate) fn print_note(&self, text: &str) {
        if !self.quiet {
            write_stderr_line(&self.stderr, text);
        }
    }

    pub(crate) fn print_warning(&self, text: &str) {
        write_stderr_line(
            &self.stderr,
            &format!("{} {text}", self.stderr_painter().apply(TextTone::Warn, "warning:")),
        );
    }

    /// Prints warnings about a spec file.
    pub(crate) fn print_spec_warnings(&self, warnings: &SpecDiagnostics) {
        if self.quiet || warnings.count() == 0 {
            return;
        }
        if self.wants_json() {
            let wire = serde_json::json!({ "warnings": warnings.reports() });
            return write_stderr_line(&self.stderr, &text::escape_json(&wire.to_string()));
        }
        write_stderr_line(
            &self.stderr,
            render_diagnostics(warnings, self.stderr_painter()).trim_end_matches('\n'),
        );
    }

    /// Prints text on stderr even with `--quiet`.
    pub(crate) fn print_stderr_lines(&self, lines: &[String]) {
        if !lines.is_empty() {
            write_stderr_line(&self.stderr, &lines.join("\n"));
        }
    }

    /// Prints the error that ends the program.
    pub(crate) fn print_error(&self, error: &CliError) {
        if error.kind == CliErrorKind::OutputClosed {
            return;
        }
        write_stderr_line(&self.stderr, &render_error(error, self.format, self.stderr_painter()));
    }
}

/// Prints a usage error as JSON; the command line is not known well enough to create a [`Ui`].
pub(crate) fn print_usage_error(error: &CliError) {
    write_stderr_line(
        &io::stderr(),
        &render_error(error, OutputFormat::Json, TextPainter { enabled: false }),
    );
}

/// Writes a line to stderr. A failure is ignored, because it cannot be reported.
fn write_stderr_line(stderr: &io::Stderr, text: &str) {
    drop(stderr.lock().write_all(format!("{}\n", text::escape_control(text)).as_bytes()));
}

/// The renderer leaves no control characters of the source in its text; the escape sequences are its own colors.
fn render_diagnostics(diagnostics: &SpecDiagnostics, paint: TextPainter) -> String {
    style::mark_colors(&diagnostics.render(paint.spec_style()))
}

fn output_error(error: &io::Error) -> CliError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => {
            CliError::new(CliErrorKind::OutputClosed, "the reader closed the output")
        }
        _ => CliError::io(format!("cannot write to stdout: {error}")),
    }
}

fn render_error(error: &CliError, format: OutputFormat, paint: TextPainter) -> String {
    #[derive(Serialize)]
    struct JsonError<'a> {
        error: &'a str,
        hint: Option<&'a str>,
        kind: CliErrorKind,
        exit_code: u8,
        /// Only for errors in a spec file.
        #[serde(skip_serializing_if = "Option::is_none")]
        diagnostics: Option<Vec<windlass_spec::DiagnosticReport>>,
    }
    if format == OutputFormat::Json {
        let wire = JsonError {
            error: &error.message,
            hint: error.hint.as_deref(),
            kind: error.kind,
            exit_code: error.kind.exit().code(),
            diagnostics: (!error.diagnostics.is_empty()).then(|| {
                error.diagnostics.iter().flat_map(windlass_spec::SpecDiagnostics::reports).collect()
            }),
        };
        let json = serde_json::to_string(&wire).unwrap_or_else(|_| error.message.clone());
        return text::escape_json(&json).into_owned();
    }
    let found: String = error.diagnostics.iter().map(|found| render_diagnostics(found, paint)).collect();
    let sign = |tone, word| paint.apply(tone, word);
    let hint = error.hint.as_ref().map(|hint| format!("\n{} {hint}", sign(TextTone::Busy, "hint:")));
    format!("{found}{} {}{}", sign(TextTone::Bad, "error:"), error.message, hint.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_render_with_hint() {
        let error = CliError::user("no workflow `sim`").with_hint("see `windlass workflows`");
        assert_eq!(
            render_error(&error, OutputFormat::Table, TextPainter::PLAIN),
            "error: no workflow `sim`\nhint: see `windlass workflows`"
        );
        assert_eq!(
            render_error(&error, OutputFormat::Json, TextPainter::PLAIN),
            r#"{"error":"no workflow `sim`","hint":"see `windlass workflows`","kind":"user","exit_code":2}"#
        );
    }
}
