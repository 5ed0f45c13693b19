//! Escapes names for each format.

/// Escapes for text and attributes of XML and HTML. Control characters, which XML does not allow, are replaced by
/// a replacement character.
pub(crate) fn escape_xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c if is_unsafe_character(c) => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Escapes for a quoted string of the DOT language.
pub(crate) fn escape_dot(text: &str) -> String {
    let plain = escape_terminal(text);
    plain.replace('\\', "\\\\").replace('"', "\\\"")
}

/// Escapes for a quoted label of Mermaid, which supports only numeric entities.
pub(crate) fn escape_mermaid(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in escape_terminal(text).chars() {
        match c {
            c if c.is_alphanumeric() || " _-.,:/×·()=+%".contains(c) => escaped.push(c),
            c => {
                put!(escaped, "#{};", u32::from(c));
            }
        }
    }
    escaped
}

/// Escapes for a terminal: replaces characters that move the cursor or change colors.
pub(crate) fn escape_terminal(text: &str) -> String {
    text.chars().map(|c| if is_unsafe_character(c) { '\u{fffd}' } else { c }).collect()
}

/// Whether this is a control character or one that changes the text direction.
fn is_unsafe_character(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_escaped_in_every_format() {
        let nasty = "a<b>&\"c'\\\n\u{1b}[31m\u{202e}";
        assert_eq!(escape_xml(nasty), "a&lt;b&gt;&amp;&quot;c&#39;\\\u{fffd}\u{fffd}[31m\u{fffd}");
        assert_eq!(escape_dot(nasty), "a<b>&\\\"c'\\\\\u{fffd}\u{fffd}[31m\u{fffd}");
        assert_eq!(escape_mermaid("f\"(x)];#"), "f#34;(x)#93;#59;#35;");
        assert_eq!(escape_terminal(nasty), "a<b>&\"c'\\\u{fffd}\u{fffd}[31m\u{fffd}");
    }
}
