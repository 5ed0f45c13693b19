//! The parser's complaints in the words of people who write spec files.

use crate::diagnostic::Diagnostic;
use crate::source::Span;
use granit_parser::{ErrorKind, ScanError};

pub(super) fn diagnostic(error: &ScanError, text: &str) -> Diagnostic {
    let (message, help) = words(error.kind());
    let mut at = error.marker().byte_offset().unwrap_or(0);
    if is_about_tab(error.kind()) {
        // The parser points at what it was reading when it met the tab.
        at += text.get(at..).and_then(|rest| rest.find('\t')).unwrap_or(0);
    }
    let diagnostic = Diagnostic::new("syntax", message).at(Span::at(at));
    match help {
        Some(help) => diagnostic.help(help),
        None => diagnostic,
    }
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

/// What is wrong, and what usually helps.
fn words(kind: &ErrorKind) -> (String, Option<&'static str>) {
    use ErrorKind as E;
    let quote = Some("put the whole value in quotes");
    let (message, help) = match kind {
        E::MappingValueNotAllowed | E::InvalidColonPlacement => {
            ("`: ` begins a value here, where none can be", Some("put a text that contains `: ` in quotes"))
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
            ("expected a key of the map around it", Some("check the indentation, or quote the value"))
        }
        E::SimpleKeyExpected => ("expected `key: value`", Some("is a `:` missing, or a space after it?")),
        E::ExpectedBlockSequenceEntry => {
            ("expected `- ` and the next item of the list", Some("check the indentation"))
        }
        E::InvalidIndentation | E::InvalidFlowScalarIndent | E::InvalidQuotedScalarIndent => {
            ("the indentation does not fit the lines around it", None)
        }
        kind if is_about_tab(kind) => ("a tab where only spaces may stand", Some("indent with spaces")),
        E::UnknownQuotedScalarEscape => (
            "unknown escape in a double-quoted text",
            Some("write `\\\\` for a backslash, or use single quotes"),
        ),
        E::RecursionLimitExceeded => ("nested too deeply", None),
        _ => return (kind.to_string(), None),
    };
    (message.to_owned(), help)
}
