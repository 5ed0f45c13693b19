//! Randomly generated documents in the shape of a spec survive conversion to every format.

use super::*;
use crate::source::SourceSpan;
use proptest::prelude::*;

fn text(text: &str) -> DocumentTree<'static> {
    DocumentTree::scalar(text.to_owned(), false, SourceSpan::default())
}

fn plain(text: &str) -> DocumentTree<'static> {
    DocumentTree::scalar(text.to_owned(), true, SourceSpan::default())
}

fn map(entries: Vec<(String, DocumentTree<'static>)>) -> DocumentTree<'static> {
    let entry = |(key, value)| TreeEntry { key: Cow::Owned(key), key_span: SourceSpan::default(), value };
    DocumentTree::new(TreeValue::Map(entries.into_iter().map(entry).collect()), SourceSpan::default())
}

fn list(items: Vec<DocumentTree<'static>>) -> DocumentTree<'static> {
    DocumentTree::new(TreeValue::List(items), SourceSpan::default())
}

/// Texts that some format would misread or needs quotes or escapes for.
fn any_text() -> impl Strategy<Value = DocumentTree<'static>> {
    let awkward = prop::sample::select(vec![
        "",
        " ",
        "~",
        "null",
        "true",
        "no",
        "0755",
        "1e3",
        "1.10",
        "-0",
        ".5",
        "+5",
        "0x1F",
        ".inf",
        "12:30:45",
        "1_000",
        "2024-01-01",
        "- a",
        "a: b",
        "a #b",
        "#a",
        "'",
        "\"",
        "\"\"\"",
        "'''",
        "\\",
        "a\\",
        "\n",
        "a\nb",
        "a\nb\n",
        "a\n\n\nb\n\n",
        "\na",
        " a\n b",
        "\ta\nb",
        "a\n \nb",
        "a\r\nb",
        "\u{1}",
        "\u{7f}",
        "\u{85}x",
        "\u{2028}\n",
        "\u{feff}",
        "ü 日本 🚀",
        "{i:03d}",
        "${files.input.x}",
        "[1,2]",
        "*a",
        "&a",
        "!x",
        "%x",
        "@f",
        "`x`",
        "a,b",
        "}",
        "-",
        "--",
        "=x",
        "#\"x\"#",
        "a\"#b",
        "<<",
        "? x",
        "| x",
        "x:",
        "a\n#b\n",
        "a\n\"\"\"\nb",
        "a\n'''\nb",
        "a\\\nb",
        "r#\"x\"#",
        "#true",
        "inf",
        "nan",
        "-inf",
        "\u{202e}x",
        "a\tb",
    ]);
    prop_oneof![
        awkward.prop_map(str::to_owned),
        "[ -~]{0,12}",
        "[a-z_]{1,8}",
        "(?s).{0,6}",
        "([ -~]{0,5}\n){1,4}"
    ]
    .prop_map(|it| text(&it.replace('\0', "")))
}

fn any_literal() -> impl Strategy<Value = DocumentTree<'static>> {
    prop_oneof![
        prop::sample::select(vec!["true", "false"]).prop_map(str::to_owned),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>()
            .prop_filter("JSON has no infinity", |it| it.is_finite())
            .prop_map(|it| format!("{it:?}")),
        prop::sample::select(vec!["0", "-0", "1e3", "1.10", "1E+30", "123456789012345678901234567890"])
            .prop_map(str::to_owned),
    ]
    .prop_map(|it| plain(&it))
}

fn any_scalar() -> impl Strategy<Value = DocumentTree<'static>> {
    prop_oneof![3 => any_text(), 1 => any_literal()]
}

fn any_key() -> impl Strategy<Value = String> {
    let awkward = vec![
        "", "-", "a b", "true", "5", "<<", "a.b", "ü", "\"", "name", "null", "~", "a:", "#", "x=y", "\n",
    ];
    prop_oneof![3 => "[a-z_]{1,6}", 1 => prop::sample::select(awkward).prop_map(str::to_owned)]
}

fn any_map_of(
    value: impl Strategy<Value = DocumentTree<'static>>,
) -> impl Strategy<Value = DocumentTree<'static>> {
    prop::collection::btree_map(any_key(), value, 0..4).prop_map(|it| map(it.into_iter().collect()))
}

fn any_value() -> impl Strategy<Value = DocumentTree<'static>> {
    any_scalar().prop_recursive(3, 16, 4, |inner| {
        prop_oneof![prop::collection::vec(inner.clone(), 0..4).prop_map(list), any_map_of(inner)]
    })
}

