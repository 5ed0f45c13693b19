//! User-defined classification rules for failures, read from the file that the settings name.

use crate::context::CliContext;
use crate::error::CliError;
use serde::Deserialize;
use std::path::Path;
use std::sync::Arc;
use windlass_core::classify::{ClassificationRule, FailureClassifier};

/// Repeated `[[rule]]` tables.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesFile {
    #[serde(default)]
    rule: Vec<ClassificationRule>,
}

/// For commands that run workflows; `None` if the settings name no file.
pub(crate) fn configured_classifier(ctx: &CliContext) -> Result<Option<Arc<FailureClassifier>>, CliError> {
    let Some(file) = ctx.config.get("classify.rules_file") else { return Ok(None) };
    build_classifier(Some(&ctx.cwd.join(&file.text))).map(|read| Some(Arc::new(read)))
}

/// The built-in rules, preceded by those of the file if there is one.
pub(crate) fn build_classifier(file: Option<&Path>) -> Result<FailureClassifier, CliError> {
    let own = file.map(read_rules).transpose()?.unwrap_or_default();
    FailureClassifier::new(own).map_err(|error| match file {
        Some(path) => rules_error(path, &error.to_string()),
        None => CliError::internal(error.to_string()),
    })
}

fn read_rules(path: &Path) -> Result<Vec<ClassificationRule>, CliError> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        CliError::user(format!("cannot read the classification rules in {}: {e}", path.display()))
    })?;
    let file: RulesFile =
        toml::from_str(&text).map_err(|error| rules_error(path, error.to_string().trim_end()))?;
    Ok(file.rule)
}

fn rules_error(path: &Path, what: &str) -> CliError {
    CliError::user(format!("{}: {what}", path.display())).with_hint(
        "`windlass failures classify --rules --format json` prints the built-in rules as an example",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::classify::FailureEvidence;
    use windlass_types::FailureClass;

    fn load(text: &str) -> Result<FailureClassifier, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rules.toml");
        std::fs::write(&path, text).unwrap();
        build_classifier(Some(&path)).map_err(|error| error.to_string())
    }

    #[test]
    fn classification_rules_load_from_toml() {
        let rules = load(
            "[[rule]]\nname = \"seats\"\nclass = \"transient\"\nstderr = [\"no seat left\"]\nexamples = [\"No seat left\"]\n\
             [[rule]]\nname = \"odd\"\nclass = \"data\"\nexit_codes = [3]\nsignals = [\"KILL\", 11]\non = [\"timeout\"]\n",
        )
        .unwrap();
        assert_eq!(
            rules.classify(&FailureEvidence::from_exit(1, "no seat left")).class,
            FailureClass::Transient
        );
        assert!(load("").is_ok());
    }

    #[test]
    fn error_names_line_and_value() {
        for (text, parts) in [
            (
                "[[rule]]\nname = \"x\"\nclass = \"dtaa\"\nexit_codes = [3]\n",
                ["rules.toml", "line 3", "`dtaa`"],
            ),
            (
                "[[rule]]\nname = \"x\"\nclass = \"data\"\npattern = \"a\"\n",
                ["rules.toml", "line 4", "`pattern`"],
            ),
            ("[[rule]]\nname = \"x\"\nclass = \"data\"\n", ["rules.toml", "`x`", "has no condition"]),
            ("[[rules]]\n", ["rules.toml", "line 1", "`rules`"]),
        ] {
            let message = load(text).unwrap_err();
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
        let missing = build_classifier(Some(Path::new("/nowhere/rules.toml"))).unwrap_err().to_string();
        assert!(missing.contains("cannot read the classification rules in /nowhere/rules.toml"), "{missing}");
    }
}
