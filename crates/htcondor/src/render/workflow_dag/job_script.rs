//! The script of a job of a workflow spec. With a script, its command and variables need no HTCondor quoting.

use crate::file_layout::MISSING_OUTPUT_PREFIX;
use crate::render::quote::{self, UnquotableText};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use windlass_spec::{ResolvedJob, ResolvedWorkflow};
use windlass_types::worker_messages::{StdioMode, StdioSettings, return_code};
use windlass_types::{JobGroup, Resources, shell};

/// Commands run in bash, or in `/bin/sh` on a machine without bash.
const SHELL_COMMAND: &str = "\"$(command -v bash || echo /bin/sh)\"";

/// The parts of a script.
pub(super) struct JobScript<'a> {
    pub(super) job: &'a ResolvedJob<'a>,
    pub(super) workflow: &'a ResolvedWorkflow<'a>,
    pub(super) resources: Option<Resources>,
    /// Paths of the outputs that it must have written, as its command refers to them.
    pub(super) outputs: &'a [String],
}

impl JobScript<'_> {
    pub(super) fn render(&self) -> Result<String, UnquotableText> {
        let mut text = "#!/bin/sh\n".to_owned();
        for (name, value) in self.environment() {
            let name = quote::check_attribute_name(&name)
                .map_err(|unfit| UnquotableText { place: "a variable", ..unfit })?;
            writeln!(text, "export {name}={}", quote::quote_shell(&value)?).ok();
        }
        text.push_str(stdio_redirection(self.stdio()));
        for directory in self.output_directories() {
            writeln!(text, "mkdir -p {}", quote::quote_shell(directory)?).ok();
        }
        let command = quote::quote_shell(&self.full_command())?;
        if self.outputs.is_empty() {
            writeln!(text, "exec {SHELL_COMMAND} -c {command}").ok();
            return Ok(text);
        }
        writeln!(text, "{SHELL_COMMAND} -c {command}\ncode=$?\n[ $code = 0 ] || exit $code").ok();
        for path in self.outputs {
            let message = quote::quote_shell(&format!("{MISSING_OUTPUT_PREFIX}{path}"))?;
            let path = quote::quote_shell(path)?;
            let code = return_code::MISSING_OUTPUT;
            writeln!(text, "[ -e {path} ] || {{ printf '%s\\n' {message} >&2; exit {code}; }}").ok();
        }
        Ok(text)
    }

    /// Directories to create for the outputs: the job may start in an empty directory.
    fn output_directories(&self) -> BTreeSet<&str> {
        let relative = self.outputs.iter().map(Path::new).filter(|path| path.is_relative());
        relative.filter_map(|path| path.parent()?.to_str()).filter(|parent| !parent.is_empty()).collect()
    }

    /// With its invocation script, as in a run on the local machine.
    fn full_command(&self) -> String {
        let command = self.job.command(0);
        let own = self.job.invocation_script();
        let script = own.or_else(|| self.own_job_group()?.invocation_script.clone());
        shell::wrap_with_invocation_script(script.as_deref(), &command)
    }

    /// The variables of the workflow, of the job group and of the job, of which the last one wins; and those that
    /// Windlass adds.
    fn environment(&self) -> Vec<(String, String)> {
        let job_group = self.own_job_group().map_or(&[][..], |job_group| &job_group.env);
        let mut variables: Vec<(String, String)> =
            self.workflow.env().iter().chain(job_group).cloned().chain(self.job.env()).collect();
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

    fn own_job_group(&self) -> Option<&JobGroup<u32>> {
        Some(&self.workflow.job_groups()[self.job.group? as usize])
    }

    fn stdio(&self) -> StdioSettings {
        let all = self.workflow.settings().stdio(self.workflow.stdio());
        self.own_job_group().and_then(|job_group| job_group.settings.stdio).unwrap_or(all)
    }
}

const fn stdio_redirection(stdio: StdioSettings) -> &'static str {
    match stdio.mode {
        StdioMode::Separate => "",
        StdioMode::Combined => "exec 2>&1\n",
        StdioMode::None => "exec >/dev/null 2>&1\n",
        StdioMode::NoStdout => "exec >/dev/null\n",
        StdioMode::NoStderr => "exec 2>/dev/null\n",
    }
}
