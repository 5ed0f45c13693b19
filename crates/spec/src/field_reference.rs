//! Renders the spec reference in Markdown from the tables of the decoder.

use crate::decode::field_tables::{FieldTable, FieldType, SpecField};
use crate::decode::tables::WORKFLOW;

const REFERENCE_HEADER: &str = "\
# Spec reference

<!-- Generated from the tables in crates/spec/src/decode/tables.rs; regenerate with `WINDLASS_UPDATE_GENERATED=1 cargo
test -p windlass-spec --test generated`. -->

All fields of a spec, in every format. A field that is not listed here is an error. Fields that are not required may be
left out; a key without a value counts as left out.
";

const VALUE_SYNTAX: &str = "
## Value syntax

**text**: the value as written, with or without quotes: `7`, `0755` and `yes` are texts where a text is expected. In most
texts `{name}` is replaced by the value of a parameter or of one of the workflow's `variables`; `{i:03d}` pads an integer
with zeros, `{x:.2f}` sets the number of decimal places, and `{x:q}` quotes the value for the shell.

**size**: a whole number of bytes, or a number with `k`, `m`, `g` or `t` (also `kb`, `KiB`, …), all of them powers of 1024:
`512`, `200m`, `1.5g`, `4GiB`. A **Slurm size** is the same, but a number without a unit is in MiB, as in Slurm.

**duration**: a number of seconds, or numbers with units (`90m`, `1h 30m`, `2.5h`, `500ms`, `2d`, `1w`), or ISO 8601
(`PT1H30M`), or `MM:SS`, `HH:MM:SS`, `D-HH:MM:SS`. A **walltime** is the same, but a number without a unit is in minutes,
as in Slurm.

**signal**: `SIGTERM`, `TERM` or `15`. A **signal for srun** may have the prefix `R:` or `B:` and the suffix `@` with
seconds: `TERM@120`.

**regular expression**: matches anywhere in the name; anchor it with `^` and `$`.

**growth**: a factor above 1 (`x1.5`), a percentage to add (`+30%`), or an amount to add (`+2g`, `+PT10M`, `+1`). The
result is rounded up.

**parameters**: a map of names and values. A value is a range including both ends (`1:10`, or `0:1:0.25` with a step), a
list (`[a, b]`), the lines of a file (`\"@seeds.txt\"`), or a single value. Several parameters give every combination of
their values, the last parameter changing fastest; with `parameter_mode: zip` the first values are combined, then the
second values, and so on.

**anything**: any value of the format, stored as JSON. Unquoted values are numbers, `true`, `false` or null if they look
like one.

Names of variables and parameters consist of letters, digits and `_` and do not begin with a digit. Environment variables
must not begin with `WINDLASS_` or `TORC_`: Windlass sets those itself.
";

/// Renders all fields with their types, defaults and descriptions.
pub fn render_reference() -> String {
    let mut text = REFERENCE_HEADER.to_owned();
    for section in collect_sections() {
        section.write_markdown(&mut text);
    }
    text.push_str(VALUE_SYNTAX);
    text
}

/// A type of map, at the first place where it occurs.
struct ReferenceSection {
    heading: String,
    table: &'static FieldTable,
}

/// Returns every type of map once, each after the one that contains it.
fn collect_sections() -> Vec<ReferenceSection> {
    let mut sections = vec![ReferenceSection { heading: "The workflow".to_owned(), table: &WORKFLOW }];
    add_inner_sections(&WORKFLOW, "", &mut sections);
    sections
}

fn add_inner_sections(map: &'static FieldTable, path: &str, sections: &mut Vec<ReferenceSection>) {
    for field in map.fields {
        let Some(inner) = field.field_type.inner_table() else { continue };
        if sections.iter().any(|known| std::ptr::eq(known.table, inner)) {
            continue;
        }
        let is_item = field.field_type.item_type().is_some();
        let path = format!("{path}{}", field.name);
        let heading = if is_item { format!("One of `{path}`: {}", inner.noun) } else { format!("`{path}`") };
        sections.push(ReferenceSection { heading, table: inner });
        let path = if is_item { String::new() } else { path + "." };
        add_inner_sections(inner, &path, sections);
    }
}

