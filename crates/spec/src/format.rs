//! The file formats of specs: which one a file is in, and the front end that reads it.

use crate::diagnostic::{Diagnostics, Sink};
use crate::event::{Event, Events, Kind, Stop};
use crate::json::Json;
use crate::tree::{Replay, Tree};
use crate::yaml::Yaml;
use crate::{kdl, source, toml};
use std::path::Path;

/// A format that specs are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    Yaml,
    Json,
    Json5,
    Toml,
    Kdl,
}

impl Format {
    pub const ALL: [Self; 5] = [Self::Yaml, Self::Json, Self::Json5, Self::Toml, Self::Kdl];

    /// By the extension of a file name.
    pub fn from_path(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "yml" => Some(Self::Yaml),
            other => Self::ALL.into_iter().find(|format| format.extension() == other),
        }
    }

    /// By the look of the text. Always the same answer for the same text, and YAML if nothing speaks for another.
    pub fn detect(text: &[u8]) -> Self {
        detect(&String::from_utf8_lossy(text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)))
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Yaml => "YAML",
            Self::Json => "JSON",
            Self::Json5 => "JSON5",
            Self::Toml => "TOML",
            Self::Kdl => "KDL",
        }
    }

    /// Without the dot.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Yaml => "yaml",
            Self::Json => "json",
            Self::Json5 => "json5",
            Self::Toml => "toml",
            Self::Kdl => "kdl",
        }
    }
}

/// The text of a spec.
#[derive(Clone, Copy, Debug)]
pub struct Source<'s> {
    /// For messages, usually the path of the file.
    pub name: &'s str,
    pub text: &'s [u8],
    /// `None`: told by the extension of the name, or else by the text.
    pub format: Option<Format>,
}

impl<'s> Source<'s> {
    pub const fn new(name: &'s str, text: &'s [u8]) -> Self {
        Self { name, text, format: None }
    }

    pub fn format(&self) -> Format {
        self.format
            .or_else(|| Format::from_path(Path::new(self.name)))
            .unwrap_or_else(|| Format::detect(self.text))
    }

    /// The text, if it is one, and its format.
    pub(crate) fn open(&self) -> Result<(&'s str, Format), Diagnostics> {
        Ok((source::read(self.name, self.text)?, self.format()))
    }
}

/// Any front end.
pub(crate) enum Front<'s> {
    Yaml(Box<Yaml<'s>>),
    Json(Json<'s>),
    /// Of a format whose documents are read as a whole, when the first event is asked for.
    Unread(&'s str, fn(&'s str, &mut Sink) -> Result<Option<Tree<'s>>, Stop>),
    Tree(Replay<'s>),
    /// The document could not be read to its end.
    Stopped,
}

impl<'s> Front<'s> {
    pub(crate) fn new(text: &'s str, format: Format) -> Self {
        match format {
            Format::Yaml => Self::Yaml(Box::new(Yaml::new(text))),
            Format::Json => Self::Json(Json::strict(text)),
            Format::Json5 => Self::Json(Json::json5(text)),
            Format::Toml => Self::Unread(text, toml::read),
            Format::Kdl => Self::Unread(text, kdl::read),
        }
    }
}

impl<'s> Events<'s> for Front<'s> {
    fn next(&mut self, sink: &mut Sink) -> Result<Event<'s>, Stop> {
        if let Self::Unread(text, read) = self {
            *self = read(text, sink).map_or(Self::Stopped, |tree| Self::Tree(Replay::new(tree)));
        }
        match self {
            Self::Yaml(yaml) => yaml.next(sink),
            Self::Json(json) => json.next(sink),
            Self::Tree(tree) => tree.next(sink),
            Self::Unread(..) | Self::Stopped => Err(Stop),
        }
    }

    fn leave(&mut self, sink: &mut Sink) -> Result<(), Stop> {
        match self {
            Self::Yaml(yaml) => yaml.leave(sink),
            Self::Json(json) => json.leave(sink),
            Self::Tree(tree) => tree.leave(sink),
            Self::Unread(..) | Self::Stopped => Err(Stop),
        }
    }
}

fn detect(text: &str) -> Format {
    let (rest, has_slash_comments) = past_comments(text);
    match rest.chars().next() {
        Some('[') if !has_slash_comments && is_table_header(rest) => Format::Toml,
        Some('{' | '[') => detect_braced(text, has_slash_comments),
        Some(_) if has_slash_comments => Format::Kdl,
        None | Some('%' | '-' | '?' | '&' | '*' | '!' | '|' | '>') => Format::Yaml,
        Some(_) => detect_by_first_word(rest),
    }
}

/// JSON is YAML too, and so is much of JSON5: the strictest format that has nothing to complain about.
fn detect_braced(text: &str, has_slash_comments: bool) -> Format {
    let is_clean = |format| {
        let mut sink = Sink::default();
        let mut front = Front::new(text, format);
        while matches!(front.next(&mut sink), Ok(event) if !matches!(event.kind, Kind::End)) {}
        sink.is_empty()
    };
    if let Some(format) = [Format::Json, Format::Json5, Format::Yaml].into_iter().find(|f| is_clean(*f)) {
        return format;
    }
    // Broken in each of them: the one that it most looks like has the best words for it.
    let inside = text.trim_start().trim_start_matches(['{', '[']).trim_start();
    match inside.starts_with('"') {
        _ if has_slash_comments => Format::Json5,
        true => Format::Json,
        false => Format::Yaml,
    }
}

