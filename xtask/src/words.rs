//! `cargo xtask words`: names and texts use the words of docs/glossary.md.
//!
//! The rules are the tables below. Reading files is separate from checking lines, so that tests can check
//! artificial lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::layers::source::blank_out;

const HELP: &str = "\
cargo xtask words [--counts]: checks names and texts

  - a public type name is declared in one crate only, or has an entry with a reason in xtask/src/words.rs
  - retired words (docs/glossary.md says what replaced them) occur nowhere in source, help texts and docs,
    and not as words of identifiers and file names: `verdict`, `old_verdicts` and `OldVerdict` alike
  - \"nobody\", \"somebody\", \"whoever\", \"everybody\" and \"whatever\" occur nowhere in source, help texts and docs

  --counts  prints how many type names have one word and how many type and function names are unique
";

/// Public type names that more than one crate declares, with the reason. This list may only shrink.
const SHARED_TYPE_NAMES: &[(&str, &str)] = &[
    ("ExecutionConfig", "crates/api has the JSON form of Torc's contract"),
    ("ExecutionMode", "crates/api has the JSON form of Torc's contract"),
    ("StdioMode", "crates/api has the JSON form of Torc's contract"),
];

/// Retired words, matched as whole words and case-sensitively.
const RETIRED: &[&str] = &[
    "Office",
    "Desk",
    "Desks",
    "Mate",
    "Mates",
    "Sequel",
    "Sequels",
    "Retrial",
    "Onward",
    "stirred",
    "roused",
    "quarters",
    "lookers",
    "farewells",
    "Lookout",
    "Yard",
    "Leash",
    "telltale",
    "Telltale",
    "steward",
    "Steward",
    "escort",
    "Veiled",
    "veiled",
    "veil",
    "insofar",
];

/// Retired words inside identifiers and file names, which are split at `_` and capitals. Lower case and singular;
/// the plural is retired too. Strings may contain them: some are keys of published formats.
const RETIRED_IN_NAMES: &[&str] = &[
    "office",
    "desk",
    "sequel",
    "retrial",
    "onward",
    "stirred",
    "roused",
    "quarters",
    "looker",
    "farewell",
    "lookout",
    "leash",
    "telltale",
    "steward",
    "escort",
    "veil",
    "veiled",
    "verdict",
    "wish",
    "wished",
    "bury",
    "buried",
    "burial",
    "gate",
    "book",
    "nudge",
    "takeover",
    "taste",
    "suspicion",
    "fate",
    "house",
    "contestant",
    "surroundings",
    "rehearse",
    "rehearsed",
    "rehearsal",
    "judged",
];

/// Consecutive words of identifiers that are retired.
const RETIRED_PAIRS_IN_NAMES: &[[&str; 2]] = &[["job", "kind"]];

/// Retired phrases in docs and comments.
const RETIRED_PHRASES: &[&str] = &["the books", "in the books", "given back", "all that builds on"];

const PERSONS: &[&str] = &["nobody", "somebody", "whoever", "everybody", "whatever"];

/// Files that may contain retired words, because they list them or quote an earlier version.
const EXEMPT: &[(&str, &str)] = &[
    ("xtask/src/words.rs", "lists the retired words"),
    ("docs/glossary.md", "says what replaced the retired words"),
    ("crates/api/src/slurm.rs", "reads a JSON key of earlier versions"),
];

/// One violation of a rule.
#[derive(Debug, PartialEq, Eq)]
struct WordProblem {
    place: String,
    message: String,
}

/// A type or function that a source file declares.
#[derive(Debug, PartialEq, Eq)]
struct DeclaredName<'a> {
    name: &'a str,
    is_type: bool,
    is_public: bool,
}

pub(crate) fn main(arguments: &[String]) -> Result<()> {
    if arguments.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return Ok(());
    }
    if arguments.iter().any(|word| word == "--counts") {
        print!("{}", render_counts(&read_sources(Path::new("."))?));
        return Ok(());
    }
    check()
}

