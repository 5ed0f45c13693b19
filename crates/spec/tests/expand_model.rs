//! Compares expansion with a small model that writes everything out (count, order, names, commands and edges),
//! and the same workflow in every format.

use proptest::prelude::*;
use windlass_spec::{NoAttachments, ResolvedWorkflow, SpecFormat, SpecSource, convert_spec, load_spec};

/// A parameter as written, and its values.
#[derive(Clone, Debug)]
struct Written {
    text: String,
    values: Vec<String>,
}

/// An entry with one or more parameters `p0`, `p1`, …, combined as a product or by zip.
#[derive(Clone, Debug)]
struct Entry {
    parameters: Vec<Written>,
    zip: bool,
    /// Depends on the jobs of an earlier entry: on all, or on those with the same first value.
    after: Option<(prop::sample::Index, bool)>,
}

fn integers() -> impl Strategy<Value = Written> {
    (-20i64..20, 1i64..4, 1i64..4, any::<bool>()).prop_map(|(first, step, count, down)| {
        let step = if down { -step } else { step };
        let values: Vec<i64> = (0..count).map(|index| first + index * step).collect();
        let last = values[values.len() - 1];
        let text = if step == 1 { format!("'{first}:{last}'") } else { format!("'{first}:{last}:{step}'") };
        Written { text, values: values.iter().map(ToString::to_string).collect() }
    })
}

fn tenths() -> impl Strategy<Value = Written> {
    (-20i64..20, 1i64..4).prop_map(|(first, count)| {
        let decimal = |units: i64| {
            format!("{}{}.{}", if units < 0 { "-" } else { "" }, units.abs() / 10, units.abs() % 10)
        };
        let values: Vec<i64> = (0..count).map(|index| first + index).collect();
        let shown = |units: &i64| decimal(*units).parse::<f64>().unwrap_or(f64::NAN).to_string();
        let text = format!("'{}:{}:0.1'", decimal(first), decimal(first + count - 1));
        Written { text, values: values.iter().map(shown).collect() }
    })
}

fn words() -> impl Strategy<Value = Written> {
    prop::collection::btree_set("[a-z][a-z ]{0,3}[a-z]", 1..4).prop_map(|words| {
        let values: Vec<String> = words.into_iter().collect();
        let quoted: Vec<String> = values.iter().map(|word| format!("'{word}'")).collect();
        Written { text: format!("[{}]", quoted.join(", ")), values }
    })
}

fn entry() -> impl Strategy<Value = Entry> {
    let parameter = prop_oneof![integers(), tenths(), words()];
    let after = prop::option::of((any::<prop::sample::Index>(), any::<bool>()));
    (prop::collection::vec(parameter, 0..4), any::<bool>(), after).prop_map(|(mut parameters, zip, after)| {
        if zip && !parameters.is_empty() {
            let shortest = parameters.iter().map(|parameter| parameter.values.len()).min().unwrap_or(0);
            // Written out, so that all have the same length.
            for parameter in &mut parameters {
                parameter.values.truncate(shortest);
                let quoted: Vec<String> = parameter.values.iter().map(|value| format!("'{value}'")).collect();
                parameter.text = format!("[{}]", quoted.join(", "));
            }
        }
        Entry { parameters, zip, after }
    })
}

impl Entry {
    /// The values of each job, computed in the simplest way.
    fn combinations(&self) -> Vec<Vec<&str>> {
        if self.zip && !self.parameters.is_empty() {
            let row = |index: usize| {
                self.parameters.iter().map(|parameter| parameter.values[index].as_str()).collect()
            };
            return (0..self.parameters[0].values.len()).map(row).collect();
        }
        let mut all: Vec<Vec<&str>> = vec![Vec::new()];
        for parameter in &self.parameters {
            let mut longer = Vec::new();
            for row in &all {
                longer.extend(
                    parameter.values.iter().map(|value| [row.as_slice(), &[value.as_str()]].concat()),
                );
            }
            all = longer;
        }
        all
    }

    fn name(number: usize, values: &[&str]) -> String {
        std::iter::once(format!("e{number}"))
            .chain(values.iter().map(ToString::to_string))
            .collect::<Vec<_>>()
            .join("_")
    }

    fn command(values: &[&str]) -> String {
        let quoted: Vec<String> = values.iter().map(|value| format!("'{value}'")).collect();
        format!("run {} {{}} ${{HOME}} | awk '{{print $1}}'", quoted.join(" "))
    }

