//! Parses a settings file: values with their line numbers, and all errors.

use super::setting_keys::{KEYS, SettingKey};
use super::{SettingOrigin, SettingProblem, SettingValue};
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Returns the settings in the text of the file `path`, and its errors.
pub(super) fn parse_config(
    path: &Path,
    text: &str,
) -> (Vec<(&'static SettingKey, SettingValue)>, Vec<SettingProblem>) {
    let mut reader = ConfigFileParser { path, text, values: Vec::new(), problems: Vec::new() };
    match DeTable::parse(text) {
        Ok(table) => reader.read_table(None, table.get_ref()),
        Err(error) => {
            let line = error.span().map(|span| line_of(text, span.start));
            reader.add_problem(line, error.message().to_owned(), None);
        }
    }
    (reader.values, reader.problems)
}

struct ConfigFileParser<'a> {
    path: &'a Path,
    text: &'a str,
    values: Vec<(&'static SettingKey, SettingValue)>,
    problems: Vec<SettingProblem>,
}

impl ConfigFileParser<'_> {
    fn read_table(&mut self, section: Option<&str>, table: &DeTable<'_>) {
        for (name, value) in table {
            let line = line_of(self.text, name.span().start);
            let full =
                section.map_or(name.get_ref().to_string(), |section| format!("{section}.{}", name.get_ref()));
            match (value.get_ref(), KEYS.iter().find(|key| key.is_named(&full))) {
                (_, Some(key)) => self.read_value(key, line, value),
                (DeValue::Table(inner), None) if section.is_none() && is_section(&full) => {
                    self.read_table(Some(&full), inner);
                }
                (_, None) => self.report_unknown(line, section, &full),
            }
        }
    }

    fn read_value(&mut self, key: &'static SettingKey, line: usize, value: &Spanned<DeValue<'_>>) {
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.as_str().replace('_', ""),
            DeValue::Float(number) => number.as_str().replace('_', ""),
            DeValue::Boolean(flag) => flag.to_string(),
            DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
                let shown_message = format!("`{}` takes one value", key.name);
                return self.add_problem(
                    Some(line),
                    shown_message,
                    Some(format!("for example {}", key.example)),
                );
            }
        };
        match key.check(&text) {
            Ok(()) => {
                let origin = SettingOrigin::File { path: self.path.to_owned(), line };
                self.values.push((key, SettingValue { text, origin }));
            }
            Err(why) => {
                self.add_problem(Some(line), format!("`{}` cannot be `{text}`: {why}", key.name), None);
            }
        }
    }

    fn report_unknown(&mut self, line: usize, section: Option<&str>, full: &str) {
        let sections = KEYS.iter().filter_map(|key| key.section_and_name().0);
        let hint = match windlass_spec::nearest_name(full, KEYS.iter().map(|key| key.name).chain(sections)) {
            Some(near) => format!("did you mean `{near}`?"),
            // A spec in TOML may have such a key.
            None if section.is_none() && matches!(full, "name" | "jobs") => {
                "this file is for settings; name a spec NAME.windlass.toml".to_owned()
            }
            None => "`windlass config show` lists the settings".to_owned(),
        };
        self.add_problem(Some(line), format!("there is no setting `{full}`"), Some(hint));
    }

    fn add_problem(&mut self, line: Option<usize>, shown_message: String, hint: Option<String>) {
        let place = match line {
            Some(line) => format!("{}:{line}", self.path.display()),
            None => self.path.display().to_string(),
        };
        self.problems.push(SettingProblem { location: place, message: shown_message, hint });
    }
}

fn is_section(name: &str) -> bool {
    KEYS.iter().any(|key| key.section_and_name().0 == Some(name))
}

/// From 1.
fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let (_, problems) = parse_config(Path::new("windlass.toml"), text);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn config_values_keep_file_and_line() {
        let text = "format = \"json\"\n\n[run]\nmax_parallel_jobs = 1_0\nmemory = 0.5\n";
        let (values, problems) = parse_config(Path::new("c.toml"), text);
        assert!(problems.is_empty(), "{problems:?}");
        let values: Vec<(&str, &str, String)> =
            values.iter().map(|(key, value)| (key.name, &*value.text, value.origin.to_string())).collect();
        assert_eq!(
            values,
            [
                ("format", "json", "c.toml:1".to_owned()),
                ("run.max_parallel_jobs", "10", "c.toml:4".to_owned()),
                ("run.memory", "0.5", "c.toml:5".to_owned()),
            ]
        );
    }

    #[test]
    fn config_error_names_file_and_line() {
        let found = problems("formt = \"json\"\n[run]\ngrace = \"soon\"\nnum_cpu = 3\n[rum]\n");
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(
            found.iter().any(|p| p.starts_with("windlass.toml:1: there is no setting `formt`")),
            "{found:?}"
        );
        assert!(
            found.iter().any(|p| p.starts_with("windlass.toml:3: `run.grace` cannot be `soon`")),
            "{found:?}"
        );
        assert!(
            found.iter().any(|p| p.contains("windlass.toml:4") && p.contains("`run.num_cpus`")),
            "{found:?}"
        );
        assert!(found.iter().any(|p| p.contains("did you mean `run`?")), "{found:?}");
    }

    #[test]
    fn invalid_toml_and_spec_files_are_reported() {
        assert!(problems("a = = b")[0].starts_with("windlass.toml:1: "));
        assert!(problems("name = \"sim\"\n")[0].contains("NAME.windlass.toml"));
        assert!(problems("db = [1]\n")[0].contains("takes one value"));
    }

    #[test]
    fn config_template_is_valid_with_every_setting_enabled() {
        let template = super::super::setting_keys::render_template();
        assert_eq!(problems(&template), [""; 0]);
        let on: String = template
            .lines()
            .map(|line| {
                line.strip_prefix("# ").filter(|rest| rest.contains(" = ")).unwrap_or(line).to_owned() + "\n"
            })
            .collect();
        let (values, problems) = parse_config(Path::new("c.toml"), &on);
        assert!(problems.is_empty(), "{problems:?}\n{on}");
        assert_eq!(values.len(), KEYS.len(), "{on}");
    }
}
