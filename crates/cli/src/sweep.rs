//! The parameters of `exec`: what `--param` means, how several combine, and how they are put into commands.
//!
//! Pure except for [`ParamArg::values`], which reads `@FILE`.

use crate::args::Link;
use crate::error::CliError;
use crate::ui::text;
use std::str::FromStr;

/// More jobs than this from one command line is a mistake, not a wish.
const MAX_COMBINATIONS: usize = 1_000_000;

/// `NAME=VALUES` as typed; the values are worked out by [`ParamArg::values`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParamArg {
    pub(crate) name: String,
    values: String,
}

/// A parameter and all the values it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Param {
    pub(crate) name: String,
    pub(crate) values: Vec<String>,
}

/// One value for each parameter.
pub(crate) type Binding<'a> = Vec<(&'a str, &'a str)>;

/// A command before its `{name}`s are filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Template {
    /// Text for the shell; values are put in as they are.
    Shell(String),
    /// Words as typed after `--`; each is filled in, then quoted so that the shell leaves it whole.
    Words(Vec<String>),
}

impl FromStr for ParamArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, values) = text.split_once('=').ok_or("write NAME=VALUES, for example n=1:10")?;
        let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !starts_well || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(format!("`{name}` is not a name: use letters, digits and _"));
        }
        Ok(Self { name: name.to_owned(), values: values.to_owned() })
    }
}

impl ParamArg {
    /// The values, with `@FILE` read.
    pub(crate) fn values(&self) -> Result<Param, CliError> {
        let wrong = |why: String| CliError::user(format!("--param {}={}: {why}", self.name, self.values));
        let values = match self.values.strip_prefix('@') {
            Some(path) => {
                let text =
                    std::fs::read_to_string(path).map_err(|e| wrong(format!("cannot read `{path}`: {e}")))?;
                text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
            }
            None => parse_values(&self.values).map_err(wrong)?,
        };
        if values.is_empty() {
            return Err(wrong("no values".to_owned()));
        }
        Ok(Param { name: self.name.clone(), values })
    }
}

/// `1:10`, `0:1:0.25`, `[a,b]`, `a,b`, or one value.
fn parse_values(text: &str) -> Result<Vec<String>, String> {
    let list = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(values) = list.is_none().then(|| parse_range(text)).flatten() {
        return values;
    }
    let items = list.unwrap_or(text);
    if items.trim().is_empty() {
        return Ok(Vec::new());
    }
    Ok(items.split(',').map(|item| unquoted(item.trim()).to_owned()).collect())
}

/// `None` if it does not look like a range at all (`host:port` is a value).
fn parse_range(text: &str) -> Option<Result<Vec<String>, String>> {
    let parts: Vec<&str> = text.split(':').map(str::trim).collect();
    let numbers: Vec<f64> =
        parts.iter().map(|p| p.parse().ok().filter(|n: &f64| n.is_finite())).collect::<Option<_>>()?;
    let (first, last, step) = match *numbers.as_slice() {
        [first, last] => (first, last, 1.0),
        [first, last, step] => (first, last, step),
        _ => return None,
    };
    if step <= 0.0 || last < first {
        return Some(Err("a range goes upwards: FIRST:LAST or FIRST:LAST:STEP".to_owned()));
    }
    // Rounding must not lose the last value of 0:1:0.1.
    let steps = ((last - first) / step + 1e-9).floor();
    if steps >= MAX_COMBINATIONS as f64 {
        return Some(Err(format!("more than {MAX_COMBINATIONS} values")));
    }
    let digits = parts.iter().map(|p| p.split_once('.').map_or(0, |(_, d)| d.len())).max().unwrap_or(0);
    Some(Ok((0..=steps as u64).map(|i| format!("{:.digits$}", first + i as f64 * step)).collect()))
}

fn unquoted(text: &str) -> &str {
    ['"', '\''].into_iter().find_map(|q| text.strip_prefix(q)?.strip_suffix(q)).unwrap_or(text)
}

/// All combinations, the last parameter changing fastest. No parameters: one empty binding.
pub(crate) fn combine(params: &[Param], link: Link) -> Result<Vec<Binding<'_>>, CliError> {
    let twice =
        params.iter().enumerate().find(|(i, param)| params[..*i].iter().any(|p| p.name == param.name));
    if let Some((_, param)) = twice {
        return Err(CliError::user(format!("parameter `{}` is given twice", param.name)));
    }
    match link {
        Link::Product => product(params),
        Link::Zip => zip(params),
    }
}

