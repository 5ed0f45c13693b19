//! Rules of the user for the classes of failures, from the file that the settings name.

use crate::context::Context;
use crate::error::CliError;
use serde::Deserialize;
use std::path::Path;
use std::sync::Arc;
use windlass_core::classify::{Classifier, Rule};

/// `[[rule]]`, again and again.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesFile {
    #[serde(default)]
    rule: Vec<Rule>,
}

/// For whoever runs workflows; `None` where the settings name no file.
pub(crate) fn of_settings(ctx: &Context) -> Result<Option<Arc<Classifier>>, CliError> {
    let Some(file) = ctx.config.get("classify.rules_file") else { return Ok(None) };
    classifier(Some(&ctx.cwd.join(&file.text))).map(|read| Some(Arc::new(read)))
}

/// The rules that are built in, after those in the file if there is one.
pub(crate) fn classifier(file: Option<&Path>) -> Result<Classifier, CliError> {
    let own = file.map(read).transpose()?.unwrap_or_default();
    Classifier::new(own).map_err(|error| match file {
        Some(path) => wrong(path, &error.to_string()),
        None => CliError::internal(error.to_string()),
    })
}

fn read(path: &Path) -> Result<Vec<Rule>, CliError> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| CliError::user(format!("cannot read the rules in {}: {e}", path.display())))?;
    let file: RulesFile = toml::from_str(&text).map_err(|error| wrong(path, error.to_string().trim_end()))?;
    Ok(file.rule)
}

fn wrong(path: &Path, what: &str) -> CliError {
    CliError::user(format!("{}: {what}", path.display())).with_hint(
        "`windlass classify --rules --format json` shows how the rules that are built in are written",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::classify::Evidence;
    use windlass_types::FailureClass;

    fn load(text: &str) -> Result<Classifier, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rules.toml");
        std::fs::write(&path, text).unwrap();
        classifier(Some(&path)).map_err(|error| error.to_string())
    }

    #[test]
    fn rules_are_read_from_toml() {
        let rules = load(
            "[[rule]]\nname = \"seats\"\nclass = \"transient\"\nstderr = [\"no seat left\"]\nexamples = [\"No seat left\"]\n\
             [[rule]]\nname = \"odd\"\nclass = \"data\"\nexit_codes = [3]\nsignals = [\"KILL\", 11]\non = [\"timeout\"]\n",
        )
        .unwrap();
        assert_eq!(rules.classify(&Evidence::of_exit(1, "no seat left")).class, FailureClass::Transient);
        assert!(load("").is_ok());
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        for (text, parts) in [
            (
                "[[rule]]\nname = \"x\"\nclass = \"dtaa\"\nexit_codes = [3]\n",
                ["rules.toml", "line 3", "`dtaa`"],
            ),
            (
                "[[rule]]\nname = \"x\"\nclass = \"data\"\npattern = \"a\"\n",
                ["rules.toml", "line 4", "`pattern`"],
            ),
            ("[[rule]]\nname = \"x\"\nclass = \"data\"\n", ["rules.toml", "`x`", "names no condition"]),
            ("[[rules]]\n", ["rules.toml", "line 1", "`rules`"]),
        ] {
            let said = load(text).unwrap_err();
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        }
        let missing = classifier(Some(Path::new("/nowhere/rules.toml"))).unwrap_err().to_string();
        assert!(missing.contains("cannot read the rules in /nowhere/rules.toml"), "{missing}");
    }
}
