//! Hostile and random input: the result is always a spec or errors, never a panic, never unbounded work.

use proptest::prelude::*;
use windlass_spec::patch::{NewFieldValue, SpecEdit, SpecPatchError, set_values};
use windlass_spec::{
    DiagnosticStyle, NoAttachments, SpecFormat, SpecSource, convert_spec, load_spec, reformat_spec,
};

/// Returns the code of the last problem in the file.
#[track_caller]
fn last_code(text: &str) -> &'static str {
    let diagnostics = load_spec(SpecSource::new("evil.yaml", text.as_bytes()), &NoAttachments)
        .expect_err("should be refused");
    assert!(!diagnostics.render(DiagnosticStyle::Plain).is_empty());
    diagnostics.list.last().map_or("", |diagnostic| diagnostic.code)
}

#[test]
fn deep_nesting_is_rejected() {
    for depth in [100, 200] {
        assert_eq!(last_code(&format!("name: {}{}", "[".repeat(depth), "]".repeat(depth))), "too-deep");
        assert_eq!(last_code(&format!("x: {}{}", "{a: ".repeat(depth), "}".repeat(depth))), "too-deep");
    }
    for depth in [300, 100_000] {
        // The parser itself rejects these.
        let text = format!("name: {}{}", "[".repeat(depth), "]".repeat(depth));
        let diagnostics = load_spec(SpecSource::new("evil.yaml", text.as_bytes()), &NoAttachments)
            .expect_err("should be refused");
        assert_eq!(diagnostics.list.last().map(|last| last.message.as_str()), Some("nested too deeply"));
    }
    let mut block = String::new();
    block.extend((0..200).map(|depth| format!("{}a:\n", " ".repeat(depth))));
    assert_eq!(last_code(&block), "too-deep");
    let just_deep = format!("name: {}{}\njobs: [{{name: a, command: b}}]\n", "[".repeat(60), "]".repeat(60));
    assert_eq!(last_code(&just_deep), "wrong-type");
}

/// Each level contains the previous one `width` times.
fn bomb(levels: usize, width: usize) -> String {
    let mut text = "a0: &a0 [x]\n".to_owned();
    for level in 1..levels {
        let aliases = vec![format!("*a{}", level - 1); width].join(", ");
        text.extend([format!("a{level}: &a{level} [{aliases}]\n")]);
    }
    text
}

#[test]
fn unused_alias_bombs_are_not_expanded() {
    let text = format!(
        "{}? [*a29, *a29]\n: *a29\njobs:\n- name: a\n  command: *a29\n  depends_on: *a29\n",
        bomb(30, 10)
    );
    let diagnostics = load_spec(SpecSource::new("evil.yaml", text.as_bytes()), &NoAttachments)
        .expect_err("should be refused");
    let mut codes: Vec<_> = diagnostics.list.iter().map(|diagnostic| diagnostic.code).collect();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes, ["complex-key", "missing-field", "unknown-field", "wrong-type"]);
}

#[test]
fn merge_bomb_is_rejected() {
    // Every map merges the previous one twice.
    let mut text = "m0: &m0 {a: 1}\n".to_owned();
    for level in 1..64 {
        text.extend([format!("m{level}: &m{level} {{<<: [*m{0}, *m{0}]}}\n", level - 1)]);
    }
    text.push_str("name: w\njobs:\n- {name: a, command: b, env: *m63}\n");
    let diagnostics = load_spec(SpecSource::new("evil.yaml", text.as_bytes()), &NoAttachments)
        .expect_err("should be refused");
    assert!(diagnostics.list.iter().any(|diagnostic| diagnostic.code == "too-many-aliases"), "{diagnostics}");
}

#[test]
fn repeated_aliases_of_a_large_string_are_rejected() {
    let long = "\\u0041".repeat(20_000);
    let mut text = format!("name: w\nenv:\n  A: &a \"{long}\"\njobs:\n");
    text.extend((0..10_000).map(|job| format!("- {{name: j{job}, command: *a}}\n")));
    assert_eq!(last_code(&text), "too-many-aliases");
}

#[test]
fn recursive_aliases_are_rejected() {
    for text in
        ["name: &a [*a]\n", "name: &a {b: *a}\n", "&a {<<: *a, name: w}\n", "&a {<<: [*a], name: w}\n"]
    {
        assert_ne!(last_code(text), "", "{text}");
    }
}