/// Generates a value for a field of the given form.
fn any_of(form: FieldForm, depth: usize) -> BoxedStrategy<DocumentTree<'static>> {
    match form {
        FieldForm::Text => any_scalar().boxed(),
        FieldForm::Number => any_literal().boxed(),
        FieldForm::Texts | FieldForm::Numbers => {
            prop::collection::vec(any_scalar(), 0..4).prop_map(list).boxed()
        }
        FieldForm::Any => any_value().boxed(),
        FieldForm::AnyMap => any_map_of(any_value()).boxed(),
        FieldForm::TextMap => any_map_of(any_scalar()).boxed(),
        FieldForm::Parameters => {
            let values = prop::collection::vec(any_scalar(), 0..4).prop_map(list);
            any_map_of(prop_oneof![any_scalar(), values]).boxed()
        }
        FieldForm::Map(map) => any_fields(map, depth + 1),
        FieldForm::Entries(map) => {
            prop::collection::vec(any_fields(map, depth + 1), 1..3).prop_map(list).boxed()
        }
    }
}

fn any_fields(table: &'static FieldTable, depth: usize) -> BoxedStrategy<DocumentTree<'static>> {
    let fields: Vec<_> = table
        .fields
        .iter()
        .map(|field| {
            let is_name = table.is_named && field.name == "name";
            let value = any_of(FieldForm::from_type(&field.field_type), depth);
            let value = if is_name {
                value.prop_map(Some).boxed()
            } else {
                prop::option::weighted(0.3, value).boxed()
            };
            value.prop_map(move |value| value.map(|value| (field.name.to_owned(), value)))
        })
        .collect();
    fields.prop_map(|fields| map(fields.into_iter().flatten().collect())).boxed()
}

#[track_caller]
fn survives(tree: &DocumentTree<'static>, format: SpecFormat) {
    let written = writer::render_document(tree, format).unwrap_or_else(|error| panic!("{error:?}"));
    let mut sink = DiagnosticSink::default();
    let again = DocumentTree::from_events(&mut FormatReader::new(&written, format), &mut sink);
    assert!(sink.is_empty(), "{}", sink.into_diagnostics("written", &written));
    let again = again.ok().flatten().map_or_else(|| map(Vec::new()), normalize_tree);
    assert!(again.is_equivalent(tree), "{}:\n{written}\n{tree:#?}\n{again:#?}", format.name());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn documents_survive_every_format(tree in any_fields(&WORKFLOW, 0)) {
        let tree = normalize_tree(tree);
        for format in SpecFormat::ALL {
            survives(&tree, format);
        }
    }

    #[test]
    fn formatting_keeps_the_content(tree in any_fields(&WORKFLOW, 0)) {
        let tree = normalize_tree(tree);
        for format in SpecFormat::ALL {
            let written = writer::render_document(&tree, format).unwrap_or_default();
            if written.is_empty() {
                continue;
            }
            let lay_out = |text: &str| crate::reformat_spec(SpecSource { name: "w", text: text.as_bytes(), format: Some(format) });
            let once = lay_out(&written).unwrap_or_else(|problem| panic!("{problem}\n{written}"));
            assert_eq!(lay_out(&once).as_deref(), Ok(once.as_str()), "{}", format.name());
        }
    }

    #[test]
    fn values_survive_every_format(value in any_value()) {
        let tree = normalize_tree(map(vec![("metadata".to_owned(), map(vec![("x".to_owned(), value)]))]));
        for format in SpecFormat::ALL {
            survives(&tree, format);
        }
    }
}

#[test]
fn null_survives_every_format_except_toml() {
    let tree = normalize_tree(map(vec![("metadata".to_owned(), map(vec![("x".to_owned(), plain("null"))]))]));
    for format in SpecFormat::ALL.into_iter().filter(|format| *format != SpecFormat::Toml) {
        survives(&tree, format);
    }
    let refused = writer::render_document(&tree, SpecFormat::Toml).map_err(|error| error.message);
    assert_eq!(refused, Err("TOML has no `null`".to_owned()));
}

#[test]
fn yaml_only_numbers_are_converted_to_json() {
    let source = "resource_requirements: [{name: 0755, num_cpus: +5, memory: .5g}]\nresource_monitor: {sample_interval_seconds: .5}\n";
    let tree = read_tree(source, SpecFormat::Yaml).map_or_else(|| panic!("{source}"), normalize_tree);
    let written = writer::render_document(&tree, SpecFormat::Json).unwrap_or_default();
    for part in
        ["\"name\": \"0755\"", "\"num_cpus\": 5", "\"memory\": \".5g\"", "\"sample_interval_seconds\": 0.5"]
    {
        assert!(written.contains(part), "{part} in {written}");
    }
}

#[test]
fn quotes_and_backslashes_survive_every_format() {
    for text in ["\"\"a\\b", "\"\"\"\\", "\\\"#", "''\\", "\"\"\"\n\\\n'''", "\\", "\""] {
        let value = DocumentTree::scalar(text, false, SourceSpan::default());
        let tree = normalize_tree(map(vec![("metadata".to_owned(), map(vec![("x".to_owned(), value)]))]));
        for format in SpecFormat::ALL {
            survives(&tree, format);
        }
    }
}
