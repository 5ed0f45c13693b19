//! Formats a spec canonically: same format, same values, same comments.
//!
//! Indentation, spacing and line breaks are normalized; words, quotes, order, anchors, comments and single blank
//! lines are kept. The result is parsed again, and returned only if it has the same content and comments.

mod json;
mod kdl;
mod layout_blocks;
mod toml;
mod yaml;

use crate::convert::{read_tree, read_unchecked_tree};
use crate::diagnostic::{DiagnosticSink, SpecDiagnostic, SpecDiagnostics};
use crate::format::{SpecFormat, SpecSource};
use crate::source::SourceSpan;

/// Formats a spec. It must be syntactically valid; its fields are not checked.
pub fn reformat_spec(source: SpecSource<'_>) -> Result<String, SpecDiagnostics> {
    let (text, format) = source.open()?;
    let tree = read_unchecked_tree(source.name, text, format)?;
    let laid_out = match format {
        SpecFormat::Yaml => yaml::render_layout(text),
        SpecFormat::Json | SpecFormat::Json5 => Ok(json::render_layout(text, &tree, format)),
        SpecFormat::Toml => toml::render_layout(text),
        SpecFormat::Kdl => kdl::render_layout(text),
    };
    let refuse = |reason: UnsupportedLayout| {
        let mut sink = DiagnosticSink::default();
        let diagnostic =
            SpecDiagnostic::new("cannot-format", reason.reason).with_help("format this file manually");
        sink.push(match reason.span {
            Some(span) => diagnostic.with_span(span),
            None => diagnostic,
        });
        sink.into_diagnostics(source.name, text)
    };
    let laid_out = laid_out.map_err(refuse)?;
    let is_same = read_tree(&laid_out, format).is_some_and(|again| again.is_equivalent(&tree))
        && collect_comments(&laid_out, format) == collect_comments(text, format);
    if is_same {
        return Ok(laid_out);
    }
    Err(refuse(UnsupportedLayout {
        reason: "this file cannot be formatted without losing content",
        span: None,
    }))
}

/// A construct that the formatter does not support.
#[derive(Debug)]
struct UnsupportedLayout {
    reason: &'static str,
    span: Option<SourceSpan>,
}

/// Returns the comments of a text in order, line by line and without their indentation.
fn collect_comments(text: &str, format: SpecFormat) -> Vec<String> {
    let spans = match format {
        SpecFormat::Yaml => yaml::find_comments(text),
        SpecFormat::Json | SpecFormat::Json5 => json::find_comments(text),
        SpecFormat::Toml => toml::find_comments(text),
        SpecFormat::Kdl => crate::kdl::find_comments(text).unwrap_or_default(),
    };
    let lines = |span: SourceSpan| {
        text[span.start as usize..span.end as usize].lines().map(|line| line.trim().to_owned())
    };
    spans.into_iter().flat_map(lines).collect()
}

#[cfg(test)]
mod tests;
