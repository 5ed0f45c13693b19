//! Finds the spec file if none is named.

use crate::error::CliError;
use std::path::{Path, PathBuf};

/// `windlass.toml` is not among them: that is the settings file.
const SPEC_NAMES: [&str; 5] =
    ["windlass.yaml", "windlass.yml", "windlass.json", "windlass.json5", "windlass.kdl"];
const SPEC_SUFFIXES: [&str; 6] = [
    ".windlass.yaml",
    ".windlass.yml",
    ".windlass.json",
    ".windlass.json5",
    ".windlass.kdl",
    ".windlass.toml",
];

/// The named file, or the one in this directory.
pub(crate) fn resolve_spec_path(named: Option<&PathBuf>, cwd: &Path) -> Result<PathBuf, CliError> {
    named.map_or_else(|| find_spec(cwd), |path| Ok(path.clone()))
}

/// The spec of this directory, with the path as a user would type it.
fn find_spec(cwd: &Path) -> Result<PathBuf, CliError> {
    let entries = std::fs::read_dir(cwd)
        .map_err(|e| CliError::io(format!("cannot search for a spec in {}: {e}", cwd.display())))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    choose_spec(names.collect()).map(PathBuf::from)
}

/// `windlass.*` takes precedence; otherwise there must be exactly one file.
fn choose_spec(mut names: Vec<String>) -> Result<String, CliError> {
    names.sort();
    let pick = |is_one: &dyn Fn(&str) -> bool| -> Vec<&String> {
        names.iter().filter(|name| is_one(name)).collect()
    };
    let plain = pick(&|name| SPEC_NAMES.contains(&name));
    let found = if plain.is_empty() {
        pick(&|name| SPEC_SUFFIXES.iter().any(|end| name.ends_with(end)))
    } else {
        plain
    };
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(CliError::user("no spec given, and there is no windlass.yaml or *.windlass.yaml here")
            .with_hint("give the file; `windlass exec -- CMD` runs a command without a spec")),
        several => {
            let list = several.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
            Err(CliError::user(format!("there are several spec files here: {list}"))
                .with_hint("give one of them"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str]) -> Result<String, String> {
        choose_spec(names.iter().map(|name| (*name).to_owned()).collect()).map_err(|error| error.message)
    }

    #[test]
    fn default_spec_name_is_preferred() {
        assert_eq!(chosen(&["a.windlass.yaml", "windlass.yaml", "x.yaml"]).unwrap(), "windlass.yaml");
        assert_eq!(chosen(&["windlass.json5"]).unwrap(), "windlass.json5");
    }

    #[test]
    fn single_spec_with_suffix_is_chosen() {
        assert_eq!(chosen(&["sim.windlass.toml", "windlass.toml", "x.yaml"]).unwrap(), "sim.windlass.toml");
        assert!(chosen(&["x.yaml", "windlass.toml"]).unwrap_err().contains("no spec given"));
        assert_eq!(
            chosen(&["b.windlass.yml", "a.windlass.yaml"]).unwrap_err(),
            "there are several spec files here: a.windlass.yaml, b.windlass.yml"
        );
        assert!(chosen(&["windlass.yaml", "windlass.json"]).unwrap_err().contains("several"));
    }
}