pub(crate) fn check() -> Result<()> {
    let root = Path::new(".");
    let sources = read_sources(root)?;
    let mut problems = find_shared_types(&sources, SHARED_TYPE_NAMES);
    for (path, text) in sources.iter().chain(&read_texts(root)?) {
        if EXEMPT.iter().all(|(exempt, _)| exempt != path) {
            problems.extend(find_words(path, text));
            if Path::new(path).extension().is_some_and(|ending| ending == "rs") {
                problems.extend(find_words_in_names(path, text));
            }
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    let mut text = String::new();
    for problem in &problems {
        writeln!(text, "{}: {}", problem.place, problem.message)?;
    }
    eprint!("{text}");
    bail!("{} names or words to replace; docs/glossary.md has the words to use", problems.len())
}

/// Paths relative to the root, with their text.
type SourceFiles = BTreeMap<String, String>;

fn read_sources(root: &Path) -> Result<SourceFiles> {
    let mut files = SourceFiles::new();
    for folder in ["crates", "xtask"] {
        read_folder(root, &root.join(folder), &["rs"], &mut files)?;
    }
    Ok(files)
}

fn read_texts(root: &Path) -> Result<SourceFiles> {
    let mut files = SourceFiles::new();
    for folder in ["docs", "examples"] {
        read_folder(root, &root.join(folder), &["md", "yaml", "json", "kdl", "toml", "1"], &mut files)?;
    }
    for name in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"))?;
        files.insert(name.to_owned(), text);
    }
    Ok(files)
}

fn read_folder(root: &Path, folder: &Path, endings: &[&str], files: &mut SourceFiles) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<PathBuf>, _>>()?;
    for path in paths {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if path.is_dir() {
            read_folder(root, &path, endings, files)?;
        } else if endings.contains(&ending) {
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            files.insert(name, text);
        }
    }
    Ok(())
}

/// Reads the name that a line declares, if it declares a type or a function.
fn parse_declaration(line: &str) -> Option<DeclaredName<'_>> {
    let mut words = line.split_whitespace().peekable();
    let mut is_public = false;
    while let Some(word) = words.next() {
        match word {
            "pub" => is_public = true,
            "const" | "async" | "unsafe" | "extern" | "\"C\"" => {}
            "struct" | "enum" | "trait" | "type" | "union" | "fn" => {
                let rest = words.next()?;
                let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
                let name = &rest[..end.unwrap_or(rest.len())];
                let is_type = word != "fn";
                let is_named = is_type == name.starts_with(|letter: char| letter.is_ascii_uppercase());
                return (is_named && !name.is_empty()).then_some(DeclaredName { name, is_type, is_public });
            }
            _ if word.starts_with("pub(") => {}
            _ => return None,
        }
    }
    None
}

/// The crate of a source file, if the file is part of the product and not of its tests.
fn crate_of(path: &str) -> Option<&str> {
    let mut parts = path.split('/');
    match (parts.next()?, parts.next()?, parts.next()) {
        ("crates", name, Some("src")) => Some(name),
        ("xtask", "src", _) => Some("xtask"),
        _ => None,
    }
}

fn find_shared_types(sources: &SourceFiles, shared: &[(&str, &str)]) -> Vec<WordProblem> {
    let mut crates_by_type: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (path, text) in sources {
        let Some(name) = crate_of(path) else { continue };
        // A member of a trait or of an implementation (`type Err`) is indented.
        for declared in text.lines().filter(|line| !line.starts_with(' ')).filter_map(parse_declaration) {
            if declared.is_type && declared.is_public {
                crates_by_type.entry(declared.name).or_default().insert(name);
            }
        }
    }
    let is_known = |name: &str| shared.iter().any(|(known, _)| *known == name);
    let mut problems: Vec<_> = crates_by_type
        .iter()
        .filter(|(name, crates)| crates.len() > 1 && !is_known(name))
        .map(|(name, crates)| WordProblem {
            place: format!("type {name}"),
            message: format!(
                "public in {}; give each a name of its own",
                crates.iter().copied().collect::<Vec<_>>().join(", ")
            ),
        })
        .collect();
    for (name, _) in shared {
        if crates_by_type.get(name).is_none_or(|crates| crates.len() < 2) {
            problems.push(WordProblem {
                place: format!("type {name}"),
                message: "is in the list of shared names and no longer shared; remove the entry".to_owned(),
            });
        }
    }
    problems
}