#[test]
fn complex_keys_are_rejected() {
    let text = "? [a, b]\n: c\n? {d: e}\n: [f, g]\n? *h\n: i\nname: w\njobs: [{name: a, command: b}]\n";
    let diagnostics = load_spec(SpecSource::new("evil.yaml", text.as_bytes()), &NoAttachments)
        .expect_err("should be refused");
    let codes: Vec<_> = diagnostics.list.iter().map(|diagnostic| diagnostic.code).collect();
    assert_eq!(codes, ["complex-key", "complex-key", "unknown-alias"]);
}

#[test]
fn merges_of_non_maps_are_rejected() {
    for (value, code) in
        [("x", "merge-value"), ("[*m, y]", "merge-value"), ("*no", "unknown-alias"), ("", "merge-value")]
    {
        let text = format!("name: w\nenv: &m {{A: b}}\njobs:\n- name: a\n  command: b\n  <<: {value}\n");
        let diagnostics = load_spec(SpecSource::new("evil.yaml", text.as_bytes()), &NoAttachments)
            .expect_err("should be refused");
        assert!(diagnostics.list.iter().any(|diagnostic| diagnostic.code == code), "{value}: {diagnostics}");
    }
}

#[test]
fn truncated_file_is_loaded_or_has_problems() {
    for end in 0..GOOD.len() {
        let bytes = &GOOD.as_bytes()[..end];
        if let Err(diagnostics) = load_spec(SpecSource::new("cut.yaml", bytes), &NoAttachments) {
            assert!(!diagnostics.list.is_empty());
            assert!(diagnostics.render(DiagnosticStyle::Ansi).contains("cut.yaml"));
        }
    }
    assert!(load_spec(SpecSource::new("whole.yaml", GOOD.as_bytes()), &NoAttachments).is_ok());
}

const GOOD: &str = r#"name: simulation
description: "größer \u00e9"
env: &env {MODE: 0755, "ODD": 'it''s'}
stdio: {mode: combined}
resource_requirements:
  - {name: small, num_cpus: 1, memory: 1g, runtime: 1h30m}
jobs:
  - &first
    name: prepare   # a remark
    command: |
      set -e
      ./prepare
    env: {<<: *env, X: 日本}
  - name: work
    command: >-
      ./work
      --fast
    depends_on: &all [prepare]
    resource_requirements: small
    priority: 3
  - {<<: *first, name: again, depends_on: *all, cancel_on_blocking_job_failure: false}
"#;

/// Every input gives a result that can be displayed.
fn answer(bytes: &[u8]) {
    match load_spec(SpecSource::new("chance.yaml", bytes), &NoAttachments) {
        Ok(workflow) => {
            let jobs = workflow.job_count() as u32;
            assert!(jobs > 0 && !workflow.name().is_empty());
            for job in workflow.jobs() {
                assert!(!job.name.is_empty() && !job.command(1).is_empty());
                assert!(job.depends_on().flatten().all(|target| *target < jobs));
                assert!(
                    job.requirements.is_none_or(|index| (index as usize) < workflow.requirements().len())
                );
            }
        }
        Err(diagnostics) => {
            assert!(!diagnostics.list.is_empty());
            assert_eq!(diagnostics.reports().len(), diagnostics.list.len());
            assert!(!diagnostics.render(DiagnosticStyle::Ansi).is_empty());
        }
    }
}

/// Strings with a meaning in YAML or in specs.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "name",
            "jobs",
            "command",
            "depends_on",
            "env",
            "<<",
            "stdio",
            "mode",
            "priority",
            "a",
            "b",
            "x",
            "~",
            "0",
            "true",
        ])
        .prop_map(str::to_owned),
        prop::sample::select(vec![
            ": ", ":\n", "- ", "\n", "\n  ", "\n    ", "[", "]", "{", "}", ", ", "&a ", "*a", "!!str ",
            "!x ", "\"", "'", "|\n", ">-\n", "# ", "---\n", "...\n", "? ", "\t", "\r\n", "\u{feff}", "ü",
            "日", "\\",
        ])
        .prop_map(str::to_owned),
        "[a-z]{1,4}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_loaded_or_have_problems(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        answer(&bytes);
    }

    #[test]
    fn arbitrary_pieces_are_loaded_or_have_problems(pieces in prop::collection::vec(piece(), 0..40)) {
        answer(pieces.concat().as_bytes());
    }

    /// A valid file with some parts replaced.
    #[test]
    fn damaged_file_is_loaded_or_has_problems(damage in prop::collection::vec((any::<prop::sample::Index>(), 0usize..20, piece()), 1..5)) {
        let mut bytes = GOOD.as_bytes().to_vec();
        for (place, length, piece) in damage {
            let start = place.index(bytes.len());
            let end = (start + length).min(bytes.len());
            bytes.splice(start..end, piece.bytes());
        }
        answer(&bytes);
    }
}

