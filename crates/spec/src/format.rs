//! The file formats of specs: detection, and the front end that parses each.

use crate::diagnostic::{DiagnosticSink, SpecDiagnostics};
use crate::event::{DocumentEvent, DocumentEventKind, DocumentEventStream, StopReading};
use crate::json::JsonReader;
use crate::tree::{DocumentTree, TreeReplay};
use crate::yaml::YamlReader;
use crate::{kdl, source, toml};
use std::path::Path;

/// A format of specs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpecFormat {
    Yaml,
    Json,
    Json5,
    Toml,
    Kdl,
}

impl SpecFormat {
    pub const ALL: [Self; 5] = [Self::Yaml, Self::Json, Self::Json5, Self::Toml, Self::Kdl];

    /// Detects the format by the extension of a file name.
    pub fn from_path(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "yml" => Some(Self::Yaml),
            other => Self::ALL.into_iter().find(|format| format.extension() == other),
        }
    }

    /// Detects the format by the text: always the same result for the same text, and YAML if no other format
    /// fits.
    pub fn detect(text: &[u8]) -> Self {
        detect_format(&String::from_utf8_lossy(text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)))
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
pub struct SpecSource<'s> {
    /// The name in messages, usually the path of the file.
    pub name: &'s str,
    pub text: &'s [u8],
    /// `None`: detected by the extension of the name, or else by the text.
    pub format: Option<SpecFormat>,
}

impl<'s> SpecSource<'s> {
    pub const fn new(name: &'s str, text: &'s [u8]) -> Self {
        Self { name, text, format: None }
    }

    pub fn format(&self) -> SpecFormat {
        self.format
            .or_else(|| SpecFormat::from_path(Path::new(self.name)))
            .unwrap_or_else(|| SpecFormat::detect(self.text))
    }

    /// Returns the text, if it is valid UTF-8, and its format.
    pub(crate) fn open(&self) -> Result<(&'s str, SpecFormat), SpecDiagnostics> {
        Ok((source::read_text(self.name, self.text)?, self.format()))
    }
}

/// Any front end.
pub(crate) enum FormatReader<'s> {
    Yaml(Box<YamlReader<'s>>),
    Json(JsonReader<'s>),
    /// For formats that are parsed as a whole when the first event is requested.
    Unread(&'s str, fn(&'s str, &mut DiagnosticSink) -> Result<Option<DocumentTree<'s>>, StopReading>),
    Tree(TreeReplay<'s>),
    /// The document could not be parsed to its end.
    Stopped,
}

impl<'s> FormatReader<'s> {
    pub(crate) fn new(text: &'s str, format: SpecFormat) -> Self {
        match format {
            SpecFormat::Yaml => Self::Yaml(Box::new(YamlReader::new(text))),
            SpecFormat::Json => Self::Json(JsonReader::new_strict(text)),
            SpecFormat::Json5 => Self::Json(JsonReader::new_json5(text)),
            SpecFormat::Toml => Self::Unread(text, toml::parse_toml),
            SpecFormat::Kdl => Self::Unread(text, kdl::parse_kdl),
        }
    }
}

impl<'s> DocumentEventStream<'s> for FormatReader<'s> {
    fn next_event(&mut self, sink: &mut DiagnosticSink) -> Result<DocumentEvent<'s>, StopReading> {
        if let Self::Unread(text, read) = self {
            *self = read(text, sink).map_or(Self::Stopped, |tree| Self::Tree(TreeReplay::new(tree)));
        }
        match self {
            Self::Yaml(yaml) => yaml.next_event(sink),
            Self::Json(json) => json.next_event(sink),
            Self::Tree(tree) => tree.next_event(sink),
            Self::Unread(..) | Self::Stopped => Err(StopReading),
        }
    }

    fn leave_collection(&mut self, sink: &mut DiagnosticSink) -> Result<(), StopReading> {
        match self {
            Self::Yaml(yaml) => yaml.leave_collection(sink),
            Self::Json(json) => json.leave_collection(sink),
            Self::Tree(tree) => tree.leave_collection(sink),
            Self::Unread(..) | Self::Stopped => Err(StopReading),
        }
    }
}

fn detect_format(text: &str) -> SpecFormat {
    let (rest, has_slash_comments) = skip_comments(text);
    match rest.chars().next() {
        Some('[') if !has_slash_comments && is_table_header(rest) => SpecFormat::Toml,
        Some('{' | '[') => detect_braced(text, has_slash_comments),
        Some(_) if has_slash_comments => SpecFormat::Kdl,
        None | Some('%' | '-' | '?' | '&' | '*' | '!' | '|' | '>') => SpecFormat::Yaml,
        Some(_) => detect_by_first_word(rest),
    }
}

