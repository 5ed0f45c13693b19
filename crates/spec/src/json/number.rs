//! Numbers of JSON and JSON5. A number keeps its digits; only forms that other formats do not have (hexadecimal,
//! a bare dot, `+`) are rewritten.

use super::JsonReader;
use crate::diagnostic::{DiagnosticSink, SpecDiagnostic};
use crate::event::{DocumentEventKind, ScalarText, is_json_number};
use crate::source::SourceSpan;
use std::borrow::Cow;

impl<'s> JsonReader<'s> {
    /// Parses the number that begins here.
    pub(super) fn read_number(&mut self, sink: &mut DiagnosticSink) -> DocumentEventKind<'s> {
        let rest = self.rest();
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '+' | '-' | '.' | '_');
        let written = &rest[..rest.len() - rest.trim_start_matches(is_part).len()];
        let span = SourceSpan::new(self.position, self.position + written.len());
        self.position += written.len();
        if is_json_number(written) {
            return DocumentEventKind::Scalar(ScalarText { text: Cow::Borrowed(written), is_plain: true });
        }
        let Some(text) = convert_json5_number(written) else {
            let diagnostic =
                SpecDiagnostic::new("syntax", format!("`{written}` is not a number")).with_span(span);
            sink.push(diagnostic.with_help("put it in quotes if it is a text"));
            return DocumentEventKind::Bad;
        };
        self.report_json5_only(&format!("the number `{written}`"), span, sink);
        DocumentEventKind::Scalar(ScalarText { text: Cow::Owned(text), is_plain: true })
    }
}

/// Returns a number in JSON5 syntax as JSON would write it, if possible.
fn convert_json5_number(written: &str) -> Option<String> {
    let unsigned = written.strip_prefix(['+', '-']).unwrap_or(written);
    let sign = if written.starts_with('-') { "-" } else { "" };
    let plain = match unsigned {
        "Infinity" => ".inf".to_owned(),
        "NaN" => return Some(".nan".to_owned()),
        _ => match unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
            Some(digits) if digits.starts_with(|c: char| c.is_ascii_hexdigit()) => {
                u128::from_str_radix(digits, 16).ok()?.to_string()
            }
            Some(_) => return None,
            None => pad_decimal_point(unsigned),
        },
    };
    let text = format!("{sign}{plain}");
    (plain == ".inf" || is_json_number(&text)).then_some(text)
}

/// `.5` as `0.5`, `5.` as `5` and `5.e3` as `5e3`.
fn pad_decimal_point(unsigned: &str) -> String {
    let Some((whole, fraction)) = unsigned.split_once('.') else { return unsigned.to_owned() };
    let whole =
        if whole.is_empty() && fraction.starts_with(|c: char| c.is_ascii_digit()) { "0" } else { whole };
    if fraction.is_empty() || fraction.starts_with(['e', 'E']) {
        return format!("{whole}{fraction}");
    }
    format!("{whole}.{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json5_numbers_are_normalized() {
        for (written, text) in [
            ("+5", Some("5")),
            (".5", Some("0.5")),
            ("-.5e3", Some("-0.5e3")),
            ("5.", Some("5")),
            ("5.e3", Some("5e3")),
            ("0x1F", Some("31")),
            ("-0xff", Some("-255")),
            ("Infinity", Some(".inf")),
            ("-Infinity", Some("-.inf")),
            ("NaN", Some(".nan")),
            (".", None),
            ("+", None),
            ("0x", None),
            ("0x+5", None),
            ("00", None),
            ("1_000", None),
            ("1e", None),
            ("5..", None),
            ("0xffffffffffffffffffffffffffffffffff", None),
        ] {
            assert_eq!(convert_json5_number(written).as_deref(), text, "{written}");
        }
    }
}
