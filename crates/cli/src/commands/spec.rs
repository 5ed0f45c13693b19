//! `windlass spec`: prints the schema and the reference of spec files, converts and formats specs.

use crate::args::spec::{
    SpecArgs, SpecConvertArgs, SpecFileFormat, SpecFormatArgs, SpecOutputArgs, SpecSubcommand,
};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::output_files;
use crate::spec_discovery;
use crate::spec_file::SpecFile;
use std::path::{Path, PathBuf};
use windlass_spec::SpecFormat;

pub(crate) fn run(ctx: &CliContext, args: &SpecArgs) -> Result<CliExit, CliError> {
    match &args.verb {
        SpecSubcommand::Schema(args) => print_schema(ctx, args),
        SpecSubcommand::Reference(args) => {
            output_files::write_text(ctx, args.output.as_deref(), &windlass_spec::render_reference())?;
            Ok(CliExit::Success)
        }
        SpecSubcommand::Convert(args) => convert_spec(ctx, args),
        SpecSubcommand::Format(args) => format_specs(ctx, args),
    }
}

fn print_schema(ctx: &CliContext, args: &SpecOutputArgs) -> Result<CliExit, CliError> {
    let mut text = serde_json::to_string_pretty(&windlass_spec::build_json_schema())
        .map_err(|e| CliError::internal(format!("cannot write the schema: {e}")))?;
    text.push('\n');
    output_files::write_text(ctx, args.output.as_deref(), &text)?;
    Ok(CliExit::Success)
}

fn convert_spec(ctx: &CliContext, args: &SpecConvertArgs) -> Result<CliExit, CliError> {
    let to = target_format(args)?;
    let file = SpecFile::read(&ctx.cwd, &args.input)?;
    if let Some(output) = args.output.as_deref().filter(|_| !args.force) {
        refuse_to_overwrite(&ctx.cwd, output)?;
    }
    let text = windlass_spec::convert_spec(file.source(), to)?;
    output_files::write_text(ctx, args.output.as_deref(), &text)?;
    Ok(CliExit::Success)
}

/// The given format, or that of the output file name.
fn target_format(args: &SpecConvertArgs) -> Result<SpecFormat, CliError> {
    let by_name = || args.output.as_deref().and_then(SpecFormat::from_path);
    args.to.map(SpecFormat::from).or_else(by_name).ok_or_else(|| {
        CliError::user("the name of the output file does not determine a format")
            .with_hint("use --to yaml, json, json5, toml or kdl")
    })
}

fn refuse_to_overwrite(cwd: &Path, output: &Path) -> Result<(), CliError> {
    if !cwd.join(output).is_file() {
        return Ok(());
    }
    Err(CliError::refused(format!("{} already exists", output.display()))
        .with_hint("use --force to replace it"))
}

impl From<SpecFileFormat> for SpecFormat {
    fn from(format: SpecFileFormat) -> Self {
        match format {
            SpecFileFormat::Yaml => Self::Yaml,
            SpecFileFormat::Json => Self::Json,
            SpecFileFormat::Json5 => Self::Json5,
            SpecFileFormat::Toml => Self::Toml,
            SpecFileFormat::Kdl => Self::Kdl,
        }
    }
}

fn format_specs(ctx: &CliContext, args: &SpecFormatArgs) -> Result<CliExit, CliError> {
    let files = match args.files.as_slice() {
        [] => vec![spec_discovery::resolve_spec_path(None, &ctx.cwd)?],
        named => named.to_vec(),
    };
    // All files are read before one is changed: an error in the last leaves the first unchanged.
    let shaped = files.iter().map(|path| FormattedSpec::read(ctx, path)).collect::<Result<Vec<_>, _>>()?;
    let changed: Vec<&FormattedSpec> = shaped.iter().filter(|one| one.is_changed()).collect();
    if args.check {
        for one in &changed {
            ctx.ui.print_warning(&format!("{} is not formatted", one.path.display()));
        }
        return Ok(if changed.is_empty() { CliExit::Success } else { CliExit::JobsFailed });
    }
    for one in &shaped {
        one.write(ctx)?;
    }
    Ok(CliExit::Success)
}

/// A file with its present and its formatted text.
struct FormattedSpec {
    path: PathBuf,
    before: Vec<u8>,
    after: String,
}

impl FormattedSpec {
    fn read(ctx: &CliContext, path: &Path) -> Result<Self, CliError> {
        let file = SpecFile::read(&ctx.cwd, path)?;
        let after = windlass_spec::reformat_spec(file.source())?;
        Ok(Self { path: path.to_owned(), before: file.source().text.to_owned(), after })
    }

    fn is_changed(&self) -> bool {
        self.before != self.after.as_bytes()
    }

    fn write(&self, ctx: &CliContext) -> Result<(), CliError> {
        if self.path == Path::new("-") {
            return ctx.ui.print_untrusted_text(self.after.as_bytes());
        }
        if self.is_changed() {
            output_files::replace_file(&ctx.cwd.join(&self.path), &self.after)?;
            ctx.ui.print_note(&format!("formatted {}", self.path.display()));
        }
        Ok(())
    }
}