/// All operations on a text in some format return a result.
fn answer_as(format: SpecFormat, bytes: &[u8]) {
    let source = SpecSource { name: "chance", text: bytes, format: Some(format) };
    let loaded = load_spec(source, &NoAttachments).map(|_| ());
    if let Err(diagnostics) = &loaded {
        assert!(!diagnostics.list.is_empty() && !diagnostics.render(DiagnosticStyle::Ansi).is_empty());
    }
    for to in SpecFormat::ALL {
        match convert_spec(source, to) {
            // The conversion to another format is as valid as the original.
            Ok(text) => {
                let again = SpecSource { name: "again", text: text.as_bytes(), format: Some(to) };
                assert_eq!(load_spec(again, &NoAttachments).is_ok(), loaded.is_ok(), "{text}");
            }
            Err(diagnostics) => assert!(!diagnostics.list.is_empty()),
        }
    }
    if let Ok(text) = reformat_spec(source) {
        let again = reformat_spec(SpecSource { text: text.as_bytes(), ..source });
        assert_eq!(again.as_deref(), Ok(text.as_str()));
    }
}

/// Many repetitions of one string: parsed, converted, formatted and patched.
#[test]
fn repeated_pieces_are_rejected_with_limited_output() {
    const SIZE: usize = 1 << 15;
    let pieces = "[ { ( \" ' \"\"\" ''' # /* // /- - a. a= a{ [a. {\"a\": {a: {a= 0 9 1e 0x \\ \\u ? &a *a ! = , ; r#\" #\" } ] ) a, {}, a{}; !a,";
    let spaced = [
        "- ", "a {", "[[a]]\n", "a: ", "? ", "&a ", "*a ", "|\n", "\n", " ", "\t", "=\n", "a\n", "a 1\n",
        "a=1\n", "a.b=1\n", "a: 1\n", "[a]\n", "/* */", "\u{feff}", "\u{2028}", "- a\n", "? a\n", "# a\n",
        "a: |\n", "<<: 1\n", "%a\n", "---\n",
    ];
    let edits = [SpecEdit { list: "jobs", name: "a", field: "priority", value: NewFieldValue::Integer(1) }];
    for piece in pieces.split(' ').chain(spaced) {
        let text = piece.repeat(SIZE / piece.len());
        for format in SpecFormat::ALL {
            let source = SpecSource { name: "evil", text: text.as_bytes(), format: Some(format) };
            let problems = load_spec(source, &NoAttachments).map(|_| ()).expect_err("this is not a spec");
            assert!(!problems.list.is_empty() && problems.list.len() <= 50, "{piece:?} as {}", format.name());
            assert!(convert_spec(source, SpecFormat::Json).is_err(), "{piece:?} as {}", format.name());
            let patched = set_values(source, &edits).ok();
            for made in reformat_spec(source).ok().into_iter().chain(patched) {
                assert!(made.len() < 8 * SIZE, "{piece:?} as {}", format.name());
            }
        }
        assert_eq!(SpecFormat::detect(text.as_bytes()), SpecFormat::detect(text.as_bytes()));
    }
}

/// Creates a spec with many repetitions of something, with their numbers for `#`.
fn many(start: &str, piece: &str, end: &str, count: usize) -> String {
    let mut text = start.replacen('{', "{name: w, ", 1);
    text.extend((0..count).map(|number| piece.replace('#', &number.to_string())));
    text + end
}

