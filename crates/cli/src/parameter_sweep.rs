//! The parameters of `exec`: parsing of `--param`, combinations, and substitution into commands.
//!
//! Ranges, lists and `{name}` are those of spec files. The differences: values are words and keep the digits as
//! written, and braces that name no parameter are left to the shell.
//!
//! Pure except for [`ExecParameterArg::load_values`], which reads `@FILE`.

use crate::args::ParameterLink;
use crate::error::CliError;
use crate::ui::text;
use std::collections::BTreeSet;
use std::str::FromStr;
use windlass_spec::ParameterValue;
use windlass_spec::parameters::{self, ParameterRange};
use windlass_spec::template::{self, PlaceholderFormat};

/// Limit on the number of jobs from one command line; more is probably a mistake.
const MAX_COMBINATIONS: usize = 1_000_000;

/// `NAME=VALUES` as typed; expanded by [`ExecParameterArg::load_values`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExecParameterArg {
    pub(crate) name: String,
    values: String,
}

/// A parameter and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExecParameter {
    pub(crate) name: String,
    pub(crate) values: Vec<String>,
}

/// One value for each parameter.
pub(crate) type ParameterBinding<'a> = Vec<(&'a str, &'a str)>;

/// A command before parameter substitution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExecCommandTemplate {
    /// Text for the shell. Values with characters special to the shell must be inserted quoted, as `{name:q}`,
    /// so that a file name with a space or semicolon remains one word.
    Shell(String),
    /// Words as typed after `--`; parameters are substituted, then each word is quoted.
    Words(Vec<String>),
}

impl FromStr for ExecParameterArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, values) = text.split_once('=').ok_or("write NAME=VALUES, for example n=1:10")?;
        if !template::is_valid_name(name) {
            return Err(format!("`{name}` is not a name: use letters, digits and _"));
        }
        Ok(Self { name: name.to_owned(), values: values.to_owned() })
    }
}

impl ExecParameterArg {
    /// The values, with `@FILE` read.
    pub(crate) fn load_values(&self) -> Result<ExecParameter, CliError> {
        let wrong = |why: String| CliError::user(format!("--param {}={}: {why}", self.name, self.values));
        let values = match self.values.strip_prefix('@') {
            Some(path) => {
                let text =
                    std::fs::read_to_string(path).map_err(|e| wrong(format!("cannot read `{path}`: {e}")))?;
                parameters::parse_value_lines(&text).map(str::to_owned).collect()
            }
            None => parse_values(&self.values).map_err(wrong)?,
        };
        if values.is_empty() {
            return Err(wrong("no values".to_owned()));
        }
        Ok(ExecParameter { name: self.name.clone(), values })
    }
}

/// `1:10`, `0:1:0.25`, `[a,b]`, `a,b`, or one value.
fn parse_values(text: &str) -> Result<Vec<String>, String> {
    let list = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let range = if list.is_none() { ParameterRange::parse(text) } else { None };
    match range {
        Some(range) => expand_range(text, &range.map_err(|problem| problem.to_string())?),
        None => {
            Ok(parameters::split_list(list.unwrap_or(text)).iter().map(|item| item.text.to_owned()).collect())
        }
    }
}

fn expand_range(text: &str, range: &ParameterRange) -> Result<Vec<String>, String> {
    if range.count() > MAX_COMBINATIONS as u64 {
        return Err(format!("more than {MAX_COMBINATIONS} values"));
    }
    let places = zero_padding_width(text);
    Ok((0..range.count()).map(|index| range.format_fixed(index, places)).collect())
}

/// Number of digits before the point, padded with zeros: `01:10` means 01, 02, … 10.
fn zero_padding_width(range: &str) -> usize {
    let whole = range.trim_start().split([':', '.']).next().unwrap_or_default().trim_end();
    if whole.len() > 1 && whole.starts_with('0') { whole.len() } else { 0 }
}

