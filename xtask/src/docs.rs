//! `cargo xtask docs`: writes the pages generated from the code. Tests fail when they are out of date.

use anyhow::{Result, bail};

use crate::shell::{cargo, root, run};

const HELP: &str = "\
cargo xtask docs: writes the pages that are made from the code

  docs/man/*.1                            from the definition of the command line
  docs/reference/cli.md                   the same
  docs/reference/spec.md                  from the tables of the spec's fields
  docs/reference/windlass.schema.json     the same
  docs/reference/openapi.json             from the routes of the server
  docs/reference/permissions.md           the same
  README.md, docs/**/*.md                 what the commands in console blocks print, where it is not what is shown
";

pub(crate) fn main(arguments: &[String]) -> Result<()> {
    if arguments.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return Ok(());
    }
    if let Some(word) = arguments.first() {
        bail!("`docs` takes no arguments, got `{word}`");
    }
    // Remove pages of commands that no longer exist.
    let man = root().join("docs/man");
    if man.exists() {
        std::fs::remove_dir_all(&man)?;
    }
    run(&mut cargo(["run", "--quiet", "--package", "windlass", "--", "__docs", "docs"]))?;
    let mut spec = cargo(["test", "--quiet", "--package", "windlass-spec", "--test", "generated"]);
    run(spec.env("WINDLASS_UPDATE_GENERATED", "1"))?;
    let mut server =
        cargo(["test", "--quiet", "--package", "windlass-server", "--test", "server", "reference_docs"]);
    run(server.env("WINDLASS_UPDATE_GENERATED", "1"))?;
    let mut pages = cargo(["test", "--quiet", "--package", "windlass", "--test", "commands", "docs_pages"]);
    run(pages.env("WINDLASS_UPDATE_GENERATED", "1"))
}