/// Lookups must not be linear searches.
#[test]
fn lists_of_thousands_of_entries_are_checked() {
    const COUNT: usize = 4000;
    let one_job = "], jobs: [{name: a, command: b}]}";
    for (start, piece, end, code) in [
        ("{variables: {", "v#: 1, ", "}, jobs: [{name: a, command: b}]}", None),
        ("{env: {", "V#: 1, ", "}, jobs: [{name: a, command: b}]}", None),
        (
            "{variables: {v: w}, metadata: {",
            "v#: '{gone}', ",
            "}, jobs: [{name: a, command: b}]}",
            Some("undefined-name"),
        ),
        ("{parameters: {", "p#: 1, ", "}, jobs: [{name: a, command: b}]}", None),
        ("{jobs: [{name: a, command: b, parameters: {", "p#: 1, ", "}}]}", Some("too-many")),
        ("{jobs: [", "{name: j#, command: b, env: {A: '#'}, labels: [x]}, ", "]}", None),
        ("{jobs: [{name: j, command: b}, ", "{name: j, command: b}, ", "]}", Some("duplicate-name")),
        ("{jobs: [", "{name: j#, command: b, depends_on: [j#]}, ", "]}", Some("self-dependency")),
        ("{jobs: [", "{name: j#, command: b, depends_on: [k#]}, ", "]}", Some("unknown-job")),
        ("{jobs: [", "{name: j#, command: b, failure_handler: h#}, ", "]}", Some("unknown-failure-handler")),
        ("{failure_handlers: [", "{name: h#, rules: [{exit_codes: [1]}]}, ", one_job, None),
        ("{resource_requirements: [", "{name: h#}, ", one_job, Some("missing-field")),
        ("{files: [", "{name: f#, path: p#}, ", one_job, None),
        ("{jobs: [{name: a, command: '", "${files.input.f#} ", "'}]}", Some("unknown-file")),
        ("{jobs: [{name: a, command: '", "${files.input.", "'}]}", None),
        ("{variables: {v: w}, jobs: [{name: a, command: '", "{gone#} ", "'}]}", Some("undefined-name")),
    ] {
        let text = many(start, piece, end, COUNT);
        let loaded = load_spec(SpecSource::new("many.yaml", text.as_bytes()), &NoAttachments);
        let found = loaded.map_or_else(|problems| problems.list.first().map(|first| first.code), |_| None);
        assert_eq!(found, code, "{piece}");
    }
}

#[test]
fn a_limited_number_of_cycles_is_reported() {
    // Every job of a chain waits for the next, and the last one for all.
    const COUNT: usize = 4000;
    let mut text = "name: w\njobs:\n".to_owned();
    text.extend(
        (0..COUNT).map(|job| format!("- {{name: j{job}, command: x, depends_on: [j{}]}}\n", job + 1)),
    );
    let all: Vec<String> = (0..COUNT).map(|job| format!("j{job}")).collect();
    text.extend([format!("- {{name: j{COUNT}, command: x, depends_on: [{}]}}\n", all.join(", "))]);
    let problems =
        load_spec(SpecSource::new("cycle.yaml", text.as_bytes()), &NoAttachments).expect_err("has cycles");
    assert!(problems.list.iter().all(|problem| problem.code == "cycle") && problems.count() <= 50);
}

#[test]
fn exponential_variable_expansion_is_rejected() {
    let mut text = "name: w\nvariables:\n  v0: xxxxxxxx\n".to_owned();
    text.extend((1..45).map(|level| format!("  v{level}: '{{v{0}}}{{v{0}}}'\n", level - 1)));
    text += "jobs: [{name: a, command: '{v44}'}]\n";
    assert_eq!(last_code(&text), "too-many");
    // Each is short enough, but all of them together are not.
    let long = "x".repeat(100_000);
    let holes = "{v} ".repeat(10_000);
    let text = format!("name: w\nvariables: {{v: {long}}}\njobs: [{{name: a, command: '{holes}'}}]\n");
    assert_eq!(last_code(&text), "too-many");
}

#[test]
fn deep_nesting_is_rejected_in_every_format() {
    for (format, open, close) in [
        (SpecFormat::Json, "[", "]"),
        (SpecFormat::Json, "{\"a\":", "}"),
        (SpecFormat::Json5, "{a:", "}"),
        (SpecFormat::Toml, "[", "]"),
        (SpecFormat::Toml, "{a=", "}"),
        (SpecFormat::Kdl, "{ a", "}"),
    ] {
        for depth in [65, 1000, 50_000] {
            let inside = format!("{} 1{}", open.repeat(depth), close.repeat(depth));
            let text = match format {
                SpecFormat::Toml => format!("metadata.x = {inside}\n"),
                SpecFormat::Kdl => format!("metadata {inside}\n"),
                _ => format!("{{\"metadata\": {{\"x\": {inside}}}}}"),
            };
            let source = SpecSource { name: "deep", text: text.as_bytes(), format: Some(format) };
            let problems = load_spec(source, &NoAttachments).map(|_| ()).expect_err("should be refused");
            let codes: Vec<_> = problems.list.iter().map(|problem| problem.code).collect();
            assert!(codes.contains(&"too-deep"), "{} {depth}: {codes:?}", format.name());
        }
    }
    let header = format!("[{}a]\nb = 1\n", "a.".repeat(100));
    let problems = load_spec(SpecSource::new("deep.toml", header.as_bytes()), &NoAttachments).map(|_| ());
    let problems = problems.expect_err("too deep");
    assert!(problems.list.iter().any(|problem| problem.code == "too-deep"), "{problems}");
}

