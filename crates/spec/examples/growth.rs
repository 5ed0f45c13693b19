//! Looks for input that costs more than its size: reads much of one piece, in every format, at growing sizes, and prints
//! what took long or grew faster than the text.
//!
//! `cargo run --release -p windlass-spec --example growth -- [load|convert|reformat|patch] [PIECE]`

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::time::{Duration, Instant};
use windlass_spec::patch::{Edit, NewValue, set_values};
use windlass_spec::{Format, NoAttachments, Source};

/// Separated by spaces; those that hold one follow.
const PIECES: &str = "[ { ( \" ' \"\"\" ''' # /* // /- - a. a= a{ [a. {\"a\": {a: {a= 0 9 1e 0x \\ \\u ? &a *a ! = , ; r#\" #\" } ] ) \
    a, a; \"a\", {}, [], (a) !a, a=1; a{} a{};";
const SPACED: [&str; 40] = [
    "- ",
    "a {",
    "[[a]]\n",
    "a: ",
    "? ",
    "&a ",
    "*a ",
    "|\n",
    "\n",
    " ",
    "\t",
    "=\n",
    "a\n",
    "a 1\n",
    "a=1\n",
    "a.b=1\n",
    "a: 1\n",
    "[a]\n",
    "/* */",
    "\u{feff}",
    "\u{2028}",
    "- a\n",
    "- - \n",
    "? a\n",
    "# a\n",
    "a #b\n",
    "// a\n",
    "a: |\n",
    "\"\n",
    "\\\n",
    "a \\\n",
    "a /-",
    "<<: 1\n",
    "name: x\n",
    "- {name: a, command: b}\n",
    "job a command=b\n",
    "{name: a}, ",
    "a\r",
    "%a\n",
    "---\n",
];
const SLOW: Duration = Duration::from_millis(300);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let work = arguments.next().unwrap_or_else(|| "load".to_owned());
    let only = arguments.next();
    let pieces = PIECES
        .split_whitespace()
        .chain(SPACED)
        .filter(|piece| only.as_deref().is_none_or(|only| only == *piece));
    for piece in pieces {
        for format in Format::ALL {
            for prefix in [
                "",
                "name: w\njobs:\n- name: ",
                "name = \"w\"\n[[jobs]]\nname = ",
                "{\"name\": \"w\", \"jobs\": [",
            ] {
                measure(&work, prefix, piece, format, only.is_some());
            }
        }
    }
}

/// Larger sizes are left out once it is slow.
fn measure(work: &str, prefix: &str, piece: &str, format: Format, always: bool) {
    let mut times = Vec::new();
    for size in [1 << 16, 1 << 18, 1 << 20] {
        let text = format!("{prefix}{}", piece.repeat(size / piece.len()));
        let start = Instant::now();
        run(work, Source { name: "evil", text: text.as_bytes(), format: Some(format) });
        times.push(start.elapsed());
        if start.elapsed() > SLOW {
            break;
        }
    }
    if always || times.iter().any(|time| *time > SLOW) || times.len() < 3 {
        println!("{work} {} {prefix:?} {piece:?}: {times:.1?}", format.name());
    }
}

fn run(work: &str, source: Source<'_>) {
    match work {
        "convert" => Format::ALL.into_iter().for_each(|to| drop(windlass_spec::convert(source, to))),
        "reformat" => drop(windlass_spec::reformat(source)),
        "patch" => {
            let edit = Edit { list: "jobs", name: "a", field: "priority", value: NewValue::Integer(1) };
            drop(set_values(source, &[edit]));
        }
        _ => drop(
            windlass_spec::load(source, &NoAttachments)
                .map_err(|problems| problems.render(windlass_spec::Style::Ansi)),
        ),
    }
}