/// All combinations, the last parameter changing fastest. Without parameters: one empty binding.
pub(crate) fn combine_parameters(
    params: &[ExecParameter],
    link: ParameterLink,
) -> Result<Vec<ParameterBinding<'_>>, CliError> {
    let twice =
        params.iter().enumerate().find(|(i, param)| params[..*i].iter().any(|p| p.name == param.name));
    if let Some((_, param)) = twice {
        return Err(CliError::user(format!("parameter `{}` is given twice", param.name)));
    }
    match link {
        ParameterLink::Product => cartesian_product(params),
        ParameterLink::Zip => zip_parameters(params),
    }
}

fn cartesian_product(params: &[ExecParameter]) -> Result<Vec<ParameterBinding<'_>>, CliError> {
    let lengths = params.iter().map(|param| param.values.len() as u64);
    let all = parameters::compute_strides(lengths).filter(|(_, count)| *count <= MAX_COMBINATIONS as u64);
    let (strides, count) = all.ok_or_else(|| {
        CliError::user(format!("the parameters make more than {MAX_COMBINATIONS} combinations"))
            .with_hint("use --link zip to pair the values up instead")
    })?;
    let value = |combination: u64, (param, stride): (&ExecParameter, &u64)| {
        (combination / stride % param.values.len() as u64) as usize
    };
    let binding = |combination: u64| {
        let picked = params.iter().zip(&strides).map(|pair| (pair.0, value(combination, pair)));
        picked.map(|(param, index)| (param.name.as_str(), param.values[index].as_str())).collect()
    };
    Ok((0..count).map(binding).collect())
}

fn zip_parameters(params: &[ExecParameter]) -> Result<Vec<ParameterBinding<'_>>, CliError> {
    let Some(first) = params.first() else { return Ok(vec![Vec::new()]) };
    if let Some(other) = params.iter().find(|p| p.values.len() != first.values.len()) {
        return Err(CliError::user(format!(
            "--link zip needs lists of equal length, but `{}` has {} values and `{}` has {}",
            first.name,
            first.values.len(),
            other.name,
            other.values.len()
        )));
    }
    let row = |i: usize| params.iter().map(|p| (p.name.as_str(), p.values[i].as_str())).collect();
    Ok((0..first.values.len()).map(row).collect())
}

/// Maximum length of a job name that is made of parameters.
const MAX_JOB_NAME: usize = 100;

/// Names of the jobs: `x=1,y=a` if the parameters of a single command tell the jobs apart, else `job1`, `job2` ….
pub(crate) fn job_names(commands: usize, bindings: &[ParameterBinding<'_>]) -> Vec<String> {
    let name = |binding: &ParameterBinding<'_>| {
        let parts: Vec<String> = binding.iter().map(|(name, value)| format!("{name}={value}")).collect();
        parts.join(",")
    };
    let names: Vec<String> = bindings.iter().map(name).collect();
    let is_usable = |name: &String| {
        !name.is_empty()
            && name.len() <= MAX_JOB_NAME
            && !name.chars().any(|c| c.is_whitespace() || c.is_control())
    };
    let distinct: BTreeSet<&String> = names.iter().collect();
    if commands == 1 && distinct.len() == names.len() && names.iter().all(is_usable) {
        return names;
    }
    (1..=commands * bindings.len()).map(|n| format!("job{n}")).collect()
}

impl ExecCommandTemplate {
    /// The arguments after `--`: one word is a shell command, several are a command and its arguments.
    pub(crate) fn from_words(words: &[String]) -> Self {
        match words {
            [only] => Self::Shell(only.clone()),
            _ => Self::Words(words.to_vec()),
        }
    }

    /// The command line for `/bin/sh -c`.
    pub(crate) fn fill_in(&self, binding: &[(&str, &str)]) -> Result<String, CliError> {
        match self {
            Self::Shell(text) => substitute_parameters(text, binding, quote_for_shell),
            Self::Words(words) => {
                // The whole word is quoted afterwards, so both forms insert the plain value.
                let as_it_is = |_: &str, value: &str, format: PlaceholderFormat| {
                    Ok(if format == PlaceholderFormat::Quoted {
                        value.to_owned()
                    } else {
                        format_value(value, format)
                    })
                };
                let fill = |word: &String| {
                    substitute_parameters(word, binding, as_it_is).map(|w| text::shell_quote(&w))
                };
                Ok(words.iter().map(fill).collect::<Result<Vec<_>, _>>()?.join(" "))
            }
        }
    }

