//! Quotes foreign text for files that HTCondor reads: a function for each place where text can occur.
//!
//! Each function writes the text so that HTCondor reads it unchanged, or rejects it. The rules were tested on a
//! real pool: a `$` cannot be written safely anywhere (`$(DOLLAR)` is expanded until none is left, and two of
//! them become a `$$` that is replaced when the job is matched); a ClassAd string of a submit file takes `\"` for
//! a quote and a backslash literally, so that a string cannot end with a backslash; and DAG files have no quotes
//! for words at all.

use std::fmt::Write as _;
use windlass_types::check_site_name;

/// Text that cannot be written in a certain place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} cannot be {place} for HTCondor: {why}")]
pub struct UnquotableText {
    pub text: String,
    pub place: &'static str,
    pub why: String,
}

impl UnquotableText {
    fn new(text: &str, place: &'static str, why: impl Into<String>) -> Self {
        Self { text: text.to_owned(), place, why: why.into() }
    }
}

/// A word of a DAG line: a node, a program, a file.
pub fn quote_dag_word(text: &str) -> Result<&str, UnquotableText> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%~".contains(c);
    let refuse = |why: &str| Err(UnquotableText::new(text, "a word of a DAG file", why));
    match text.chars().find(|&c| !is_plain(c)) {
        _ if text.is_empty() => refuse("it is empty"),
        Some(c) => refuse(&format!("{c:?} cannot be written there; use another name or path")),
        None => Ok(text),
    }
}

/// Quotes the value in `VARS node name="…"`.
pub fn quote_vars(text: &str) -> Result<String, UnquotableText> {
    check_text(text, "a value of VARS", |_| false)?;
    Ok(text.replace('\\', r"\\").replace('"', r#"\""#))
}

/// Returns a ClassAd string, with its quotes.
pub fn quote_classad(text: &str) -> Result<String, UnquotableText> {
    check_text(text, "a ClassAd string", |c| c == '\\')?;
    Ok(format!("\"{}\"", text.replace('"', r#"\""#)))
}

/// Checks the name of a ClassAd attribute.
pub fn check_attribute_name(name: &str) -> Result<&str, UnquotableText> {
    let refuse = |why: &str| Err(UnquotableText::new(name, "an attribute", why));
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !begins || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return refuse("a name consists of letters, digits and `_`, and does not begin with a digit");
    }
    Ok(name)
}

/// Checks an unquoted value after the `=` of a line, such as the path of an executable.
pub fn check_value(text: &str) -> Result<&str, UnquotableText> {
    const PLACE: &str = "a value of a submit file";
    check_text(text, PLACE, |c| "\"\\".contains(c))?;
    if text.is_empty() || text.trim() != text {
        return Err(UnquotableText::new(text, PLACE, "it is empty, or begins or ends with a space"));
    }
    Ok(text)
}

/// Checks a path in a list of files to transfer.
pub fn check_transfer_path(path: &str) -> Result<&str, UnquotableText> {
    check_value(path)?;
    match path.chars().find(|c| ",;=".contains(*c)) {
        Some(c) => Err(UnquotableText::new(
            path,
            "a file to transfer",
            format!("{c:?} has a meaning there; rename it"),
        )),
        // A plug-in would fetch it.
        None if path.contains("://") => {
            Err(UnquotableText::new(path, "a file to transfer", "it looks like a URL"))
        }
        None => Ok(path),
    }
}

/// Quotes the variables of an environment, with the quotes around all of them. The second of each pair is text or
/// an HTCondor macro ([`EnvironmentValue::Macro`]).
pub fn quote_environment<'a>(
    variables: impl IntoIterator<Item = (&'a str, EnvironmentValue<'a>)>,
) -> Result<String, UnquotableText> {
    let mut all = String::new();
    for (name, variable) in variables {
        check_attribute_name(name)?;
        let shown = match variable {
            EnvironmentValue::Macro(text) => text.to_owned(),
            EnvironmentValue::Text(text) => {
                check_text(text, "a value of an environment", |_| false)?;
                format!("'{}'", text.replace('\'', "''").replace('"', "\"\""))
            }
        };
        let space = if all.is_empty() { "" } else { " " };
        write!(all, "{space}{name}={shown}").ok();
    }
    Ok(format!("\"{all}\""))
}

/// Quotes any text as one word for `sh`, including line breaks.
pub fn quote_shell(text: &str) -> Result<String, UnquotableText> {
    if text.contains('\0') {
        return Err(UnquotableText::new(text, "text of a script", "it contains a NUL"));
    }
    Ok(format!("'{}'", text.replace('\'', r"'\''")))
}

/// The value of an environment variable.
#[derive(Clone, Copy, Debug)]
pub enum EnvironmentValue<'a> {
    /// Literal text from a user.
    Text(&'a str),
    /// A macro of Windlass, which HTCondor replaces with text without spaces and quotes.
    Macro(&'static str),
}

/// Joins site names for HTCondor's list functions.
pub fn quote_site_list<'a>(names: impl IntoIterator<Item = &'a String>) -> Result<String, UnquotableText> {
    let mut list = String::new();
    for name in names {
        let refused =
            |error: windlass_types::ParseSiteError| UnquotableText::new(name, "a site", error.to_string());
        check_site_name(name).map_err(refused)?;
        if !list.is_empty() {
            list.push(',');
        }
        list.push_str(name);
    }
    Ok(list)
}

/// Rejects macros, line breaks, and the characters that are `unwanted` here.
fn check_text(
    text: &str,
    place: &'static str,
    unwanted: impl Fn(char) -> bool,
) -> Result<(), UnquotableText> {
    match text.chars().find(|&c| c == '$' || c.is_control() || unwanted(c)) {
        None => Ok(()),
        Some('$') => Err(UnquotableText::new(text, place, "`$` begins a macro there and cannot be quoted")),
        Some(c) if c.is_control() => {
            Err(UnquotableText::new(text, place, format!("{c:?} is not allowed in a single line of text")))
        }
        Some(c) => Err(UnquotableText::new(text, place, format!("{c:?} cannot be quoted there"))),
    }
}

#[cfg(test)]
mod tests;