/// The text behind blank lines and comments, and whether any of those began with a slash.
fn past_comments(text: &str) -> (&str, bool) {
    let mut rest = text.trim_start();
    let mut has_slash_comments = false;
    loop {
        let comment_end = if rest.starts_with("/*") {
            has_slash_comments = true;
            rest.find("*/").map(|at| at + 2)
        } else if rest.starts_with("//") || rest.starts_with("/-") {
            has_slash_comments = true;
            rest.find('\n')
        } else if rest.starts_with('#') {
            rest.find('\n')
        } else {
            return (rest, has_slash_comments);
        };
        rest = rest[comment_end.unwrap_or(rest.len())..].trim_start();
    }
}

/// `[name]` or `[[name]]` alone on its line.
fn is_table_header(text: &str) -> bool {
    let line = text.lines().next().unwrap_or_default();
    let line = line.split('#').next().unwrap_or_default().trim_end();
    let inside = line.strip_prefix("[[").and_then(|rest| rest.strip_suffix("]]"));
    let inside = inside.or_else(|| line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')));
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_-. \"'".contains(c);
    inside.is_some_and(|inside| !inside.trim().is_empty() && inside.chars().all(is_name))
}

/// `word:` is YAML, `word =` is TOML, and `word value` or `word {` is KDL.
fn detect_by_first_word(text: &str) -> Format {
    let behind = match text.chars().next() {
        Some(quote @ ('"' | '\'')) => text[1..].split_once(quote).map_or("", |(_, behind)| behind),
        _ => text.trim_start_matches(|c: char| c.is_alphanumeric() || "_-.".contains(c)),
    };
    if behind.len() == text.len() {
        return Format::Yaml;
    }
    let after_space = behind.trim_start_matches([' ', '\t']);
    match after_space.chars().next() {
        Some('=') => Format::Toml,
        Some('"' | '{' | '#' | '(' | ';' | '0'..='9' | '-') => Format::Kdl,
        // A bare word as a value, or a property of a node.
        Some(c) if c.is_alphabetic() && behind.len() > after_space.len() && !is_yaml_line(text) => {
            Format::Kdl
        }
        _ => Format::Yaml,
    }
}

fn is_yaml_line(text: &str) -> bool {
    let line = text.lines().next().unwrap_or_default();
    line.contains(": ") || line.trim_end().ends_with(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_by_extension() {
        for (path, format) in [
            ("a/sim.yaml", Some(Format::Yaml)),
            ("sim.YML", Some(Format::Yaml)),
            ("sim.json", Some(Format::Json)),
            ("sim.json5", Some(Format::Json5)),
            ("sim.windlass.toml", Some(Format::Toml)),
            ("sim.kdl", Some(Format::Kdl)),
            ("sim.txt", None),
            ("yaml", None),
            ("-", None),
        ] {
            assert_eq!(Format::from_path(Path::new(path)), format, "{path}");
        }
    }

    #[test]
    fn formats_by_content() {
        for (text, format) in [
            ("", Format::Yaml),
            ("name: w\njobs: []\n", Format::Yaml),
            ("# a = b\n\n---\nname: w\n", Format::Yaml),
            ("{name: w, jobs: [{name: a, command: b c}]}", Format::Yaml),
            ("\"name\": w\n", Format::Yaml),
            ("- a\n- b\n", Format::Yaml),
            ("jobs:\n- name: a\n", Format::Yaml),
            ("\u{feff}{\"name\": \"w\"}", Format::Json),
            ("\n{\"name\": \"w\", \"jobs\": [1]}\n", Format::Json),
            ("{\"name\": \"w\", ", Format::Json),
            ("{\"name\": \"w\",}", Format::Json5),
            ("{name: 'w', jobs: []}", Format::Json5),
            ("// remark\n{\"name\": \"w\"}", Format::Json5),
            ("/* a\nb */ {name: ", Format::Json5),
            ("name = \"w\"\n", Format::Toml),
            ("# remark\nname=\"a: b\"\n", Format::Toml),
            ("[env]\nA = 1\n", Format::Toml),
            ("[[jobs]] # first\n", Format::Toml),
            ("a.b = 1\n", Format::Toml),
            ("name \"w\"\n", Format::Kdl),
            ("name w\njob a command=b\n", Format::Kdl),
            ("// remark\nname \"w\"\n", Format::Kdl),
            ("/- kdl-version 2\nname \"w\"\n", Format::Kdl),
            ("job \"a\" {\n  command \"x = y: z\"\n}\n", Format::Kdl),
            ("parameters {\n}\n", Format::Kdl),
        ] {
            assert_eq!(Format::detect(text.as_bytes()), format, "{text}");
        }
    }
}