/// JSON is also YAML, and so is much of JSON5: returns the strictest format without syntax errors.
fn detect_braced(text: &str, has_slash_comments: bool) -> SpecFormat {
    let is_clean = |format| {
        let mut sink = DiagnosticSink::default();
        let mut front = FormatReader::new(text, format);
        while matches!(front.next_event(&mut sink), Ok(event) if !matches!(event.kind, DocumentEventKind::End))
        {
        }
        sink.is_empty()
    };
    if let Some(format) =
        [SpecFormat::Json, SpecFormat::Json5, SpecFormat::Yaml].into_iter().find(|f| is_clean(*f))
    {
        return format;
    }
    // Invalid in each of them: the format that it resembles most has the best error messages.
    let inside = text.trim_start().trim_start_matches(['{', '[']).trim_start();
    match inside.starts_with('"') {
        _ if has_slash_comments => SpecFormat::Json5,
        true => SpecFormat::Json,
        false => SpecFormat::Yaml,
    }
}

/// Returns the text after blank lines and comments, and whether any of those began with a slash.
fn skip_comments(text: &str) -> (&str, bool) {
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

/// Whether a line consists of `[name]` or `[[name]]`.
fn is_table_header(text: &str) -> bool {
    let line = text.lines().next().unwrap_or_default();
    let line = line.split('#').next().unwrap_or_default().trim_end();
    let inside = line.strip_prefix("[[").and_then(|rest| rest.strip_suffix("]]"));
    let inside = inside.or_else(|| line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')));
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_-. \"'".contains(c);
    inside.is_some_and(|inside| !inside.trim().is_empty() && inside.chars().all(is_name))
}

/// `word:` indicates YAML, `word =` TOML, and `word value` or `word {` KDL.
fn detect_by_first_word(text: &str) -> SpecFormat {
    let behind = match text.chars().next() {
        Some(quote @ ('"' | '\'')) => text[1..].split_once(quote).map_or("", |(_, behind)| behind),
        _ => text.trim_start_matches(|c: char| c.is_alphanumeric() || "_-.".contains(c)),
    };
    if behind.len() == text.len() {
        return SpecFormat::Yaml;
    }
    let after_space = behind.trim_start_matches([' ', '\t']);
    match after_space.chars().next() {
        Some('=') => SpecFormat::Toml,
        Some('"' | '{' | '#' | '(' | ';' | '0'..='9' | '-') => SpecFormat::Kdl,
        // A bare word as a value, or a property of a node.
        Some(c) if c.is_alphabetic() && behind.len() > after_space.len() && !is_yaml_line(text) => {
            SpecFormat::Kdl
        }
        _ => SpecFormat::Yaml,
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
    fn format_is_detected_by_extension() {
        for (path, format) in [
            ("a/sim.yaml", Some(SpecFormat::Yaml)),
            ("sim.YML", Some(SpecFormat::Yaml)),
            ("sim.json", Some(SpecFormat::Json)),
            ("sim.json5", Some(SpecFormat::Json5)),
            ("sim.windlass.toml", Some(SpecFormat::Toml)),
            ("sim.kdl", Some(SpecFormat::Kdl)),
            ("sim.txt", None),
            ("yaml", None),
            ("-", None),
        ] {
            assert_eq!(SpecFormat::from_path(Path::new(path)), format, "{path}");
        }
    }

    #[test]
    fn format_is_detected_by_content() {
        for (text, format) in [
            ("", SpecFormat::Yaml),
            ("name: w\njobs: []\n", SpecFormat::Yaml),
            ("# a = b\n\n---\nname: w\n", SpecFormat::Yaml),
            ("{name: w, jobs: [{name: a, command: b c}]}", SpecFormat::Yaml),
            ("\"name\": w\n", SpecFormat::Yaml),
            ("- a\n- b\n", SpecFormat::Yaml),
            ("jobs:\n- name: a\n", SpecFormat::Yaml),
            ("\u{feff}{\"name\": \"w\"}", SpecFormat::Json),
            ("\n{\"name\": \"w\", \"jobs\": [1]}\n", SpecFormat::Json),
            ("{\"name\": \"w\", ", SpecFormat::Json),
            ("{\"name\": \"w\",}", SpecFormat::Json5),
            ("{name: 'w', jobs: []}", SpecFormat::Json5),
            ("// remark\n{\"name\": \"w\"}", SpecFormat::Json5),
            ("/* a\nb */ {name: ", SpecFormat::Json5),
            ("name = \"w\"\n", SpecFormat::Toml),
            ("# remark\nname=\"a: b\"\n", SpecFormat::Toml),
            ("[env]\nA = 1\n", SpecFormat::Toml),
            ("[[jobs]] # first\n", SpecFormat::Toml),
            ("a.b = 1\n", SpecFormat::Toml),
            ("name \"w\"\n", SpecFormat::Kdl),
            ("name w\njob a command=b\n", SpecFormat::Kdl),
            ("// remark\nname \"w\"\n", SpecFormat::Kdl),
            ("/- kdl-version 2\nname \"w\"\n", SpecFormat::Kdl),
            ("job \"a\" {\n  command \"x = y: z\"\n}\n", SpecFormat::Kdl),
            ("parameters {\n}\n", SpecFormat::Kdl),
        ] {
            assert_eq!(SpecFormat::detect(text.as_bytes()), format, "{text}");
        }
    }
}
