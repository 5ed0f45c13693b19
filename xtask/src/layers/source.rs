//! Looks for the word `unsafe` in the sources, ignoring comments and strings.
//!
//! The lint `unsafe_code` is already denied everywhere; this finds a crate that allows it with `expect`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

#[derive(Debug, PartialEq)]
pub(super) struct SourcePlace {
    /// Relative to the root of the checkout.
    pub(super) file: PathBuf,
    pub(super) line: usize,
}

/// All places below `crates` and `xtask` in `root` that contain `unsafe`, except those in the folder `allowed`.
pub(super) fn find_unsafe(root: &Path, allowed: &str) -> Result<Vec<SourcePlace>> {
    let mut files = Vec::new();
    for folder in ["crates", "xtask"] {
        collect_sources(&root.join(folder), &mut files)?;
    }
    files.sort();
    let mut places = Vec::new();
    for file in files {
        let relative = file.strip_prefix(root).unwrap_or(&file);
        if relative.starts_with(allowed) {
            continue;
        }
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        places.extend(
            unsafe_lines(&text).into_iter().map(|line| SourcePlace { file: relative.to_path_buf(), line }),
        );
    }
    Ok(places)
}

fn collect_sources(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect_sources(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The lines (from 1) with `unsafe` as a word of code.
fn unsafe_lines(text: &str) -> Vec<usize> {
    let code = blank_out(text);
    let is_word = |line: &str| {
        line.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|word| word == "unsafe")
    };
    code.lines().enumerate().filter(|(_, line)| is_word(line)).map(|(index, _)| index + 1).collect()
}

/// The text with comments, strings and character literals replaced by spaces; line numbers do not change.
pub(crate) fn blank_out(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let length = literal_or_comment(rest, &code);
        let (taken, after) = rest.split_at(length.unwrap_or(next.len_utf8()));
        if length.is_some() {
            code.extend(taken.chars().map(|letter| if letter == '\n' { '\n' } else { ' ' }));
        } else {
            code.push_str(taken);
        }
        rest = after;
    }
    code
}

/// The length in bytes of the comment or literal at the start of `rest`, if there is one.
fn literal_or_comment(rest: &str, before: &str) -> Option<usize> {
    let until = |end: Option<usize>| Some(end.unwrap_or(rest.len()));
    if rest.starts_with("//") {
        return until(rest.find('\n'));
    }
    if rest.starts_with("/*") {
        return Some(block_comment(rest));
    }
    if rest.starts_with('"') {
        return Some(quoted(rest, '"'));
    }
    let inside_word =
        before.chars().next_back().is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    if rest.starts_with('r') && (!inside_word || before.ends_with('b')) {
        return raw_string(rest);
    }
    if rest.starts_with('\'') && is_character(rest) {
        return Some(quoted(rest, '\''));
    }
    None
}

/// Block comments nest.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

/// A literal between two `mark`s, with backslash escapes.
fn quoted(rest: &str, mark: char) -> usize {
    let mut letters = rest.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        if letter == '\\' {
            letters.next();
        } else if letter == mark {
            return at + 1;
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#` and so on, but not an identifier that starts with r.
fn raw_string(rest: &str) -> Option<usize> {
    let hashes = rest[1..].chars().take_while(|letter| *letter == '#').count();
    let start = 1 + hashes;
    if !rest[start..].starts_with('"') {
        return None;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let length = rest[start + 1..].find(&end).map(|at| start + 1 + at + end.len());
    Some(length.unwrap_or(rest.len()))
}

/// Distinguishes `'x'` and `'\n'` from a lifetime.
fn is_character(rest: &str) -> bool {
    let mut letters = rest.chars().skip(1);
    match letters.next() {
        Some('\\') => true,
        Some(_) => letters.next() == Some('\''),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_code_is_found_with_line() {
        let cases = [
            ("fn f() {\n    unsafe { g() }\n}", vec![2]),
            ("unsafe impl Send for X {}", vec![1]),
            ("pub unsafe fn f() {}\n\npub(crate) unsafe extern \"C\" fn g() {}", vec![1, 3]),
            ("#[unsafe(no_mangle)]", vec![1]),
            ("let c = '\"'; unsafe {} // \"", vec![1]),
            ("fn f<'a>(x: &'a str) { unsafe {} }", vec![1]),
            ("let r = 1; let bar\"\"; unsafe {}", vec![1]),
        ];
        for (text, expected) in cases {
            assert_eq!(unsafe_lines(text), expected, "{text}");
        }
    }

    #[test]
    fn unsafe_in_comments_and_strings_is_ignored() {
        let cases = [
            "#![expect(unsafe_code, reason = \"no\")]",
            "// unsafe\n/// unsafe { }\n//! unsafe",
            "/* unsafe /* unsafe */ unsafe */",
            "let s = \"unsafe\"; let t = \"a \\\" unsafe\";",
            "let s = r#\"an \" unsafe \"#; let b = br\"unsafe\";",
            "let not_unsafe = unsafely();",
            "let several = \"lines\nunsafe\";",
        ];
        for text in cases {
            assert_eq!(unsafe_lines(text), Vec::<usize>::new(), "{text}");
        }
    }

    #[test]
    fn blanking_keeps_line_numbers() {
        let text = "a /* x\ny */ b\n\"p\nq\" c // end\nd";
        let code = blank_out(text);
        assert_eq!(code.lines().count(), text.lines().count());
        assert!(code.lines().nth(1).unwrap().ends_with('b') && code.ends_with('d'));
    }
}