    /// Whether the command is empty.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Shell(text) => text.trim().is_empty(),
            Self::Words(words) => words.first().is_none_or(|word| word.trim().is_empty()),
        }
    }

    fn uses_parameter(&self, name: &str) -> bool {
        let found = |text: &str| {
            parse_pieces(text, &[name]).iter().any(|piece| matches!(piece, ExecTemplatePiece::Value(..)))
        };
        match self {
            Self::Shell(text) => found(text),
            Self::Words(words) => words.iter().any(|word| found(word)),
        }
    }
}

/// An unused parameter would only repeat every command: it is probably misspelled.
pub(crate) fn refuse_unused_parameters(
    params: &[ExecParameter],
    templates: &[ExecCommandTemplate],
) -> Result<(), CliError> {
    match params.iter().find(|param| !templates.iter().any(|template| template.uses_parameter(&param.name))) {
        None => Ok(()),
        Some(ExecParameter { name, .. }) => {
            Err(CliError::user(format!("no command uses the parameter `{name}`"))
                .with_hint(format!("write {{{name}}} where its value belongs")))
        }
    }
}

/// Text that looks like a parameter but is not one, in commands that have parameters. Without parameters,
/// braces belong to the shell or to awk.
pub(crate) fn undefined_parameters<'t>(
    params: &[ExecParameter],
    templates: &'t [ExecCommandTemplate],
) -> BTreeSet<&'t str> {
    if params.is_empty() {
        return BTreeSet::new();
    }
    let texts = templates.iter().flat_map(|template| match template {
        ExecCommandTemplate::Shell(text) => std::slice::from_ref(text),
        ExecCommandTemplate::Words(words) => words.as_slice(),
    });
    let ours = texts
        .flat_map(|text| template::find_placeholders(text))
        .filter(template::TemplatePlaceholder::is_unmistakable);
    ours.map(|placeholder| placeholder.name)
        .filter(|name| params.iter().all(|param| param.name != *name))
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExecTemplatePiece<'t> {
    Text(&'t str),
    /// The index of the parameter.
    Value(usize, PlaceholderFormat),
}

/// Finds `{name}` and `{name:FORMAT}` of known parameters; other braces are text, since shells use them too.
fn parse_pieces<'t>(text: &'t str, names: &[&str]) -> Vec<ExecTemplatePiece<'t>> {
    let mut pieces = Vec::new();
    let mut from = 0;
    for placeholder in template::find_placeholders(text) {
        let number = names.iter().position(|known| *known == placeholder.name);
        let format = placeholder.format.map_or(Some(PlaceholderFormat::Plain), PlaceholderFormat::parse);
        if let (Some(number), Some(format)) = (number, format) {
            pieces.extend([
                ExecTemplatePiece::Text(&text[from..placeholder.range.start]),
                ExecTemplatePiece::Value(number, format),
            ]);
            from = placeholder.range.end;
        }
    }
    pieces.push(ExecTemplatePiece::Text(&text[from..]));
    pieces
}

/// Substitutes the values; `put(name, value, form)` formats each.
fn substitute_parameters(
    text: &str,
    binding: &[(&str, &str)],
    put: impl Fn(&str, &str, PlaceholderFormat) -> Result<String, CliError>,
) -> Result<String, CliError> {
    let names: Vec<&str> = binding.iter().map(|(name, _)| *name).collect();
    let mut filled = String::with_capacity(text.len());
    for piece in parse_pieces(text, &names) {
        match piece {
            ExecTemplatePiece::Text(text) => filled.push_str(text),
            ExecTemplatePiece::Value(number, format) => {
                filled.push_str(&put(binding[number].0, binding[number].1, format)?);
            }
        }
    }
    Ok(filled)
}

fn format_value(value: &str, format: PlaceholderFormat) -> String {
    let mut text = String::new();
    format.write_value(ParameterValue::Text(value), &mut text);
    text
}

