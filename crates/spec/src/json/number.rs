//! Numbers of JSON and JSON5. A number keeps the digits it is written with; only what no other format would understand
//! (hexadecimal, a bare dot, `+`) is put in the words of all.

use super::Json;
use crate::diagnostic::{Diagnostic, Sink};
use crate::event::{Kind, Scalar, is_json_number};
use crate::source::Span;
use std::borrow::Cow;

impl<'s> Json<'s> {
    /// The number that begins here.
    pub(super) fn number(&mut self, sink: &mut Sink) -> Kind<'s> {
        let rest = self.rest();
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '+' | '-' | '.' | '_');
        let written = &rest[..rest.len() - rest.trim_start_matches(is_part).len()];
        let span = Span::new(self.at, self.at + written.len());
        self.at += written.len();
        if is_json_number(written) {
            return Kind::Scalar(Scalar { text: Cow::Borrowed(written), plain: true });
        }
        let Some(text) = json5_number(written) else {
            let diagnostic = Diagnostic::new("syntax", format!("`{written}` is no number")).at(span);
            sink.push(diagnostic.help("put it in quotes if it is a text"));
            return Kind::Bad;
        };
        self.only_json5(&format!("the number `{written}`"), span, sink);
        Kind::Scalar(Scalar { text: Cow::Owned(text), plain: true })
    }
}

/// A number that JSON5 has and JSON has not, as JSON would write it if it can.
fn json5_number(written: &str) -> Option<String> {
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
            None => with_digits_around_the_dot(unsigned),
        },
    };
    let text = format!("{sign}{plain}");
    (plain == ".inf" || is_json_number(&text)).then_some(text)
}

/// `.5` as `0.5`, `5.` as `5` and `5.e3` as `5e3`.
fn with_digits_around_the_dot(unsigned: &str) -> String {
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
    fn numbers_of_json5() {
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
            assert_eq!(json5_number(written).as_deref(), text, "{written}");
        }
    }
}
