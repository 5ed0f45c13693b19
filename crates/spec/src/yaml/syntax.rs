//! Converts the parser's errors to messages for authors of specs.

use crate::diagnostic::SpecDiagnostic;
use crate::source::SourceSpan;
use granit_parser::{ErrorKind, ScanError};

/// `read_to`: the end of the last element that could be parsed.
pub(super) fn syntax_diagnostic(error: &ScanError, text: &str, read_to: usize) -> SpecDiagnostic {
    let (message, help) = describe_error(error.kind());
    let mut at = error.marker().byte_offset().unwrap_or(0);
    if *error.kind() == ErrorKind::InvalidQuotedScalarIndent
        && let Some(quote) = text.get(read_to..at).and_then(|between| between.find(['"', '\'']))
    {
        return unclosed_quote_error(text, read_to + quote, at);
    }
    if is_about_tab(error.kind()) {
        at = first_tab(text, at).unwrap_or(at);
    }
    let diagnostic = SpecDiagnostic::new("syntax", message).with_span(SourceSpan::from_offset(at));
    match braces_help(error.kind(), text, at).or(help) {
        Some(help) => diagnostic.with_help(help),
        None => diagnostic,
    }
}

fn unclosed_quote_error(text: &str, quote: usize, next: usize) -> SpecDiagnostic {
    if text.get(next..).is_none_or(|rest| rest.trim().is_empty()) {
        return SpecDiagnostic::new("syntax", "this quote is never closed")
            .with_span(SourceSpan::from_offset(quote));
    }
    SpecDiagnostic::new("syntax", "this quote is not closed before the next entry")
        .with_span(SourceSpan::new(quote, quote + 1))
        .with_label(SourceSpan::from_offset(next), "the quoted text cannot continue here")
        .with_help("close it, or indent the lines that belong to the text")
}

/// Returns the first tab of consecutive lines that are indented with tabs. The parser notices the last one and
/// points at the element that it was reading.
fn first_tab(text: &str, at: usize) -> Option<usize> {
    let tab = at + text.get(at..)?.find('\t')?;
    let mut start = text[..tab].rfind('\n').map_or(0, |end| end + 1);
    let mut first = tab;
    while let Some(above) = text[..start].strip_suffix('\n') {
        start = above.rfind('\n').map_or(0, |end| end + 1);
        let indentation = above[start..].len() - above[start..].trim_start_matches([' ', '\t']).len();
        match above[start..start + indentation].find('\t') {
            Some(tab) => first = start + tab,
            None => break,
        }
    }
    Some(first)
}

/// Returns help if braces in an unquoted text were parsed as a map.
fn braces_help(kind: &ErrorKind, text: &str, at: usize) -> Option<&'static str> {
    use ErrorKind as E;
    let is_about_structure = matches!(
        kind,
        E::ExpectedFlowMappingSeparator | E::ExpectedFlowSequenceSeparator | E::ExpectedBlockMappingKey
    );
    let (before, after) = text.split_at_checked(at)?;
    let is_beside_braces = after.starts_with('{') || before.trim_end_matches(' ').ends_with('}');
    (is_about_structure && is_beside_braces).then_some("put the whole text in quotes: \"… {name} …\"")
}

fn is_about_tab(kind: &ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::TabNotAllowed
            | ErrorKind::TabInBlockIndentation
            | ErrorKind::TabInIndentation
            | ErrorKind::TabInPlainScalar
            | ErrorKind::TabAtBlockScalarStart
    )
}

/// Returns the message and the usual remedy.
fn describe_error(kind: &ErrorKind) -> (String, Option<&'static str>) {
    use ErrorKind as E;
    let quote = Some("put the whole value in quotes");
    let (message, help) = match kind {
        E::MappingValueNotAllowed | E::InvalidColonPlacement => {
            ("`: ` begins a value here, where no value is allowed", Some("quote texts that contain `: `"))
        }
        E::UnclosedQuotedScalar => ("this quote is never closed", None),
        E::InvalidTrailingDoubleQuotedScalar | E::InvalidTrailingSingleQuotedScalar => {
            ("text after the closing quote", quote)
        }
        E::UnexpectedCharacter { character } if character.is_control() => {
            let help = "write it as an escape in double quotes";
            return (format!("the control character `{}`", character.escape_default()), Some(help));
        }
        E::UnexpectedCharacter { character } => {
            return (format!("a value cannot begin with `{}`", character.escape_default()), quote);
        }
        E::UnclosedFlowCollection { open } => return (format!("`{open}` is never closed"), None),
        E::MismatchedFlowCollectionEnd { open, close } => {
            return (format!("`{open}` is closed by `{close}`"), None);
        }
        E::MisplacedFlowCollectionEnd => ("a closing bracket without an opening one", quote),
        E::ExpectedFlowMappingSeparator | E::UnexpectedEofFlowMapping => ("expected `,` or `}`", None),
        E::ExpectedFlowSequenceSeparator | E::UnexpectedEofFlowSequence => ("expected `,` or `]`", None),
        E::ExpectedBlockMappingKey => {
            ("expected a key of the enclosing map", Some("check the indentation, or quote the value"))
        }
        E::SimpleKeyExpected => ("expected `key: value`", Some("is a `:` missing, or a space after it?")),
        E::ExpectedBlockSequenceEntry => {
            ("expected `- ` and the next item of the list", Some("check the indentation"))
        }
        E::InvalidIndentation | E::InvalidFlowScalarIndent | E::InvalidQuotedScalarIndent => {
            ("the indentation does not match the surrounding lines", None)
        }
        kind if is_about_tab(kind) => ("a tab where only spaces are allowed", Some("indent with spaces")),
        E::UnknownQuotedScalarEscape => (
            "unknown escape in a double-quoted text",
            Some("write `\\\\` for a backslash, or use single quotes"),
        ),
        E::RecursionLimitExceeded => ("nested too deeply", None),
        _ => return (kind.to_string(), None),
    };
    (message.to_owned(), help)
}