fn find_words(path: &str, text: &str) -> Vec<WordProblem> {
    let mut problems = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let place = || format!("{path}:{}", index + 1);
        for word in line.split(|letter: char| !letter.is_alphanumeric()) {
            if RETIRED.contains(&word) {
                problems.push(WordProblem { place: place(), message: format!("`{word}` is retired") });
            }
            if PERSONS.iter().any(|person| person.eq_ignore_ascii_case(word)) {
                let message = format!("`{word}`: name the thing, the role or the program instead");
                problems.push(WordProblem { place: place(), message });
            }
        }
        for phrase in RETIRED_PHRASES.iter().filter(|phrase| line.contains(**phrase)) {
            problems.push(WordProblem { place: place(), message: format!("\"{phrase}\" is retired") });
        }
    }
    problems
}

/// Retired words inside the identifiers and the path of a source file.
fn find_words_in_names(path: &str, text: &str) -> Vec<WordProblem> {
    let code = blank_out(text);
    let lines = code.lines().enumerate().map(|(index, line)| (format!("{path}:{}", index + 1), line));
    let mut problems = Vec::new();
    for (place, line) in lines.chain([(path.to_owned(), path)]) {
        for name in line.split(|letter: char| !letter.is_alphanumeric() && letter != '_') {
            let words = split_name(name);
            let single = words.iter().find(|word| is_retired_in_names(word)).cloned();
            let pair = words.windows(2).find(|pair| {
                let [first, second] = pair else { return false };
                RETIRED_PAIRS_IN_NAMES.iter().any(|[a, b]| first == a && is_singular_of(b, second))
            });
            if let Some(word) = single.or_else(|| pair.map(|pair| pair.join("_"))) {
                let message = format!("`{name}` contains `{word}`, which is retired");
                problems.push(WordProblem { place: place.clone(), message });
            }
        }
    }
    problems
}

