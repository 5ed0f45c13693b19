//! Settings from files and the environment. They become the defaults of the command line, so that help shows
//! them and an option always takes precedence. Layers, later ones win: machine, user, directory, environment.

mod file_parser;
mod setting_keys;

pub(crate) use setting_keys::{KEYS, SettingKey, render_template};

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Prefix of environment variables that must be settings.
const SECTION_PREFIXES: [&str; 3] = ["WINDLASS_RUN__", "WINDLASS_CLASSIFY__", "WINDLASS_SERVE__"];

/// The settings, and their problems.
#[derive(Debug, Default)]
pub(crate) struct CliConfig {
    /// One slot per entry of [`KEYS`].
    values: Vec<Option<SettingValue>>,
    pub(crate) problems: Vec<SettingProblem>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SettingValue {
    pub(crate) text: String,
    pub(crate) origin: SettingOrigin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SettingOrigin {
    File { path: PathBuf, line: usize },
    Environment(String),
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(variable) => write!(f, "${variable}"),
        }
    }
}

/// An invalid setting.
#[derive(Clone, Debug)]
pub(crate) struct SettingProblem {
    pub(crate) location: String,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl fmt::Display for SettingProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
    }
}

/// The files that are searched for settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigPaths {
    pub(crate) system: PathBuf,
    /// `None`: the home directory is unknown.
    pub(crate) user: Option<PathBuf>,
    pub(crate) local: PathBuf,
}

impl ConfigPaths {
    pub(crate) fn new(cwd: &Path, variable: impl Fn(&str) -> Option<String>) -> Self {
        let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let folder =
            absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
        Self {
            system: PathBuf::from("/etc/windlass/config.toml"),
            user: folder.map(|folder| folder.join("windlass/config.toml")),
            local: cwd.join("windlass.toml"),
        }
    }

    /// In order of increasing precedence, with labels.
    pub(crate) fn layers(&self) -> Vec<(&'static str, &Path)> {
        let mut layers = vec![("system", self.system.as_path())];
        layers.extend(self.user.as_deref().map(|path| ("user", path)));
        layers.push(("local", &self.local));
        layers
    }
}

impl CliConfig {
    /// Reads all layers. Unreadable or invalid values are reported as problems.
    pub(crate) fn load(paths: &ConfigPaths, environment: impl Iterator<Item = (String, String)>) -> Self {
        let mut config = Self { values: KEYS.iter().map(|_| None).collect(), problems: Vec::new() };
        for (_, path) in paths.layers() {
            match read_trusted(path) {
                Ok(Some(text)) => config.add_file(path, &text),
                Ok(None) => {}
                Err(shown_message) => {
                    config.problems.push(SettingProblem {
                        location: path.display().to_string(),
                        message: shown_message,
                        hint: None,
                    });
                }
            }
        }
        config.add_environment(environment);
        config
    }

    fn add_file(&mut self, path: &Path, text: &str) {
        let (values, problems) = file_parser::parse_config(path, text);
        for (key, value) in values {
            self.set_value(key, value);
        }
        self.problems.extend(problems);
    }

    fn add_environment(&mut self, environment: impl Iterator<Item = (String, String)>) {
        for (name, text) in environment.filter(|(name, _)| name.starts_with("WINDLASS_")) {
            match KEYS.iter().find(|key| key.is_set_by(&name)) {
                // An empty variable counts as unset, which allows disabling it for one command.
                Some(_) if text.is_empty() => {}
                Some(key) => match key.check(&text) {
                    Ok(()) => {
                        self.set_value(key, SettingValue { text, origin: SettingOrigin::Environment(name) });
                    }
                    Err(why) => {
                        let shown_message = format!("cannot be `{text}`: {why}");
                        self.problems.push(SettingProblem {
                            location: format!("${name}"),
                            message: shown_message,
                            hint: None,
                        });
                    }
                },
                None if SECTION_PREFIXES.iter().any(|section| name.starts_with(section)) => {
                    let variables: Vec<String> = KEYS.iter().map(SettingKey::environment_variable).collect();
                    let near = windlass_spec::nearest_name(&name, variables.iter().map(String::as_str));
                    let hint = near.map(|near| format!("did you mean ${near}?"));
                    let shown_message = "there is no such setting".to_owned();
                    self.problems.push(SettingProblem {
                        location: format!("${name}"),
                        message: shown_message,
                        hint,
                    });
                }
                None => {}
            }
        }
    }

    fn set_value(&mut self, key: &SettingKey, value: SettingValue) {
        let slot = KEYS.iter().position(|other| other.name == key.name);
        if let Some(slot) = slot {
            self.values[slot] = Some(value);
        }
    }

    /// Every setting with its value and origin.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'static SettingKey, Option<&SettingValue>)> {
        KEYS.iter().enumerate().map(|(slot, key)| (key, self.values.get(slot).and_then(Option::as_ref)))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&SettingValue> {
        self.entries().find(|(key, _)| key.name == name).and_then(|(_, value)| value)
    }

    /// The clap command with these settings as defaults.
    pub(crate) fn apply_defaults(&self, command: clap::Command) -> clap::Command {
        let shown_message: Vec<(&str, &str)> =
            self.entries().filter_map(|(key, value)| Some((key.arg, value?.text.as_str()))).collect();
        if shown_message.is_empty() { command } else { with_defaults(command, &shown_message) }
    }
}