fn product(params: &[Param]) -> Result<Vec<Binding<'_>>, CliError> {
    let total = params.iter().try_fold(1usize, |n, p| n.checked_mul(p.values.len()));
    if total.is_none_or(|n| n > MAX_COMBINATIONS) {
        return Err(CliError::user(format!("the parameters make more than {MAX_COMBINATIONS} combinations"))
            .with_hint("use --link zip to pair the values up instead"));
    }
    let mut bindings = vec![Vec::new()];
    for param in params {
        bindings = bindings
            .into_iter()
            .flat_map(|binding: Binding<'_>| {
                param.values.iter().map(move |value| {
                    let mut longer = binding.clone();
                    longer.push((param.name.as_str(), value.as_str()));
                    longer
                })
            })
            .collect();
    }
    Ok(bindings)
}

fn zip(params: &[Param]) -> Result<Vec<Binding<'_>>, CliError> {
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

impl Template {
    /// What was typed after `--`: one word is a whole shell command, several are a command and its arguments.
    pub(crate) fn from_words(words: &[String]) -> Self {
        match words {
            [only] => Self::Shell(only.clone()),
            _ => Self::Words(words.to_vec()),
        }
    }

    /// The command line for `/bin/sh -c`.
    pub(crate) fn fill(&self, binding: &[(&str, &str)]) -> String {
        match self {
            Self::Shell(text) => substitute(text, binding),
            Self::Words(words) => {
                let quoted: Vec<String> =
                    words.iter().map(|w| text::shell_quote(&substitute(w, binding))).collect();
                quoted.join(" ")
            }
        }
    }
}

/// Replaces `{name}` of known parameters; other braces stay, since shells use them too.
fn substitute(text: &str, binding: &[(&str, &str)]) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let (before, from_brace) = rest.split_at(open);
        filled.push_str(before);
        let known = from_brace[1..].split_once('}').and_then(|(name, after)| {
            binding.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value, after))
        });
        let (put, after) = known.unwrap_or(("{", &from_brace[1..]));
        filled.push_str(put);
        rest = after;
    }
    filled.push_str(rest);
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Result<Vec<String>, CliError> {
        text.parse::<ParamArg>().map_err(CliError::user)?.values().map(|p| p.values)
    }

    #[test]
    fn values_as_people_write_them() {
        for (text, expected) in [
            ("n=1:4", vec!["1", "2", "3", "4"]),
            ("n=0:1:0.25", vec!["0.00", "0.25", "0.50", "0.75", "1.00"]),
            ("n=0:0.3:0.1", vec!["0.0", "0.1", "0.2", "0.3"]),
            ("n=-1:1", vec!["-1", "0", "1"]),
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
    fn values_come_from_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "a b\n\n c \n").unwrap();
        assert_eq!(values(&format!("n=@{}", file.path().display())).unwrap(), ["a b", "c"]);
    }

    #[test]
    fn parameters_combine() {
        let params = [
            Param { name: "a".into(), values: vec!["1".into(), "2".into()] },
            Param { name: "b".into(), values: vec!["x".into(), "y".into()] },
        ];
        let all: Vec<String> = combine(&params, Link::Product)
            .unwrap()
            .iter()
            .map(|binding| Template::Shell("{a}{b}".into()).fill(binding))
            .collect();
        assert_eq!(all, ["1x", "1y", "2x", "2y"]);
        let pairs: Vec<String> = combine(&params, Link::Zip)
            .unwrap()
            .iter()
            .map(|binding| Template::Shell("{a}{b}".into()).fill(binding))
            .collect();
        assert_eq!(pairs, ["1x", "2y"]);
        assert_eq!(combine(&[], Link::Product).unwrap(), [vec![]]);
        assert_eq!(combine(&[], Link::Zip).unwrap(), [vec![]]);
    }

    #[test]
    fn wrong_combinations_are_refused() {
        let short = Param { name: "a".into(), values: vec!["1".into()] };
        let long = Param { name: "b".into(), values: vec!["1".into(), "2".into()] };
        assert!(combine(&[short.clone(), long.clone()], Link::Zip).is_err());
        assert!(combine(&[short.clone(), short], Link::Product).is_err());
        let huge = |name: &str| Param { name: name.into(), values: vec![String::new(); 2000] };
        assert!(combine(&[huge("a"), huge("b")], Link::Product).is_err());
    }

    #[test]
    fn only_known_names_are_filled_in() {
        let binding = [("n", "7"), ("f", "a b")];
        for (text, expected) in [
            ("sim {n}", "sim 7"),
            ("awk '{print $1}' {n}", "awk '{print $1}' 7"),
            ("{{n}} {m} {", "{7} {m} {"),
            ("${n}", "$7"),
        ] {
            assert_eq!(Template::Shell(text.into()).fill(&binding), expected);
        }
        let words = ["wc".to_owned(), "-l".to_owned(), "{f}".to_owned(), "it's".to_owned(), String::new()];
        assert_eq!(Template::from_words(&words).fill(&binding), r"wc -l 'a b' 'it'\''s' ''");
        assert_eq!(Template::from_words(&words[2..3]).fill(&binding), "a b");
    }
}
