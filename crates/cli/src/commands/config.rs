//! `windlass config`: which settings are in force, where they come from, and whether they are right.

use crate::args::Format;
use crate::args::tools::{ConfigArgs, ConfigInitArgs, ConfigShowArgs, ConfigVerb};
use crate::config::{Key, Paths, Problem, Value, template};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::rules;
use crate::ui::listing::{Datum, Field, Listing};
use crate::ui::table::Column;
use crate::ui::text;
use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use windlass_store::Location;

pub(crate) fn run(ctx: &Context, args: &ConfigArgs) -> Result<Exit, CliError> {
    if !matches!(args.verb, ConfigVerb::Validate) {
        for problem in &ctx.config.problems {
            ctx.ui.warn(&problem.to_string());
        }
    }
    match &args.verb {
        ConfigVerb::Show(args) => show(ctx, args),
        ConfigVerb::Paths => paths(ctx),
        ConfigVerb::Init(args) => init(ctx, args),
        ConfigVerb::Validate => validate(ctx),
    }
}

/// A setting, what it is, and who said so.
struct Setting {
    key: &'static Key,
    value: Option<Value>,
}

impl Setting {
    /// What is shown may be shown to others: the URL of a database comes without its password.
    fn text(&self) -> Option<Cow<'_, str>> {
        let text = self.value.as_ref().map(|value| value.text.as_str()).or(self.key.default)?;
        let is_secret = Location::is_postgres(text);
        Some(if is_secret { Location::without_password(text).into() } else { text.into() })
    }

    fn origin(&self) -> String {
        self.value.as_ref().map_or_else(|| "default".to_owned(), |value| value.origin.to_string())
    }
}

const SETTINGS: &[Field<Setting>] = &[
    Field::new("name", |setting: &Setting| setting.key.name.into()).column(Column::text("NAME")),
    Field::new("value", |setting: &Setting| setting.text().as_deref().into())
        .column(Column::elastic("VALUE")),
];

const ORIGINS: &[Field<Setting>] =
    &[Field::new("origin", |setting: &Setting| setting.origin().into()).column(Column::elastic("ORIGIN"))];

const MEANINGS: &[Field<Setting>] =
    &[Field::new("meaning", |setting: &Setting| setting.key.meaning.into())
        .column(Column::elastic("MEANING"))];

fn show(ctx: &Context, args: &ConfigShowArgs) -> Result<Exit, CliError> {
    let settings: Vec<Setting> =
        ctx.config.entries().map(|(key, value)| Setting { key, value: value.cloned() }).collect();
    if ctx.ui.format() == Format::Toml {
        ctx.ui.print_lines(&as_toml(&settings, args.origin))?;
        return Ok(Exit::Success);
    }
    let listing = Listing::new(SETTINGS).with(if args.origin { ORIGINS } else { MEANINGS });
    ctx.ui.print_list(&listing, settings)?;
    Ok(Exit::Success)
}

fn as_toml(settings: &[Setting], with_origin: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let mut section = None;
    for setting in settings {
        let Some(text) = setting.text() else { continue };
        let (its_section, name) = setting.key.place();
        if its_section != section {
            section = its_section;
            lines.push(format!("[{}]", section.unwrap_or_default()));
        }
        let origin = if with_origin { format!("  # {}", setting.origin()) } else { String::new() };
        // A JSON string is a TOML string.
        lines.push(format!("{name} = {}{origin}", serde_json::Value::from(&*text)));
    }
    lines
}

/// A place where settings are looked for.
struct Place {
    name: &'static str,
    path: String,
    exists: bool,
}

const PLACES: &[Field<Place>] = &[
    Field::new("name", |place: &Place| place.name.into()).column(Column::text("FOR")),
    Field::new("path", |place: &Place| (&place.path).into()).column(Column::elastic("PATH")),
    Field::new("exists", |place: &Place| Datum::Flag(place.exists)).column(Column::text("THERE")),
];

fn places(ctx: &Context) -> Paths {
    Paths::new(&ctx.cwd, |name| std::env::var(name).ok())
}

fn paths(ctx: &Context) -> Result<Exit, CliError> {
    let paths = places(ctx);
    let place = |(name, path): (&'static str, &Path)| Place {
        name,
        path: path.display().to_string(),
        exists: path.exists(),
    };
    ctx.ui.print_list(&Listing::new(PLACES), paths.layers().into_iter().map(place).collect())?;
    Ok(Exit::Success)
}

fn init(ctx: &Context, args: &ConfigInitArgs) -> Result<Exit, CliError> {
    let path = place_for(&places(ctx), args)?;
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
        ErrorKind::AlreadyExists => {
            CliError::refused(format!("{} is there already", path.display())).with_hint("--force replaces it")
        }
        _ => failed(&e),
    })?;
    file.write_all(template().as_bytes()).map_err(|e| failed(&e))?;
    ctx.ui.note(&format!("wrote {}; nothing in it is switched on yet", path.display()));
    Ok(Exit::Success)
}

fn place_for(paths: &Paths, args: &ConfigInitArgs) -> Result<PathBuf, CliError> {
    if args.system {
        Ok(paths.system.clone())
    } else if args.local {
        Ok(paths.local.clone())
    } else {
        paths.user.clone().ok_or_else(|| {
            CliError::user("your home directory is not known")
                .with_hint("set HOME, or say --local or --system")
        })
    }
}

fn validate(ctx: &Context) -> Result<Exit, CliError> {
    let mut problems: Vec<String> =
        ctx.config.problems.iter().cloned().chain(halves(ctx)).map(|problem| problem.to_string()).collect();
    if let Some(file) = ctx.config.get("classify.rules_file") {
        let read = rules::classifier(Some(&ctx.cwd.join(&file.text)));
        problems.extend(read.err().map(|error| format!("{}: {error}", file.origin)));
    }
    if problems.is_empty() {
        let read = places(ctx).layers().iter().filter(|(_, path)| path.exists()).count() as u64;
        ctx.ui.note(&format!("the settings are good ({} and the environment)", text::count(read, "file")));
        return Ok(Exit::Success);
    }
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&serde_json::json!({ "mistakes": problems }))?;
    } else {
        ctx.ui.print_lines(&problems)?;
    }
    let found = text::count(problems.len() as u64, "mistake");
    Err(CliError::user(format!("the settings have {found}"))
        .with_hint("`windlass config paths` says where they come from"))
}

/// Settings that mean nothing one without the other. `windlass serve` takes the other one from its command line too.
fn halves(ctx: &Context) -> Vec<Problem> {
    let pairs = [
        ("serve.tls_cert", "serve.tls_key"),
        ("serve.tls_key", "serve.tls_cert"),
        ("serve.client_ca", "serve.tls_cert"),
        ("key", "cert"),
    ];
    let found = pairs.into_iter().filter_map(|(one, other)| {
        let set = ctx.config.get(one).filter(|_| ctx.config.get(other).is_none())?;
        let said = format!("`{one}` without `{other}` secures nothing");
        let hint = Some(format!("set `{other}` too, or give it to each command"));
        Some(Problem { place: set.origin.to_string(), said, hint })
    });
    found.collect()
}