fn with_defaults(mut command: clap::Command, shown_message: &[(&str, &str)]) -> clap::Command {
    for (arg, text) in shown_message {
        if command.get_arguments().any(|known| known.get_id() == arg) {
            command = command.mut_arg(arg, |known| known.default_value((*text).to_owned()));
        }
    }
    command.mut_subcommands(|inner| with_defaults(inner, shown_message))
}

/// `None`: the file does not exist. A file of another user must not decide which database is used, and
/// therefore what runs.
fn read_trusted(path: &Path) -> Result<Option<String>, String> {
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => return Err(format!("cannot be read: {e}")),
    };
    if ![0, rustix::process::geteuid().as_raw()].contains(&meta.uid()) {
        return Err("belongs to another user and is ignored".to_owned());
    }
    std::fs::read_to_string(path).map(Some).map_err(|e| format!("cannot be read: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;

    fn load(files: &[(&str, &str)], environment: &[(&str, &str)]) -> CliConfig {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let paths = ConfigPaths {
            system: dir.path().join("system"),
            user: Some(dir.path().join("user")),
            local: dir.path().join("local"),
        };
        CliConfig::load(&paths, environment.iter().map(|(n, t)| ((*n).to_owned(), (*t).to_owned())))
    }

    fn value(config: &CliConfig, name: &str) -> Option<String> {
        config.get(name).map(|value| value.text.clone())
    }

    #[test]
    fn later_config_layer_overrides_earlier() {
        let files = [
            ("system", "[run]\ngrace = \"1s\"\nnum_cpus = 1\nmax_parallel_jobs = 1\n"),
            ("user", "[run]\ngrace = \"2s\"\nnum_cpus = 2\n"),
            ("local", "[run]\ngrace = \"3s\"\n"),
        ];
        let config = load(&files, &[("WINDLASS_RUN__OUTPUT_DIR", "logs"), ("WINDLASS_DB", "")]);
        assert!(config.problems.is_empty(), "{:?}", config.problems);
        let grace = config.get("run.grace").unwrap();
        assert_eq!(grace.text, "3s");
        assert!(grace.origin.to_string().ends_with("local:2"), "{}", grace.origin);
        assert_eq!(value(&config, "run.num_cpus").as_deref(), Some("2"));
        assert_eq!(value(&config, "run.max_parallel_jobs").as_deref(), Some("1"));
        assert_eq!(config.get("run.output_dir").unwrap().origin.to_string(), "$WINDLASS_RUN__OUTPUT_DIR");
        assert_eq!(value(&config, "db"), None);
    }

    #[test]
    fn old_setting_names_are_read() {
        let config = load(
            &[("local", "[serve]\non_failing_alike = \"hold\"\n")],
            &[("WINDLASS_SERVE__ALIKE_ATTEMPTS", "4")],
        );
        assert!(config.problems.is_empty(), "{:?}", config.problems);
        assert_eq!(value(&config, "serve.on_similar_failures").as_deref(), Some("hold"));
        assert_eq!(value(&config, "serve.similar_failure_count").as_deref(), Some("4"));
    }

    #[test]
    fn flags_override_settings() {
        let config =
            load(&[("local", "format = \"json\"\n[run]\ngrace = \"3s\"\nmax_parallel_jobs = 7\n")], &[]);
        let parse = |line: &[&str]| {
            let matches = config.apply_defaults(args::build_command()).try_get_matches_from(line).unwrap();
            args::from_matches(&matches).unwrap()
        };
        let cli = parse(&["windlass", "run", "a.yaml", "--grace", "9s"]);
        assert_eq!(cli.globals.format, args::OutputFormat::Json);
        let Some(args::CliCommand::Run(run)) = cli.command else { panic!("not run") };
        assert_eq!(run.machine.max_parallel_jobs, Some(7));
        assert_eq!(run.machine.grace.as_secs(), 9);
    }

    #[test]
    fn environment_settings_are_validated() {
        let config = load(
            &[],
            &[("WINDLASS_RUN__GRACES", "3s"), ("WINDLASS_COLOR", "pink"), ("WINDLASS_PARAM_A__B", "1")],
        );
        let found: Vec<String> = config.problems.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("did you mean $WINDLASS_RUN__GRACE?"), "{found:?}");
        assert!(found[1].starts_with("$WINDLASS_COLOR: cannot be `pink`"), "{found:?}");
    }

    #[test]
    fn config_paths_follow_xdg() {
        let paths = |variables: &[(&str, &str)]| {
            ConfigPaths::new(Path::new("/p"), |name| {
                variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
            })
        };
        let home = [("HOME", "/home/me")];
        assert_eq!(paths(&home).user, Some(PathBuf::from("/home/me/.config/windlass/config.toml")));
        let xdg = [("HOME", "/home/me"), ("XDG_CONFIG_HOME", "/x")];
        assert_eq!(paths(&xdg).user, Some(PathBuf::from("/x/windlass/config.toml")));
        assert_eq!(paths(&[("XDG_CONFIG_HOME", "relative")]).user, None);
        assert_eq!(paths(&[]).local, PathBuf::from("/p/windlass.toml"));
    }
}