    fn spec(&self, number: usize, others: &[Entry]) -> String {
        let names: Vec<String> =
            (0..self.parameters.len()).map(|parameter| format!("p{parameter}")).collect();
        let in_name: Vec<String> = names.iter().map(|name| format!("_{{{name}}}")).collect();
        let in_command: Vec<String> = names.iter().map(|name| format!("{{{name}:q}}")).collect();
        let mut text = format!("- name: 'e{number}{}'\n", in_name.concat());
        let in_command = in_command.join(" ");
        text.extend([format!("  command: \"run {in_command} {{}} ${{HOME}} | awk '{{print $1}}'\"\n")]);
        if !names.is_empty() {
            text.push_str("  parameters:\n");
            for (name, parameter) in names.iter().zip(&self.parameters) {
                text.extend([format!("    {name}: {}\n", parameter.text)]);
            }
            if self.zip {
                text.push_str("  parameter_mode: zip\n");
            }
        }
        if let Some((earlier, by_value)) = self.earlier(number) {
            let other = &others[earlier];
            let value = if by_value && self.shares_first_value(other) { "_{p0}" } else { "" };
            text.extend([format!("  depends_on_regexes: ['^e{earlier}{value}(_|$)']\n")]);
        }
        text
    }

    fn earlier(&self, number: usize) -> Option<(usize, bool)> {
        let (index, by_value) = self.after.as_ref().filter(|_| number > 0)?;
        Some((index.index(number), *by_value))
    }

    /// Whether every first value of this entry is one of the other, and has no special meaning in a regular
    /// expression.
    fn shares_first_value(&self, other: &Entry) -> bool {
        let (Some(mine), Some(theirs)) = (self.parameters.first(), other.parameters.first()) else {
            return false;
        };
        mine.values.iter().all(|value| theirs.values.contains(value) && !value.contains('.'))
    }
}

fn spec(entries: &[Entry]) -> String {
    let entries: Vec<String> =
        entries.iter().enumerate().map(|(number, entry)| entry.spec(number, entries)).collect();
    format!("name: w\njobs:\n{}", entries.concat())
}

/// `(name, command, dependencies)` of every job, written out.
fn model(entries: &[Entry]) -> Vec<(String, String, Vec<String>)> {
    let jobs_of = |number: usize| entries[number].combinations();
    let mut jobs = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        for values in jobs_of(number) {
            let mut waits = Vec::new();
            if let Some((earlier, by_value)) = entry.earlier(number) {
                let other = &entries[earlier];
                let by_value = by_value && entry.shares_first_value(other);
                let is_meant = |theirs: &Vec<&str>| !by_value || theirs[0] == values[0];
                let meant = jobs_of(earlier).into_iter().filter(is_meant);
                waits = meant.map(|theirs| Entry::name(earlier, &theirs)).collect();
            }
            jobs.push((Entry::name(number, &values), Entry::command(&values), waits));
        }
    }
    jobs
}

fn found(workflow: &ResolvedWorkflow<'_>) -> Vec<(String, String, Vec<String>)> {
    let name = |number: &u32| workflow.job(*number as usize).name.to_owned();
    workflow
        .jobs()
        .map(|job| {
            (job.name.to_owned(), job.command(1).into_owned(), job.depends_on().flatten().map(name).collect())
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn expansion_matches_the_model(entries in prop::collection::vec(entry(), 1..4)) {
        let text = spec(&entries);
        let workflow = match load_spec(SpecSource::new("w.yaml", text.as_bytes()), &NoAttachments) {
            Ok(workflow) => workflow,
            Err(diagnostics) => return Err(TestCaseError::fail(format!("{text}\n{diagnostics}"))),
        };
        let expected = model(&entries);
        prop_assert_eq!(workflow.job_count(), expected.len());
        prop_assert_eq!(workflow.entry_count(), entries.len());
        prop_assert_eq!(found(&workflow), expected, "{}", text);
    }

    #[test]
    fn every_format_makes_the_same_jobs(entries in prop::collection::vec(entry(), 1..3)) {
        let text = spec(&entries);
        let expected = model(&entries);
        for format in [SpecFormat::Json, SpecFormat::Json5, SpecFormat::Toml, SpecFormat::Kdl] {
            let other = match convert_spec(SpecSource::new("w.yaml", text.as_bytes()), format) {
                Ok(other) => other,
                Err(diagnostics) => return Err(TestCaseError::fail(format!("{text}\n{diagnostics}"))),
            };
            let source = SpecSource { name: "w", text: other.as_bytes(), format: Some(format) };
            match load_spec(source, &NoAttachments) {
                Ok(workflow) => prop_assert_eq!(found(&workflow), expected.clone(), "{}", other),
                Err(diagnostics) => return Err(TestCaseError::fail(format!("{other}\n{diagnostics}"))),
            }
        }
    }
}
