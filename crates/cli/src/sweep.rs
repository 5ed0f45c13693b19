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
    /// Text for the shell. Values that the shell would not leave alone must be asked for quoted, as `{name:q}`: a file
    /// name with a space or a semicolon must not become something else than a file name.
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
    let width = padded_width(parts[0]) + if digits > 0 { digits + 1 } else { 0 };
    Some(Ok((0..=steps as u64).map(|i| format!("{:0width$.digits$}", first + i as f64 * step)).collect()))
}

/// How many places before the point are filled with zeros: `01:10` means 01, 02, … 10.
fn padded_width(first: &str) -> usize {
    let whole = first.split_once('.').map_or(first, |(whole, _)| whole);
    if whole.len() > 1 && whole.starts_with('0') { whole.len() } else { 0 }
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
    pub(crate) fn fill(&self, binding: &[(&str, &str)]) -> Result<String, CliError> {
        match self {
            Self::Shell(text) => substitute(text, binding, for_shell),
            Self::Words(words) => {
                // The whole word is quoted afterwards, so both forms give the value as it is.
                let as_it_is = |_: &str, value: &str, _: Form| Ok(value.to_owned());
                let fill = |word: &String| substitute(word, binding, as_it_is).map(|w| text::shell_quote(&w));
                Ok(words.iter().map(fill).collect::<Result<Vec<_>, _>>()?.join(" "))
            }
        }
    }

    /// Whether there is anything to run.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Shell(text) => text.trim().is_empty(),
            Self::Words(words) => words.first().is_none_or(|word| word.trim().is_empty()),
        }
    }

    fn uses(&self, name: &str) -> bool {
        let found = |text: &str| pieces(text, &[name]).iter().any(|piece| matches!(piece, Piece::Value(..)));
        match self {
            Self::Shell(text) => found(text),
            Self::Words(words) => words.iter().any(|word| found(word)),
        }
    }
}

/// A parameter that is used nowhere would only repeat every command: somebody has misspelled it.
pub(crate) fn refuse_unused(params: &[Param], templates: &[Template]) -> Result<(), CliError> {
    match params.iter().find(|param| !templates.iter().any(|template| template.uses(&param.name))) {
        None => Ok(()),
        Some(Param { name, .. }) => Err(CliError::user(format!("no command uses the parameter `{name}`"))
            .with_hint(format!("write {{{name}}} where its value belongs"))),
    }
}

/// How a value is to be put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `{name}`
    Plain,
    /// `{name:q}`
    Quoted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'t> {
    Text(&'t str),
    /// The number of the parameter.
    Value(usize, Form),
}

/// Finds `{name}` and `{name:q}` of known parameters; other braces are text, since shells use them too.
fn pieces<'t>(text: &'t str, names: &[&str]) -> Vec<Piece<'t>> {
    let mut pieces = Vec::new();
    let (mut start, mut from) = (0, 0);
    while let Some(open) = text[from..].find('{').map(|at| from + at) {
        from = open + 1;
        let Some((inside, _)) = text[from..].split_once('}') else { break };
        let (name, form) =
            inside.strip_suffix(":q").map_or((inside, Form::Plain), |name| (name, Form::Quoted));
        if let Some(number) = names.iter().position(|known| *known == name) {
            pieces.extend([Piece::Text(&text[start..open]), Piece::Value(number, form)]);
            from += inside.len() + 1;
            start = from;
        }
    }
    pieces.push(Piece::Text(&text[start..]));
    pieces
}

/// Fills in the values, each as `put(name, value, form)` says.
fn substitute(
    text: &str,
    binding: &[(&str, &str)],
    put: impl Fn(&str, &str, Form) -> Result<String, CliError>,
) -> Result<String, CliError> {
    let names: Vec<&str> = binding.iter().map(|(name, _)| *name).collect();
    let mut filled = String::with_capacity(text.len());
    for piece in pieces(text, &names) {
        match piece {
            Piece::Text(text) => filled.push_str(text),
            Piece::Value(number, form) => filled.push_str(&put(binding[number].0, binding[number].1, form)?),
        }
    }
    Ok(filled)
}

fn for_shell(name: &str, value: &str, form: Form) -> Result<String, CliError> {
    match form {
        Form::Quoted => Ok(text::always_quoted(value)),
        Form::Plain if text::is_left_alone(value) => Ok(value.to_owned()),
        Form::Plain => {
            let shown = text::truncate(&text::one_line(value), 60);
            let why = if value.is_empty() { "which is empty" } else { "which means something to the shell" };
            Err(CliError::user(format!("parameter `{name}` has the value `{shown}`, {why}"))
                .with_hint(format!("write {{{name}:q}} to insert it quoted")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Result<Vec<String>, CliError> {
        text.parse::<ParamArg>().map_err(CliError::user)?.values().map(|p| p.values)
    }

    fn shell(text: &str, binding: &[(&str, &str)]) -> Result<String, CliError> {
        Template::Shell(text.into()).fill(binding)
    }

    #[test]
    fn values_as_people_write_them() {
        for (text, expected) in [
            ("n=1:4", vec!["1", "2", "3", "4"]),
            ("n=0:1:0.25", vec!["0.00", "0.25", "0.50", "0.75", "1.00"]),
            ("n=0:0.3:0.1", vec!["0.0", "0.1", "0.2", "0.3"]),
            ("n=-1:1", vec!["-1", "0", "1"]),
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
            .map(|binding| shell("{a}{b}", binding).unwrap())
            .collect();
        assert_eq!(all, ["1x", "1y", "2x", "2y"]);
        let pairs: Vec<String> = combine(&params, Link::Zip)
            .unwrap()
            .iter()
            .map(|binding| shell("{a}{b}", binding).unwrap())
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
        let binding = [("n", "7"), ("f", "a b"), ("i", "it's")];
        for (text, expected) in [
            ("sim {n}", "sim 7"),
            ("awk '{print $1}' {n}", "awk '{print $1}' 7"),
            ("{{n}} {m} {", "{7} {m} {"),
            ("${n}", "$7"),
            ("{n:q} {n:x} {m:q}", "'7' {n:x} {m:q}"),
            ("cat {f:q} {i:q}", r"cat 'a b' 'it'\''s'"),
        ] {
            assert_eq!(shell(text, &binding).unwrap(), expected);
        }
        let words = ["wc".to_owned(), "-l".to_owned(), "{f}".to_owned(), "it's".to_owned(), String::new()];
        assert_eq!(Template::from_words(&words).fill(&binding).unwrap(), r"wc -l 'a b' 'it'\''s' ''");
        let asked_twice = ["wc".to_owned(), "{f:q}".to_owned()];
        assert_eq!(Template::from_words(&asked_twice).fill(&binding).unwrap(), "wc 'a b'");
        assert!(Template::from_words(&words[2..3]).fill(&binding).is_err(), "one word is for the shell");
    }

    #[test]
    fn a_shell_gets_only_values_that_it_leaves_alone_unless_quoted() {
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
    fn a_parameter_that_no_command_uses_is_refused() {
        let param = |name: &str| Param { name: name.into(), values: vec!["1".into()] };
        let templates = [Template::Shell("a {x:q}".into()), Template::Words(vec!["b".into(), "{y}".into()])];
        assert!(refuse_unused(&[param("x"), param("y")], &templates).is_ok());
        let error = refuse_unused(&[param("x"), param("z")], &templates).unwrap_err();
        assert!(error.message.contains("`z`"), "{error}");
    }
}
