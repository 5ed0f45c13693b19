//! What a job of a workflow spec runs: a script, so that its command and its variables need no quotes of HTCondor's.

use crate::layout::MISSING_OUTPUT;
use crate::render::quote::{self, Unfit};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use windlass_spec::{Job, Workflow};
use windlass_types::work::{Stdio, StdioMode, return_code};
use windlass_types::{Resources, shell};

/// Commands are run by bash; by `/bin/sh` on a machine without it.
const SHELL: &str = "\"$(command -v bash || echo /bin/sh)\"";

/// What a script is made of.
pub(super) struct Script<'a> {
    pub(super) job: &'a Job<'a>,
    pub(super) workflow: &'a Workflow<'a>,
    pub(super) resources: Option<Resources>,
    /// Paths of what it must have written, as its command knows them.
    pub(super) outputs: &'a [String],
}

impl Script<'_> {
    pub(super) fn text(&self) -> Result<String, Unfit> {
        let mut text = "#!/bin/sh\n".to_owned();
        for (name, value) in self.variables() {
            let name = quote::attribute(&name).map_err(|unfit| Unfit { place: "a variable", ..unfit })?;
            writeln!(text, "export {name}={}", quote::shell(&value)?).ok();
        }
        text.push_str(redirection(self.stdio()));
        for directory in self.output_directories() {
            writeln!(text, "mkdir -p {}", quote::shell(directory)?).ok();
        }
        let command = quote::shell(&self.command())?;
        if self.outputs.is_empty() {
            writeln!(text, "exec {SHELL} -c {command}").ok();
            return Ok(text);
        }
        writeln!(text, "{SHELL} -c {command}\ncode=$?\n[ $code = 0 ] || exit $code").ok();
        for path in self.outputs {
            let told = quote::shell(&format!("{MISSING_OUTPUT}{path}"))?;
            let path = quote::shell(path)?;
            let code = return_code::MISSING_OUTPUT;
            writeln!(text, "[ -e {path} ] || {{ printf '%s\\n' {told} >&2; exit {code}; }}").ok();
        }
        Ok(text)
    }

    /// Where it begins may be empty, without the directories that its submitter has.
    fn output_directories(&self) -> BTreeSet<&str> {
        let relative = self.outputs.iter().map(Path::new).filter(|path| path.is_relative());
        relative.filter_map(|path| path.parent()?.to_str()).filter(|parent| !parent.is_empty()).collect()
    }

    /// With its invocation script, as in a run on the local machine.
    fn command(&self) -> String {
        let command = self.job.command(0);
        let own = self.job.invocation_script();
        let script = own.or_else(|| self.kind()?.invocation_script.clone());
        shell::invocation(script.as_deref(), &command)
    }

    /// The workflow's, those of its kind and its own, of which the last one counts; and what we add.
    fn variables(&self) -> Vec<(String, String)> {
        let kind = self.kind().map_or(&[][..], |kind| &kind.env);
        let mut variables: Vec<(String, String)> =
            self.workflow.env().iter().chain(kind).cloned().chain(self.job.env()).collect();
        let mut add = |name: &str, value: String| variables.push((name.to_owned(), value));
        for (name, value) in self.job.parameters() {
            add(&format!("WINDLASS_PARAM_{}", name.to_uppercase()), value.to_string());
        }
        add("WINDLASS_JOB_NAME", self.job.name.to_owned());
        if let Some(resources) = self.resources {
            add("WINDLASS_CPUS", resources.cpus.max(1).to_string());
            add("WINDLASS_MEMORY_BYTES", resources.memory.0.to_string());
        }
        variables
    }

    fn kind(&self) -> Option<&windlass_spec::JobKind> {
        Some(&self.workflow.kinds()[self.job.kind? as usize])
    }

    fn stdio(&self) -> Stdio {
        let all = self.workflow.settings().stdio(self.workflow.stdio());
        self.kind().and_then(|kind| kind.stdio).unwrap_or(all)
    }
}

const fn redirection(stdio: Stdio) -> &'static str {
    match stdio.mode {
        StdioMode::Separate => "",
        StdioMode::Combined => "exec 2>&1\n",
        StdioMode::None => "exec >/dev/null 2>&1\n",
        StdioMode::NoStdout => "exec >/dev/null\n",
        StdioMode::NoStderr => "exec 2>/dev/null\n",
    }
}
