//! `windlass config`: shows the effective settings and their origin, and checks them.

use crate::args::OutputFormat;
use crate::args::config_and_docs::{ConfigArgs, ConfigInitArgs, ConfigShowArgs, ConfigSubcommand};
use crate::classification_rules;
use crate::config::{ConfigPaths, SettingKey, SettingProblem, SettingValue, render_template};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::ui::listing::{FieldValue, ListField, ListFields};
use crate::ui::table::TableColumn;
use crate::ui::text;
use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use windlass_store::StoreLocation;

pub(crate) fn run(ctx: &CliContext, args: &ConfigArgs) -> Result<CliExit, CliError> {
    if !matches!(args.verb, ConfigSubcommand::Validate | ConfigSubcommand::Completions(_)) {
        for problem in &ctx.config.problems {
            ctx.ui.print_warning(&problem.to_string());
        }
    }
    match &args.verb {
        ConfigSubcommand::Show(args) => show_settings(ctx, args),
        ConfigSubcommand::Paths => list_locations(ctx),
        ConfigSubcommand::Init(args) => init_config(ctx, args),
        ConfigSubcommand::Validate => validate_config(ctx),
        // Prints no setting, so it warns of none.
        ConfigSubcommand::Completions(args) => super::completions::run(ctx, args),
    }
}

/// A setting, its value, and where it was set.
struct ConfigSettingRow {
    key: &'static SettingKey,
    value: Option<SettingValue>,
}

impl ConfigSettingRow {
    /// The output may be shared: database URLs are shown without passwords.
    fn value_text(&self) -> Option<Cow<'_, str>> {
        let text = self.value.as_ref().map(|value| value.text.as_str()).or(self.key.default)?;
        let is_secret = StoreLocation::is_postgres(text);
        Some(if is_secret { StoreLocation::without_password(text).into() } else { text.into() })
    }

    fn origin(&self) -> String {
        self.value.as_ref().map_or_else(|| "default".to_owned(), |value| value.origin.to_string())
    }
}

const SETTING_FIELDS: &[ListField<ConfigSettingRow>] = &[
    ListField::new("name", |setting: &ConfigSettingRow| setting.key.name.into())
        .column(TableColumn::text("NAME")),
    ListField::new("value", |setting: &ConfigSettingRow| setting.value_text().as_deref().into())
        .column(TableColumn::flexible("VALUE")),
];

const ORIGIN_FIELDS: &[ListField<ConfigSettingRow>] =
    &[ListField::new("origin", |setting: &ConfigSettingRow| setting.origin().into())
        .column(TableColumn::flexible("ORIGIN"))];

const MEANING_FIELDS: &[ListField<ConfigSettingRow>] =
    &[ListField::new("meaning", |setting: &ConfigSettingRow| setting.key.meaning.into())
        .column(TableColumn::flexible("MEANING"))];

fn show_settings(ctx: &CliContext, args: &ConfigShowArgs) -> Result<CliExit, CliError> {
    let settings: Vec<ConfigSettingRow> =
        ctx.config.entries().map(|(key, value)| ConfigSettingRow { key, value: value.cloned() }).collect();
    if ctx.ui.format() == OutputFormat::Toml {
        ctx.ui.print_lines(&render_toml(&settings, args.origin))?;
        return Ok(CliExit::Success);
    }
    let listing =
        ListFields::new(SETTING_FIELDS).with_fields(if args.origin { ORIGIN_FIELDS } else { MEANING_FIELDS });
    ctx.ui.print_list(&listing, settings)?;
    Ok(CliExit::Success)
}

fn render_toml(settings: &[ConfigSettingRow], with_origin: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let mut section = None;
    for setting in settings {
        let Some(text) = setting.value_text() else { continue };
        let (its_section, name) = setting.key.section_and_name();
        if its_section != section {
            section = its_section;
            lines.push(format!("[{}]", section.unwrap_or_default()));
        }
        let origin = if with_origin { format!("  # {}", setting.origin()) } else { String::new() };
        // A JSON string is a valid TOML string.
        lines.push(format!("{name} = {}{origin}", serde_json::Value::from(&*text)));
    }
    lines
}

/// A location that is searched for settings.
struct ConfigLocation {
    name: &'static str,
    path: String,
    exists: bool,
}

