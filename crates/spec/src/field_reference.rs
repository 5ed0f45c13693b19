//! The reference of a spec in markdown, made from the tables that the decoder reads.

use crate::decode::field_tables::{FieldTable, FieldType, SpecField};
use crate::decode::tables::WORKFLOW;

const REFERENCE_HEADER: &str = "\
# Spec reference

<!-- Generated from the tables in crates/spec/src/decode/tables.rs; `WINDLASS_UPDATE_GENERATED=1 cargo test -p
windlass-spec --test generated` writes it anew. -->

Every field that may stand in a spec, in whichever format it is written. A field that is not listed here is an error. A
field that is not required may be left out, and a key with nothing behind it counts as left out.
";

const VALUE_SYNTAX: &str = "
## How values are written

**text**: what is written, with or without quotes: `7`, `0755` and `yes` are texts where a text is wanted. In most texts
`{name}` stands for the value of a parameter or of one of the workflow's `variables`; `{i:03d}` fills a whole number with
zeros, `{x:.2f}` prints so many digits after the point, and `{x:q}` quotes the value for the shell.

**size**: a whole number of bytes, or a number with `k`, `m`, `g` or `t` (also `kb`, `KiB`, …), all of them powers of 1024:
`512`, `200m`, `1.5g`, `4GiB`. A **Slurm size** is the same, but a number alone counts MiB, as Slurm has it.

**duration**: a number of seconds, or numbers with units (`90m`, `1h 30m`, `2.5h`, `500ms`, `2d`, `1w`), or ISO 8601
(`PT1H30M`), or `MM:SS`, `HH:MM:SS`, `D-HH:MM:SS`. A **walltime** is the same, but a number alone counts minutes, as Slurm
has it.

**signal**: `SIGTERM`, `TERM` or `15`. A **signal for srun** may have `R:` or `B:` before it and `@` and seconds behind it:
`TERM@120`.

**regular expression**: found anywhere in the name, unless `^` and `$` tie it to the ends.

**growth**: a factor above 1 (`x1.5`), a share on top (`+30%`), or an amount on top (`+2g`, `+PT10M`, `+1`). The result
is rounded up.

**parameters**: a map of names and values. A value is a range with both ends (`1:10`, `0:1:0.25`, the step last), a list
(`[a, b]`), the lines of a file (`\"@seeds.txt\"`), or one value. With several parameters each value of the first is
combined with each value of the second and so on, the last one changing fastest; with `parameter_mode: zip` the first
values belong together, the second ones, and so on.

**anything**: any value of the format; it is kept as JSON. What is not in quotes is a number, `true`, `false` or nothing if
it looks like it.

The names of variables and parameters are made of letters, digits and `_` and begin with no digit. Variables of the
environment cannot begin with `WINDLASS_` or `TORC_`, which jobs are given by Windlass itself.
";

/// All fields with their types, defaults and meanings.
pub fn render_reference() -> String {
    let mut text = REFERENCE_HEADER.to_owned();
    for section in collect_sections() {
        section.write_markdown(&mut text);
    }
    text.push_str(VALUE_SYNTAX);
    text
}

/// A kind of map, under the place where it is first met.
struct ReferenceSection {
    heading: String,
    table: &'static FieldTable,
}

/// Every kind of map once, each behind the one that it stands in.
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

    /// What readers of markdown make of the heading.
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
        // Words are words, values are values.
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
        FieldType::RetryBudget => "integer or share, for example `20%`".to_owned(),
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

/// To the section of a map.
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
        assert!(links >= anchors.len() - 1, "each section but the first is linked to");
    }
}
