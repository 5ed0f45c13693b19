//! What others wrote, in files that HTCondor reads: a function for each place where it can stand.
//!
//! Each writes the text so that it arrives as it was, or refuses it. What was tried on a real pool is behind the rules:
//! a `$` cannot be written safely anywhere (`$(DOLLAR)` is expanded until none is left, and two of them become a `$$` that
//! is replaced when the job is matched), a ClassAd string of a submit file takes `\"` for a quote and a backslash for
//! itself, so that one cannot end with it, and DAG files have no quotes for words at all.

use std::fmt::Write as _;
use windlass_types::check_site_name;

/// Text that cannot be written where it should stand.
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
        Some(c) => refuse(&format!("there is no way to write {c:?} there; use another name or path")),
        None => Ok(text),
    }
}

/// What stands between the quotes of `VARS node name="…"`.
pub fn quote_vars(text: &str) -> Result<String, UnquotableText> {
    check_text(text, "a value of VARS", |_| false)?;
    Ok(text.replace('\\', r"\\").replace('"', r#"\""#))
}

/// A string of a ClassAd, with its quotes.
pub fn quote_classad(text: &str) -> Result<String, UnquotableText> {
    check_text(text, "a ClassAd string", |c| c == '\\')?;
    Ok(format!("\"{}\"", text.replace('"', r#"\""#)))
}

/// The name of an attribute of a ClassAd.
pub fn check_attribute_name(name: &str) -> Result<&str, UnquotableText> {
    let refuse = |why: &str| Err(UnquotableText::new(name, "an attribute", why));
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !begins || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return refuse("one has letters, digits and `_`, and begins with no digit");
    }
    Ok(name)
}

/// What follows the `=` of a line that has no quotes, such as the path of an executable.
pub fn check_value(text: &str) -> Result<&str, UnquotableText> {
    const PLACE: &str = "a value of a submit file";
    check_text(text, PLACE, |c| "\"\\".contains(c))?;
    if text.is_empty() || text.trim() != text {
        return Err(UnquotableText::new(text, PLACE, "it is empty, or begins or ends with a space"));
    }
    Ok(text)
}

/// One of the files of a list of files to transfer.
pub fn check_transfer_path(path: &str) -> Result<&str, UnquotableText> {
    check_value(path)?;
    match path.chars().find(|c| ",;=".contains(*c)) {
        Some(c) => Err(UnquotableText::new(
            path,
            "a file to transfer",
            format!("{c:?} has a meaning there; rename it"),
        )),
        // It would be fetched by a plug-in.
        None if path.contains("://") => {
            Err(UnquotableText::new(path, "a file to transfer", "it looks like a URL"))
        }
        None => Ok(path),
    }
}

/// The variables of an environment, with the quotes around all of them. The second of each pair is text, or is put there
/// by HTCondor ([`Variable::Macro`]).
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

/// A word for `sh`, whatever is in it: line ends and all.
pub fn quote_shell(text: &str) -> Result<String, UnquotableText> {
    if text.contains('\0') {
        return Err(UnquotableText::new(text, "text of a script", "it has a NUL in it"));
    }
    Ok(format!("'{}'", text.replace('\'', r"'\''")))
}

/// What a variable is set to.
#[derive(Clone, Copy, Debug)]
pub enum EnvironmentValue<'a> {
    /// As somebody wrote it.
    Text(&'a str),
    /// Ours: replaced by HTCondor, with something that has neither spaces nor quotes.
    Macro(&'static str),
}

/// Names of sites, as HTCondor's functions for lists take them.
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

/// Neither macros nor the end of a line can be in it, nor what is `unwanted` here.
fn check_text(
    text: &str,
    place: &'static str,
    unwanted: impl Fn(char) -> bool,
) -> Result<(), UnquotableText> {
    match text.chars().find(|&c| c == '$' || c.is_control() || unwanted(c)) {
        None => Ok(()),
        Some('$') => Err(UnquotableText::new(text, place, "`$` begins a macro there and cannot be quoted")),
        Some(c) if c.is_control() => {
            Err(UnquotableText::new(text, place, format!("{c:?} cannot stand in one line of text")))
        }
        Some(c) => Err(UnquotableText::new(text, place, format!("{c:?} cannot be quoted there"))),
    }
}

#[cfg(test)]
mod tests;