#[test]
fn huge_numbers_are_kept_or_rejected() {
    let digits = "9".repeat(100_000);
    for (name, text) in [
        ("n.yaml", format!("name: w\njobs: [{{name: a, command: b, priority: {digits}}}]\n")),
        ("n.json", format!(r#"{{"name":"w","jobs":[{{"name":"a","command":"b","priority":{digits}}}]}}"#)),
        ("n.json5", format!("{{name:'w',jobs:[{{name:'a',command:'b',priority:{digits}}}]}}")),
        ("n.toml", format!("name='w'\n[[jobs]]\nname='a'\ncommand='b'\npriority={digits}\n")),
        ("n.kdl", format!("name w\njob a command=b priority={digits}\n")),
    ] {
        let problems = load_spec(SpecSource::new(name, text.as_bytes()), &NoAttachments).map(|_| ());
        let problems = problems.expect_err("out of range");
        let codes: Vec<_> = problems.list.iter().map(|problem| problem.code).collect();
        assert_eq!(codes, ["out-of-range"], "{name}");
    }
    for (name, text) in [
        ("n.json5", format!("{{name: 0x{digits}}}")),
        ("n.toml", format!("name = 0x{digits}")),
        ("n.kdl", format!("name 0x{digits}")),
    ] {
        assert!(load_spec(SpecSource::new(name, text.as_bytes()), &NoAttachments).is_err(), "{name}");
    }
}

#[test]
fn an_alias_bomb_is_not_converted_or_patched() {
    let levels = (1..12).map(|level| {
        format!("  a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 10].join(", "))
    });
    let levels: String = levels.collect();
    let text = format!("name: w\nmetadata:\n  a0: &a0 [x]\n{levels}jobs: [{{name: a, command: b}}]\n");
    let source = SpecSource::new("evil.yaml", text.as_bytes());
    let edit = SpecEdit { list: "jobs", name: "a", field: "priority", value: NewFieldValue::Integer(1) };
    let patched = set_values(source, &[edit]).map_err(|error| match error {
        SpecPatchError::Unreadable(problems) => problems,
        SpecPatchError::ManualEditNeeded { .. } => panic!("{error}"),
    });
    for result in [convert_spec(source, SpecFormat::Json), reformat_spec(source), patched] {
        let problems = result.expect_err("should be refused");
        assert!(problems.list.iter().any(|problem| problem.code == "too-many-aliases"), "{problems}");
    }
}

/// Strings with a meaning in some format.
fn any_piece() -> impl Strategy<Value = String> {
    let words = "name jobs job command env file path data a b true #true null 0 -1 0x1F 1e3 +5 .5 \"x\" 'y' \" ' \"\"\" ''' #\" \"# r\" { } \
        [ ] [[ ]] ( ) = : , ; . \\ \\n \\u // /* */ /- # &a *a <<";
    let mut pieces: Vec<&str> = words.split_whitespace().collect();
    pieces.extend([
        " = ", ": ", "\n", "\n  ", " ", "\t", "# ", "- ", "|\n", "&a ", "\r\n", "ü", "日", "\u{2028}",
        "\u{feff}",
    ]);
    prop_oneof![4 => prop::sample::select(pieces).prop_map(str::to_owned), 1 => "[a-z]{1,4}"]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_pieces_do_not_break_any_format(pieces in prop::collection::vec(any_piece(), 0..40)) {
        let text = pieces.concat();
        for format in SpecFormat::ALL {
            answer_as(format, text.as_bytes());
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_break_any_format(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        for format in SpecFormat::ALL {
            answer_as(format, &bytes);
        }
    }

    /// A valid file in some format with some parts replaced.
    #[test]
    fn damaged_files_do_not_break_any_format(
        format in prop::sample::select(SpecFormat::ALL.to_vec()),
        damage in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, any_piece()), 1..4),
    ) {
        let good = convert_spec(SpecSource::new("good.yaml", GOOD.as_bytes()), format);
        let mut bytes = good.unwrap_or_else(|problems| panic!("{problems}")).into_bytes();
        for (place, length, piece) in damage {
            let start = place.index(bytes.len());
            let end = (start + length).min(bytes.len());
            bytes.splice(start..end, piece.bytes());
        }
        answer_as(format, &bytes);
    }
}
