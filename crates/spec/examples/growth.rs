//! Searches for input whose cost grows faster than its size: reads many repetitions of a string, in every format,
//! at growing sizes, and prints slow ones.
//!
//! `cargo run --release -p windlass-spec --example growth -- [load|convert|reformat|patch|many] [PIECE]`; `many`
//! reads specs with many different entries of one kind, valid or with many errors.

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::time::{Duration, Instant};
use windlass_spec::patch::{NewFieldValue, SpecEdit, set_values};
use windlass_spec::{DiagnosticStyle, NoAttachments, SpecFormat, SpecSource};

/// Pieces without spaces, separated by spaces; pieces with spaces follow.
const PIECES: &str = "[ { ( \" ' \"\"\" ''' # /* // /- - a. a= a{ [a. {\"a\": {a: {a= 0 9 1e 0x \\ \\u ? &a *a ! = , ; r#\" #\" \
    } ] ) a, a; \"a\", {}, [], (a) !a, a=1; a{} a{};";
#[rustfmt::skip]
const SPACED: [&str; 40] = [
    "- ", "a {", "[[a]]\n", "a: ", "? ", "&a ", "*a ", "|\n", "\n", " ", "\t", "=\n", "a\n", "a 1\n", "a=1\n",
    "a.b=1\n", "a: 1\n", "[a]\n", "/* */", "\u{feff}", "\u{2028}", "- a\n", "- - \n", "? a\n", "# a\n", "a #b\n",
    "// a\n", "a: |\n", "\"\n", "\\\n", "a \\\n", "a /-", "<<: 1\n", "name: x\n", "- {name: a, command: b}\n",
    "job a command=b\n", "{name: a}, ", "a\r", "%a\n", "---\n",
];
/// Prefixes, so that pieces occur at different places.
const BEFORE: [&str; 4] =
    ["", "name: w\njobs:\n- name: ", "name = \"w\"\n[[jobs]]\nname = ", "{\"name\": \"w\", \"jobs\": ["];

/// The start of a spec in YAML, the repeated part with `#` as a running number, and the end.
const MANY: [(&str, &str, &str); 22] = [
    ("{variables: {", "v#: 1, ", "}, jobs: [{name: a, command: b}]}"),
    ("{variables: {v0: x, ", "v#: '{v0}', ", "}, jobs: [{name: a, command: b}]}"),
    ("{env: {", "V#: 1, ", "}, jobs: [{name: a, command: b}]}"),
    ("{metadata: {", "v#: '{gone}', ", "}, jobs: [{name: a, command: b}]}"),
    ("{parameters: {", "p#: 1, ", "}, jobs: [{name: a, command: b}]}"),
    ("{jobs: [{name: a, command: b, parameters: {", "p#: 1, ", "}}]}"),
    ("{jobs: [", "{name: j#, command: b}, ", "]}"),
    ("{jobs: [", "{name: j#, command: b, env: {A: '#'}}, ", "]}"),
    ("{jobs: [{name: j, command: b}, ", "{name: j, command: b}, ", "]}"),
    ("{jobs: [", "{name: j#, command: b, depends_on: [j#]}, ", "]}"),
    ("{jobs: [", "{name: j#, command: b, depends_on: [k#]}, ", "]}"),
    ("{jobs: [", "{name: j#, command: b, depends_on_regexes: ['^j#$']}, ", "]}"),
    ("{jobs: [", "{name: j#, command: b, resource_requirements: r#}, ", "]}"),
    ("{jobs: [", "{name: j#, command: b, failure_handler: r#}, ", "]}"),
    ("{failure_handlers: [", "{name: h#, rules: [{exit_codes: [1]}]}, ", "], jobs: [{name: a, command: b}]}"),
    ("{slurm_schedulers: [", "{name: h#, account: a}, ", "], jobs: [{name: a, command: b}]}"),
    ("{resource_requirements: [", "{name: h#}, ", "], jobs: [{name: a, command: b}]}"),
    ("{files: [", "{name: f#, path: p#}, ", "], jobs: [{name: a, command: b}]}"),
    ("{files: [", "{name: f#, path: same}, ", "], jobs: [{name: a, command: b}]}"),
    ("{jobs: [{name: a, command: '", "${files.input.f#} ", "'}]}"),
    ("{jobs: [{name: a, command: '", "${files.input.", "'}]}"),
    ("{jobs: [{name: a, command: '", "{gone#} ", "'}]}"),
];
const SLOW: Duration = Duration::from_millis(300);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let work = arguments.next().unwrap_or_else(|| "load".to_owned());
    let only = arguments.next();
    let is_wanted = |piece: &&str| only.as_deref().is_none_or(|only| only == *piece);
    if work == "many" {
        for (start, piece, end) in MANY.iter().filter(|(_, piece, _)| is_wanted(piece)) {
            let make = |size: usize| numbered(start, piece, end, size);
            for work in ["load", "convert", "reformat"] {
                measure(work, piece, SpecFormat::Yaml, only.is_some(), make);
            }
        }
        return;
    }
    for piece in PIECES.split_whitespace().chain(SPACED).filter(is_wanted) {
        for format in SpecFormat::ALL {
            for before in BEFORE {
                let make = |size: usize| format!("{before}{}", piece.repeat(size / piece.len()));
                measure(&work, piece, format, only.is_some(), make);
            }
        }
    }
}

fn numbered(start: &str, piece: &str, end: &str, size: usize) -> String {
    let mut text = start.replacen('{', "{name: w, ", 1);
    text.extend((0..size / piece.len()).map(|number| piece.replace('#', &number.to_string())));
    text + end
}

/// Skips larger sizes once a size is slow.
fn measure(work: &str, piece: &str, format: SpecFormat, always: bool, make: impl Fn(usize) -> String) {
    let mut times = Vec::new();
    for size in [1 << 16, 1 << 18, 1 << 20] {
        let text = make(size);
        let start = Instant::now();
        run(work, SpecSource { name: "evil", text: text.as_bytes(), format: Some(format) });
        times.push(start.elapsed());
        if start.elapsed() > SLOW {
            break;
        }
    }
    if always || times.iter().any(|time| *time > SLOW) {
        println!("{work} {} {piece:?}: {times:.1?}", format.name());
    }
}

fn run(work: &str, source: SpecSource<'_>) {
    match work {
        "convert" => SpecFormat::ALL.into_iter().for_each(|to| drop(windlass_spec::convert_spec(source, to))),
        "reformat" => drop(windlass_spec::reformat_spec(source)),
        "patch" => {
            let edit =
                SpecEdit { list: "jobs", name: "a", field: "priority", value: NewFieldValue::Integer(1) };
            drop(set_values(source, &[edit]));
        }
        _ => {
            drop(
                windlass_spec::load_spec(source, &NoAttachments)
                    .map_err(|problems| problems.render(DiagnosticStyle::Ansi)),
            );
        }
    }
}
