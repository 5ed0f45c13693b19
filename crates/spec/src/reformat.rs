//! A spec in canonical layout: same format, same values, same comments.
//!
//! Indentation, spacing and line breaks are ours; words, quotes, order, anchors, comments and single blank lines are the
//! author's. The result is read again, and given out only if it says the same with the same comments.

mod json;
mod kdl;
mod outline;
mod toml;
mod yaml;

use crate::convert::{read_any, read_tree};
use crate::diagnostic::{Diagnostic, Diagnostics, Sink};
use crate::format::{Format, Source};
use crate::source::Span;

/// Lays a spec out anew. It must be readable; whether its fields are right does not matter here.
pub fn reformat(source: Source<'_>) -> Result<String, Diagnostics> {
    let (text, format) = source.open()?;
    let tree = read_any(source.name, text, format)?;
    let laid_out = match format {
        Format::Yaml => yaml::lay_out(text),
        Format::Json | Format::Json5 => Ok(json::lay_out(text, &tree, format)),
        Format::Toml => toml::lay_out(text),
        Format::Kdl => kdl::lay_out(text),
    };
    let refuse = |reason: Unusual| {
        let mut sink = Sink::default();
        let diagnostic = Diagnostic::new("cannot-format", reason.why).help("lay this file out by hand");
        sink.push(match reason.at {
            Some(span) => diagnostic.at(span),
            None => diagnostic,
        });
        sink.into_diagnostics(source.name, text)
    };
    let laid_out = laid_out.map_err(refuse)?;
    let is_same = read_tree(&laid_out, format).is_some_and(|again| again.means_the_same(&tree))
        && comments(&laid_out, format) == comments(text, format);
    if is_same {
        return Ok(laid_out);
    }
    Err(refuse(Unusual { why: "this file cannot be laid out without losing something", at: None }))
}

/// Something that the layout has no place for.
#[derive(Debug)]
struct Unusual {
    why: &'static str,
    at: Option<Span>,
}

/// The comments of a text in its order, line by line and without their indentation.
fn comments(text: &str, format: Format) -> Vec<String> {
    let spans = match format {
        Format::Yaml => yaml::comments(text),
        Format::Json | Format::Json5 => json::comments(text),
        Format::Toml => toml::comments(text),
        Format::Kdl => crate::kdl::comments(text).unwrap_or_default(),
    };
    let lines =
        |span: Span| text[span.start as usize..span.end as usize].lines().map(|line| line.trim().to_owned());
    spans.into_iter().flat_map(lines).collect()
}

#[cfg(test)]
mod tests;