impl ReferenceSection {
    fn write_markdown(&self, out: &mut String) {
        let mut line = |text: String| {
            out.push_str(&text);
            out.push('\n');
        };
        line(format!("\n## {}\n\n{}\n", self.heading, self.table.description));
        line("| field | type | default | meaning |\n|---|---|---|---|".to_owned());
        for field in self.table.fields {
            let cells = [
                format_names(field),
                describe_type(&field.field_type),
                format_default(field),
                field.description.to_owned(),
            ];
            line(format!("| {} |", cells.join(" | ")));
        }
    }

    /// The anchor that Markdown renderers generate for the heading.
    fn anchor(&self) -> String {
        let kept = |c: &char| c.is_alphanumeric() || " _-".contains(*c);
        self.heading.to_lowercase().chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect()
    }
}

fn format_names(field: &SpecField) -> String {
    field.names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ")
}

fn format_default(field: &SpecField) -> String {
    match field.default {
        _ if field.required => "**required**".to_owned(),
        "" => String::new(),
        // Descriptions are shown as text, values as code.
        words if words.contains(' ') || words == "nothing" => words.to_owned(),
        value => format!("`{value}`"),
    }
}

fn describe_type(is: &FieldType) -> String {
    match is {
        FieldType::Text | FieldType::NonBlank | FieldType::Name => "text".to_owned(),
        FieldType::Regex => "regular expression".to_owned(),
        FieldType::Integer(least, most) if least == most => format!("the number {least}"),
        FieldType::Integer(least, most) if *most >= i64::from(i32::MAX) => format!("integer, from {least}"),
        FieldType::Integer(least, most) => format!("integer, {least} to {most}"),
        FieldType::Number(least, _) => format!("number, from {least}"),
        FieldType::Boolean => "`true` or `false`".to_owned(),
        FieldType::Choice(words) => {
            words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
        }
        FieldType::Size => "size".to_owned(),
        FieldType::SlurmSize => "Slurm size".to_owned(),
        FieldType::Duration => "duration".to_owned(),
        FieldType::Walltime => "walltime".to_owned(),
        FieldType::Signal => "signal".to_owned(),
        FieldType::SrunSignal => "signal for srun".to_owned(),
        FieldType::Growth(grows) => format!("growth, for example `{}`", grows.example()),
        FieldType::StderrPattern => "text or `re:` regular expression".to_owned(),
        FieldType::RetryBudget => "integer or percentage, for example `20%`".to_owned(),
        FieldType::List(item) => format!("list of {}", describe_plural(item)),
        FieldType::Map(map) => section_link(map, map.noun),
        FieldType::Env | FieldType::Constants => "map of text".to_owned(),
        FieldType::Parameters => "parameters".to_owned(),
        FieldType::Limits(least, _) => format!("map of integers, from {least}"),
        FieldType::SlurmOptions => "map of plain values".to_owned(),
        FieldType::Json => "anything".to_owned(),
        FieldType::JsonMap => "map of anything".to_owned(),
    }
}

fn describe_plural(item: &FieldType) -> String {
    match item {
        FieldType::Map(map) => section_link(map, &pluralize(map.noun)),
        FieldType::Integer(least, most) => format!("integers, {least} to {most}"),
        FieldType::StderrPattern => "texts or `re:` regular expressions".to_owned(),
        FieldType::Choice(_) => describe_type(item),
        other => pluralize(&describe_type(other)),
    }
}

fn pluralize(what: &str) -> String {
    match what.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{what}s"),
    }
}

/// A link to the section of a map.
fn section_link(map: &'static FieldTable, words: &str) -> String {
    match collect_sections().iter().find(|section| std::ptr::eq(section.table, map)) {
        Some(section) => format!("[{words}](#{})", section.anchor()),
        None => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_leads_to_a_section() {
        let text = render_reference();
        let anchors: Vec<_> = collect_sections().iter().map(ReferenceSection::anchor).collect();
        let mut links = 0;
        for rest in text.split("](#").skip(1) {
            let link = rest.split(')').next().unwrap_or_default();
            assert!(anchors.iter().any(|anchor| anchor == link), "{link}");
            links += 1;
        }
        assert!(links >= anchors.len() - 1, "each section except the first is linked");
    }
}