const LOCATION_FIELDS: &[ListField<ConfigLocation>] = &[
    ListField::new("name", |place: &ConfigLocation| place.name.into()).column(TableColumn::text("FOR")),
    ListField::new("path", |place: &ConfigLocation| (&place.path).into())
        .column(TableColumn::flexible("PATH")),
    ListField::new("exists", |place: &ConfigLocation| FieldValue::Bool(place.exists))
        .column(TableColumn::text("THERE")),
];

fn config_paths(ctx: &CliContext) -> ConfigPaths {
    ConfigPaths::new(&ctx.cwd, |name| std::env::var(name).ok())
}

fn list_locations(ctx: &CliContext) -> Result<CliExit, CliError> {
    let paths = config_paths(ctx);
    let place = |(name, path): (&'static str, &Path)| ConfigLocation {
        name,
        path: path.display().to_string(),
        exists: path.exists(),
    };
    ctx.ui.print_list(&ListFields::new(LOCATION_FIELDS), paths.layers().into_iter().map(place).collect())?;
    Ok(CliExit::Success)
}

fn init_config(ctx: &CliContext, args: &ConfigInitArgs) -> Result<CliExit, CliError> {
    let path = config_path_for(&config_paths(ctx), args)?;
    let failed = |e: &std::io::Error| CliError::io(format!("cannot write {}: {e}", path.display()));
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|e| failed(&e))?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true);
    if args.force {
        options.truncate(true)
    } else {
        options.create_new(true)
    };
    let mut file = options.open(&path).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => CliError::refused(format!("{} already exists", path.display()))
            .with_hint("use --force to replace it"),
        _ => failed(&e),
    })?;
    file.write_all(render_template().as_bytes()).map_err(|e| failed(&e))?;
    ctx.ui.print_note(&format!("wrote {}; all settings in it are commented out", path.display()));
    Ok(CliExit::Success)
}

fn config_path_for(paths: &ConfigPaths, args: &ConfigInitArgs) -> Result<PathBuf, CliError> {
    if args.system {
        Ok(paths.system.clone())
    } else if args.local {
        Ok(paths.local.clone())
    } else {
        paths.user.clone().ok_or_else(|| {
            CliError::user("the home directory is unknown").with_hint("set HOME, or use --local or --system")
        })
    }
}

fn validate_config(ctx: &CliContext) -> Result<CliExit, CliError> {
    let mut problems: Vec<String> = ctx
        .config
        .problems
        .iter()
        .cloned()
        .chain(incomplete_pairs(ctx))
        .map(|problem| problem.to_string())
        .collect();
    if let Some(file) = ctx.config.get("classify.rules_file") {
        let read = classification_rules::build_classifier(Some(&ctx.cwd.join(&file.text)));
        problems.extend(read.err().map(|error| format!("{}: {error}", file.origin)));
    }
    if problems.is_empty() {
        let read = config_paths(ctx).layers().iter().filter(|(_, path)| path.exists()).count() as u64;
        ctx.ui.print_note(&format!(
            "the settings are valid ({} and the environment)",
            text::render_count(read, "file")
        ));
        return Ok(CliExit::Success);
    }
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&serde_json::json!({ "mistakes": problems }))?;
    } else {
        ctx.ui.print_lines(&problems)?;
    }
    let found = text::render_count(problems.len() as u64, "mistake");
    Err(CliError::user(format!("the settings have {found}"))
        .with_hint("`windlass config paths` shows where they come from"))
}

/// Settings that have no effect without each other. `windlass serve` also takes the other one from its command
/// line.
fn incomplete_pairs(ctx: &CliContext) -> Vec<SettingProblem> {
    let pairs = [
        ("serve.tls_cert", "serve.tls_key"),
        ("serve.tls_key", "serve.tls_cert"),
        ("serve.client_ca", "serve.tls_cert"),
        ("key", "cert"),
    ];
    let found = pairs.into_iter().filter_map(|(one, other)| {
        let set = ctx.config.get(one).filter(|_| ctx.config.get(other).is_none())?;
        let shown = format!("`{one}` has no effect without `{other}`");
        let hint = Some(format!("set `{other}` too, or pass it to each command"));
        Some(SettingProblem { location: set.origin.to_string(), message: shown, hint })
    });
    found.collect()
}