/// The words of an identifier in lower case: `JobRow` and `job_row` are `job`, `row`.
fn split_name(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_upper = true;
    for letter in name.chars() {
        if letter == '_' || letter.is_uppercase() && !was_upper {
            words.push(String::new());
        }
        was_upper = letter.is_uppercase();
        if let Some(word) = words.last_mut().filter(|_| letter != '_') {
            word.extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn is_retired_in_names(word: &str) -> bool {
    RETIRED_IN_NAMES.iter().any(|retired| is_singular_of(retired, word))
}

/// Whether `word` is `singular` or its plural.
fn is_singular_of(singular: &str, word: &str) -> bool {
    let plural_of_y = || Some(format!("{}ies", singular.strip_suffix('y')?));
    word == singular
        || word.strip_prefix(singular).is_some_and(|ending| ending == "s" || ending == "es")
        || plural_of_y().is_some_and(|plural| plural == word)
}

fn render_counts(sources: &SourceFiles) -> String {
    let mut types: BTreeMap<&str, usize> = BTreeMap::new();
    let mut functions: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, text) in sources.iter().filter(|(path, _)| crate_of(path).is_some()) {
        for declared in text.lines().filter_map(parse_declaration) {
            let names = if declared.is_type { &mut types } else { &mut functions };
            *names.entry(declared.name).or_default() += 1;
        }
    }
    let declared: usize = types.values().sum();
    let one_word: usize = types.iter().filter(|(name, _)| is_one_word(name)).map(|(_, count)| count).sum();
    let persons = sources
        .iter()
        .filter(|(path, _)| EXEMPT.iter().all(|(exempt, _)| exempt != path))
        .flat_map(|(_, text)| text.split(|letter: char| !letter.is_alphanumeric()))
        .filter(|word| PERSONS.iter().any(|person| person.eq_ignore_ascii_case(word)))
        .count();
    format!(
        "type names              {declared}\n  of one word           {one_word} ({} %)\n  unique                {} ({} %)\n\
         function names          {}\n  unique                {} ({} %)\nnobody, somebody, …     {persons}\n",
        percent(one_word, declared),
        count_unique(&types),
        percent(count_unique(&types), declared),
        functions.values().sum::<usize>(),
        count_unique(&functions),
        percent(count_unique(&functions), functions.values().sum()),
    )
}

fn is_one_word(name: &str) -> bool {
    name.chars().skip(1).all(|letter| !letter.is_ascii_uppercase())
}

fn count_unique(names: &BTreeMap<&str, usize>) -> usize {
    names.values().filter(|count| **count == 1).count()
}

fn percent(part: usize, whole: usize) -> usize {
    (part * 100 + whole / 2) / whole.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(texts: &[(&str, &str)]) -> SourceFiles {
        texts.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn declarations_are_parsed_with_visibility() {
        let name = |line| parse_declaration(line).map(|found| (found.name, found.is_type, found.is_public));
        assert_eq!(name("pub struct JobId(i64);"), Some(("JobId", true, true)));
        assert_eq!(name("    pub(crate) enum NodeState {"), Some(("NodeState", true, false)));
        assert_eq!(name("pub const fn new(id: u64) -> Self {"), Some(("new", false, true)));
        assert_eq!(name("pub type Rows<'a> = Vec<&'a Row>;"), Some(("Rows", true, true)));
        assert_eq!(name("let kind = struct_of(x);"), None);
        assert_eq!(name("/// The type Row is public."), None);
    }

    #[test]
    fn shared_public_type_is_a_problem_and_private_type_is_not() {
        let sources = files(&[
            ("crates/a/src/lib.rs", "pub struct Row;\nstruct Shared;"),
            ("crates/b/src/x.rs", "pub struct Row;\npub(crate) struct Shared;"),
            ("crates/c/tests/t.rs", "pub struct Row;"),
        ]);
        let problems = find_shared_types(&sources, &[]);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].message.contains("a, b"), "{problems:?}");
    }

    #[test]
    fn retired_words_are_found_as_whole_words_with_line() {
        let problems = find_words("x.md", "fine\nNobody reads the books of an Officer.\nthe Desk");
        let places: Vec<_> = problems.iter().map(|problem| problem.place.as_str()).collect();
        assert_eq!(places, ["x.md:2", "x.md:2", "x.md:3"]);
    }

    #[test]
    fn retired_words_are_found_inside_identifiers_and_plurals() {
        let names = |path, text| -> Vec<String> {
            let problems = find_words_in_names(path, text);
            problems.into_iter().map(|problem| problem.place).collect()
        };
        let source = "let old_verdict = 1;\nstruct JobVerdicts;\nfn wishes() {}\nconst OPEN_GATES: u8 = 1;\n\
                      fn burials() {}\nlet job_kinds = 1;\nJobKind::A";
        let expected: Vec<_> = (1..=7).map(|line| format!("x.rs:{line}")).collect();
        assert_eq!(names("x.rs", source), expected);
        let allowed =
            "let aggregate = job_group(\"verdict\"); // a verdict\nlet kind = bookmark;\nlet job_list = 1;";
        assert_eq!(names("x.rs", allowed), [] as [&str; 0]);
        assert_eq!(names("tests/server_takeover.rs", ""), ["tests/server_takeover.rs"]);
    }

    #[test]
    fn names_are_split_at_underscores_and_capitals() {
        assert_eq!(split_name("load_job_rows"), ["load", "job", "rows"]);
        assert_eq!(split_name("LoadJobRows"), ["load", "job", "rows"]);
        assert_eq!(split_name("MAX_ROWS"), ["max", "rows"]);
        assert_eq!(split_name("_x"), ["x"]);
    }

    #[test]
    fn counts_show_word_counts_and_unique_names() {
        let sources =
            files(&[("crates/a/src/lib.rs", "struct Row;\nstruct JobRow;\nfn load() {}\nfn load() {}")]);
        let text = render_counts(&sources);
        assert!(text.contains("of one word           1 (50 %)"), "{text}");
        assert!(text.contains("unique                0 (0 %)"), "{text}");
    }
}
