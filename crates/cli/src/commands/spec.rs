//! `windlass spec`: the schema and the reference of spec files, and specs in other formats and in good shape.

use crate::args::spec::{ConvertArgs, FormatArgs, PrintedArgs, SpecArgs, SpecFormat, SpecVerb};
use crate::context::Context;
use crate::deliver;
use crate::error::{CliError, Exit};
use crate::plan::SpecFile;
use crate::spec_files;
use std::path::{Path, PathBuf};
use windlass_spec::Format;

pub(crate) fn run(ctx: &Context, args: &SpecArgs) -> Result<Exit, CliError> {
    match &args.verb {
        SpecVerb::Schema(args) => schema(ctx, args),
        SpecVerb::Reference(args) => {
            deliver::text(ctx, args.output.as_deref(), &windlass_spec::reference())?;
            Ok(Exit::Success)
        }
        SpecVerb::Convert(args) => convert(ctx, args),
        SpecVerb::Format(args) => format(ctx, args),
    }
}

fn schema(ctx: &Context, args: &PrintedArgs) -> Result<Exit, CliError> {
    let mut text = serde_json::to_string_pretty(&windlass_spec::schema())
        .map_err(|e| CliError::internal(format!("the schema cannot be written: {e}")))?;
    text.push('\n');
    deliver::text(ctx, args.output.as_deref(), &text)?;
    Ok(Exit::Success)
}

fn convert(ctx: &Context, args: &ConvertArgs) -> Result<Exit, CliError> {
    let to = target_format(args)?;
    let file = SpecFile::read(&ctx.cwd, &args.input)?;
    if let Some(output) = args.output.as_deref().filter(|_| !args.force) {
        refuse_to_overwrite(&ctx.cwd, output)?;
    }
    let text = windlass_spec::convert(file.source(), to)?;
    deliver::text(ctx, args.output.as_deref(), &text)?;
    Ok(Exit::Success)
}

/// Named, or told by the file that is written.
fn target_format(args: &ConvertArgs) -> Result<Format, CliError> {
    let by_name = || args.output.as_deref().and_then(Format::from_path);
    args.to.map(Format::from).or_else(by_name).ok_or_else(|| {
        CliError::user("the name of the file that is to be written tells no format")
            .with_hint("say --to yaml, json, json5, toml or kdl")
    })
}

fn refuse_to_overwrite(cwd: &Path, output: &Path) -> Result<(), CliError> {
    if !cwd.join(output).is_file() {
        return Ok(());
    }
    Err(CliError::refused(format!("{} is there already", output.display())).with_hint("--force replaces it"))
}

impl From<SpecFormat> for Format {
    fn from(format: SpecFormat) -> Self {
        match format {
            SpecFormat::Yaml => Self::Yaml,
            SpecFormat::Json => Self::Json,
            SpecFormat::Json5 => Self::Json5,
            SpecFormat::Toml => Self::Toml,
            SpecFormat::Kdl => Self::Kdl,
        }
    }
}

fn format(ctx: &Context, args: &FormatArgs) -> Result<Exit, CliError> {
    let files = match args.files.as_slice() {
        [] => vec![spec_files::named_or_found(None, &ctx.cwd)?],
        named => named.to_vec(),
    };
    // All are read before one is changed: a mistake in the last leaves the first as it was.
    let shaped = files.iter().map(|path| Shaped::read(ctx, path)).collect::<Result<Vec<_>, _>>()?;
    let changed: Vec<&Shaped> = shaped.iter().filter(|one| one.is_changed()).collect();
    if args.check {
        for one in &changed {
            ctx.ui.warn(&format!("{} is not in shape", one.path.display()));
        }
        return Ok(if changed.is_empty() { Exit::Success } else { Exit::JobsFailed });
    }
    for one in &shaped {
        one.write(ctx)?;
    }
    Ok(Exit::Success)
}

/// A file, as it is and as it should be.
struct Shaped {
    path: PathBuf,
    before: Vec<u8>,
    after: String,
}

impl Shaped {
    fn read(ctx: &Context, path: &Path) -> Result<Self, CliError> {
        let file = SpecFile::read(&ctx.cwd, path)?;
        let after = windlass_spec::reformat(file.source())?;
        Ok(Self { path: path.to_owned(), before: file.source().text.to_owned(), after })
    }

    fn is_changed(&self) -> bool {
        self.before != self.after.as_bytes()
    }

    fn write(&self, ctx: &Context) -> Result<(), CliError> {
        if self.path == Path::new("-") {
            return ctx.ui.print_text_of_others(self.after.as_bytes());
        }
        if self.is_changed() {
            deliver::replace(&ctx.cwd.join(&self.path), &self.after)?;
            ctx.ui.note(&format!("formatted {}", self.path.display()));
        }
        Ok(())
    }
}
