//! Readers of each place as in HTCondor, and that they return the original text for any input.

use super::*;
use proptest::prelude::*;

/// Reads a value of VARS as DAGMan does: up to a quote; a backslash escapes the next character.
fn read_vars(written: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut rest = written.char_indices();
    loop {
        match rest.next()? {
            (_, '\\') => text.push(rest.next()?.1),
            (at, '"') => return Some((text, &written[at + 1..])),
            (_, c) => text.push(c),
        }
    }
}

/// Reads a ClassAd string of a submit file: only `\"` is an escape.
fn read_classad(written: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut rest = written.strip_prefix('"')?;
    loop {
        if let Some(after) = rest.strip_prefix("\\\"") {
            text.push('"');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('"') {
            return Some((text, after));
        } else {
            let c = rest.chars().next()?;
            text.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
}

/// Reads an environment in the new syntax: words between spaces, `'` quotes, `''` in quotes and `""` stand for
/// one.
fn read_environment(written: &str) -> Option<Vec<String>> {
    let inner = written.strip_prefix('"')?.strip_suffix('"')?;
    let outer = inner.replace("\"\"", "\u{1}");
    // A single quote would have ended it.
    if outer.contains('"') {
        return None;
    }
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    let mut rest = outer.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\'' if quoted && rest.peek() == Some(&'\'') => word.extend(rest.next()),
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(std::mem::take(&mut word)),
            '\u{1}' => word.push('"'),
            c => word.push(c),
        }
    }
    words.push(word);
    (!quoted).then_some(words)
}

/// Text that contains special characters more often than random text.
fn hostile() -> impl Strategy<Value = String> {
    let special = prop::sample::select(vec![
        "\"", "'", "\\", "$", "$(", "$$(", ")", "\n", "\r", "\t", "#", " ", ",", ";", "=", "é", "€", "queue",
        "a", "\u{0}", "{", "}", "|", "`", "%", "//", "/*",
    ]);
    prop_oneof![
        prop::collection::vec(special, 0..12).prop_map(|parts| parts.concat()),
        any::<String>(),
        "[ -~]{0,20}",
    ]
}

proptest! {
    #[test]
    fn quoted_text_is_read_back_or_rejected(text in hostile()) {
        if let Ok(written) = quote_vars(&text) {
            let line = format!("{written}\" rest");
            prop_assert_eq!(read_vars(&line), Some((text.clone(), " rest")));
        }
        if let Ok(written) = quote_classad(&text) {
            let line = format!("{written} rest");
            prop_assert_eq!(read_classad(&line), Some((text.clone(), " rest")));
        }
        if let Ok(written) = quote_environment([("A", EnvironmentValue::Text(&text)), ("B", EnvironmentValue::Text("b"))]) {
            let meant = vec![format!("A={text}"), "B=b".to_owned()];
            prop_assert_eq!(read_environment(&written), Some(meant));
        }
    }

    /// No macro, no second line, no additional word, wherever the text is written.
    #[test]
    fn quoted_text_stays_in_its_line(text in hostile()) {
        let written = [
            quote_classad(&text), quote_dag_word(&text).map(str::to_owned), check_value(&text).map(str::to_owned),
            check_transfer_path(&text).map(str::to_owned), quote_environment([("A", EnvironmentValue::Text(&text))]),
            check_attribute_name(&text).map(str::to_owned), quote_site_list([&text]),
        ];
        for line in written.iter().flatten() {
            prop_assert!(!line.contains('$') && !line.chars().any(char::is_control), "{line:?}");
            // A line that ends with a backslash continues on the next line.
            prop_assert!(!line.ends_with('\\'), "{line:?}");
        }
        if let Ok(inside) = quote_vars(&text) {
            prop_assert!(!inside.contains('$') && !inside.chars().any(char::is_control), "{inside:?}");
        }
        if let Ok(word) = quote_dag_word(&text) {
            prop_assert_eq!(word.split_whitespace().collect::<Vec<_>>(), vec![word]);
        }
        if let Ok(path) = check_transfer_path(&text) {
            prop_assert_eq!(path.split([',', ';', '=']).count(), 1);
        }
    }
}

#[test]
fn ordinary_text_is_written_unchanged() {
    assert_eq!(quote_dag_word("/opt/windlass-1.2/bin/windlass"), Ok("/opt/windlass-1.2/bin/windlass"));
    assert_eq!(quote_vars(r#"C:\a "b""#).unwrap(), r#"C:\\a \"b\""#);
    assert_eq!(quote_classad(r#"the "big" one, é"#).unwrap(), r#""the \"big\" one, é""#);
    assert_eq!(check_value("/home/ann b/x.pem"), Ok("/home/ann b/x.pem"));
    assert_eq!(check_attribute_name("CMS_Type"), Ok("CMS_Type"));
    assert_eq!(
        quote_site_list(&["T1_US_Alpha".to_owned(), "T2_DE_Beta".to_owned()]).unwrap(),
        "T1_US_Alpha,T2_DE_Beta"
    );
    let both = [("A", EnvironmentValue::Text("it's \"so\"")), ("B", EnvironmentValue::Macro("$(RETRY)"))];
    assert_eq!(quote_environment(both).unwrap(), r#""A='it''s ""so""' B=$(RETRY)""#);
}

#[test]
fn rejection_names_the_text_and_the_reason() {
    let message = |refused: Result<String, UnquotableText>| refused.unwrap_err().to_string();
    assert_eq!(
        message(quote_classad("a$(b)")),
        r#""a$(b)" cannot be a ClassAd string for HTCondor: `$` begins a macro there and cannot be quoted"#
    );
    assert!(message(quote_classad("a\nb")).contains("'\\n' is not allowed in a single line"));
    assert!(
        message(quote_dag_word("/my dir/windlass").map(str::to_owned)).contains("use another name or path")
    );
    assert!(message(quote_site_list(["Zürich".to_owned()].iter())).contains("invalid site name"));
    assert!(
        check_transfer_path("https://x/y").is_err()
            && check_transfer_path("a,b").is_err()
            && check_value(" x").is_err()
    );
    assert!(
        check_attribute_name("1st").is_err()
            && check_attribute_name("a b").is_err()
            && quote_dag_word("").is_err()
    );
}