fn quote_for_shell(name: &str, value: &str, format: PlaceholderFormat) -> Result<String, CliError> {
    if format == PlaceholderFormat::Quoted || text::is_shell_safe(value) {
        return Ok(format_value(value, format));
    }
    let shown = text::truncate(&text::one_line(value), 60);
    let why = if value.is_empty() { "which is empty" } else { "which the shell would interpret" };
    Err(CliError::user(format!("parameter `{name}` has the value `{shown}`, {why}"))
        .with_hint(format!("write {{{name}:q}} to insert it quoted")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Result<Vec<String>, CliError> {
        text.parse::<ExecParameterArg>().map_err(CliError::user)?.load_values().map(|p| p.values)
    }

    fn shell(text: &str, binding: &[(&str, &str)]) -> Result<String, CliError> {
        ExecCommandTemplate::Shell(text.into()).fill_in(binding)
    }

    #[test]
    fn parameter_values_parse_ranges_and_lists() {
        for (text, expected) in [
            ("n=1:4", vec!["1", "2", "3", "4"]),
            ("n=0:1:0.25", vec!["0.00", "0.25", "0.50", "0.75", "1.00"]),
            ("n=0:0.3:0.1", vec!["0.0", "0.1", "0.2", "0.3"]),
            ("n=-1:1", vec!["-1", "0", "1"]),
            ("n=3:1:-1", vec!["3", "2", "1"]),
            ("n=08:10", vec!["08", "09", "10"]),
            ("n=000:200:100", vec!["000", "100", "200"]),
            ("n=00.5:1:0.5", vec!["00.5", "01.0"]),
            ("n=0:10:5", vec!["0", "5", "10"]),
            ("n=[a, b]", vec!["a", "b"]),
            ("n=a,b,c", vec!["a", "b", "c"]),
            ("n=['x y', \"z\"]", vec!["x y", "z"]),
            ("n=one", vec!["one"]),
            ("n=host:80", vec!["host:80"]),
            ("n=a=b", vec!["a=b"]),
        ] {
            assert_eq!(values(text).unwrap(), expected, "{text}");
        }
        for text in
            ["n", "n=", "n=[]", "1n=2", "n-m=1", "=1", "n=3:1", "n=1:2:0", "n=1:9999999", "n=@/no/such/file"]
        {
            assert!(values(text).is_err(), "{text}");
        }
    }

    #[test]
    fn parameter_values_load_from_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "a b\n\n# no value\n c \n").unwrap();
        assert_eq!(values(&format!("n=@{}", file.path().display())).unwrap(), ["a b", "c"]);
    }

    #[test]
    fn parameters_combine_as_product_or_zip() {
        let params = [
            ExecParameter { name: "a".into(), values: vec!["1".into(), "2".into()] },
            ExecParameter { name: "b".into(), values: vec!["x".into(), "y".into()] },
        ];
        let all: Vec<String> = combine_parameters(&params, ParameterLink::Product)
            .unwrap()
            .iter()
            .map(|binding| shell("{a}{b}", binding).unwrap())
            .collect();
        assert_eq!(all, ["1x", "1y", "2x", "2y"]);
        let pairs: Vec<String> = combine_parameters(&params, ParameterLink::Zip)
            .unwrap()
            .iter()
            .map(|binding| shell("{a}{b}", binding).unwrap())
            .collect();
        assert_eq!(pairs, ["1x", "2y"]);
        assert_eq!(combine_parameters(&[], ParameterLink::Product).unwrap(), [vec![]]);
        assert_eq!(combine_parameters(&[], ParameterLink::Zip).unwrap(), [vec![]]);
    }

    #[test]
    fn jobs_are_named_by_their_parameters() {
        let two: Vec<ParameterBinding<'_>> = vec![vec![("x", "1"), ("y", "a")], vec![("x", "2"), ("y", "a")]];
        assert_eq!(job_names(1, &two), ["x=1,y=a", "x=2,y=a"]);
        assert_eq!(job_names(2, &two), ["job1", "job2", "job3", "job4"]);
        assert_eq!(job_names(1, &[vec![("x", "1")], vec![("x", "1")]]), ["job1", "job2"]);
        assert_eq!(job_names(1, &[vec![("x", "a b")]]), ["job1"]);
        assert_eq!(job_names(1, &[Vec::new()]), ["job1"]);
    }

    #[test]
    fn shell_braces_are_not_parameters() {
        let n = [ExecParameter { name: "n".into(), values: vec!["1".into()] }];
        let found = |params: &[ExecParameter], text: &str| -> Vec<String> {
            undefined_parameters(params, &[ExecCommandTemplate::Shell(text.into())])
                .into_iter()
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(found(&n, "echo {n} {g} {g:03d} {n:q}"), ["g"]);
        assert!(found(&n, "find -exec echo {} ${HOME} {a,b} {{g}} {n}").is_empty());
        assert!(found(&[], "awk '{print}'").is_empty());
    }

    #[test]
    fn invalid_parameter_combinations_are_rejected() {
        let short = ExecParameter { name: "a".into(), values: vec!["1".into()] };
        let long = ExecParameter { name: "b".into(), values: vec!["1".into(), "2".into()] };
        assert!(combine_parameters(&[short.clone(), long.clone()], ParameterLink::Zip).is_err());
        assert!(combine_parameters(&[short.clone(), short], ParameterLink::Product).is_err());
        let huge = |name: &str| ExecParameter { name: name.into(), values: vec![String::new(); 2000] };
        assert!(combine_parameters(&[huge("a"), huge("b")], ParameterLink::Product).is_err());
    }

    #[test]
    fn only_defined_parameters_are_substituted() {
        let binding = [("n", "7"), ("f", "a b"), ("i", "it's")];
        for (text, expected) in [
            ("sim {n}", "sim 7"),
            ("awk '{print $1}' {n}", "awk '{print $1}' 7"),
            ("{{n}} {m} {", "{7} {m} {"),
            ("${n}", "$7"),
            ("{n:q} {n:x} {m:q}", "'7' {n:x} {m:q}"),
            ("{n:03d} {n:.2f}", "007 7.00"),
            ("cat {f:q} {i:q}", r"cat 'a b' 'it'\''s'"),
        ] {
            assert_eq!(shell(text, &binding).unwrap(), expected);
        }
        let words = ["wc".to_owned(), "-l".to_owned(), "{f}".to_owned(), "it's".to_owned(), String::new()];
        assert_eq!(
            ExecCommandTemplate::from_words(&words).fill_in(&binding).unwrap(),
            r"wc -l 'a b' 'it'\''s' ''"
        );
        let asked_twice = ["wc".to_owned(), "{f:q}".to_owned()];
        assert_eq!(ExecCommandTemplate::from_words(&asked_twice).fill_in(&binding).unwrap(), "wc 'a b'");
        assert!(
            ExecCommandTemplate::from_words(&words[2..3]).fill_in(&binding).is_err(),
            "one word is for the shell"
        );
    }

    #[test]
    fn shell_command_rejects_unquoted_special_values() {
        for value in ["7", "a.txt", "./a/b_c-d", "x=1,2", "host:80", "50%", "a+b@c"] {
            assert_eq!(shell("run {x}", &[("x", value)]).unwrap(), format!("run {value}"));
        }
        for value in
            ["", "a b", "a;rm -r b", "$(id)", "*", "~", "a\nb", "it's", "a&b", "ü", "{a,b}", "a>b", "#"]
        {
            let error = shell("run {x}", &[("x", value)]).unwrap_err();
            assert!(error.message.contains("parameter `x`"), "{error}");
            assert_eq!(error.hint.as_deref(), Some("write {x:q} to insert it quoted"));
            assert!(shell("run {x:q}", &[("x", value)]).is_ok());
        }
    }

    #[test]
    fn unused_parameter_is_rejected() {
        let param = |name: &str| ExecParameter { name: name.into(), values: vec!["1".into()] };
        let templates = [
            ExecCommandTemplate::Shell("a {x:q}".into()),
            ExecCommandTemplate::Words(vec!["b".into(), "{y}".into()]),
        ];
        assert!(refuse_unused_parameters(&[param("x"), param("y")], &templates).is_ok());
        let error = refuse_unused_parameters(&[param("x"), param("z")], &templates).unwrap_err();
        assert!(error.message.contains("`z`"), "{error}");
    }
}
