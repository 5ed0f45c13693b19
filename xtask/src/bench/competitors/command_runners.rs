//! Programs that run commands and keep no state: the floor, xargs, make, GNU parallel.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;

use super::{Competitor, FoundCompetitor, SearchEnvironment};
use crate::bench::measure::{Invocation, RunDirectory};
use crate::bench::workloads::{GraphShape, JobGraph, render_commands, render_makefile};
use crate::shell::{find_program, output};

/// Runs a file of commands with a fixed number at once. It knows no dependencies: a graph is passed phase by
/// phase.
struct CommandRunner {
    /// The arguments before the number of concurrent jobs, and those after it.
    before: Vec<OsString>,
    after: Vec<&'static str>,
    reads: CommandSource,
    share: usize,
}

/// Where a [`CommandRunner`] takes its commands from.
enum CommandSource {
    LastArgument,
    Stdin,
}

impl Competitor for CommandRunner {
    fn invocation(&self, graph: &JobGraph, slots: usize, place: &RunDirectory) -> Result<Invocation> {
        let mut script = Vec::new();
        for (index, phase) in graph.phases(slots).into_iter().enumerate() {
            let commands = render_commands(&graph.jobs[phase.jobs]);
            let file = place.write_input(&format!("commands-{index}"), &commands)?;
            script.push(self.line(phase.at_once, &file));
        }
        // One shell that becomes the last phase; its start is the cost of redirecting stdin, equal for all
        // competitors.
        let last = script.pop().map(|line| format!("exec {line}"));
        script.extend(last);
        Ok(Invocation::new(["/bin/sh", "-c", &script.join(" && ")]))
    }

    fn share(&self, _shape: GraphShape) -> usize {
        self.share
    }
}

impl CommandRunner {
    fn line(&self, at_once: usize, file: &str) -> String {
        let mut words: Vec<String> = self.before.iter().map(|word| quote(&word.to_string_lossy())).collect();
        words.push(at_once.to_string());
        words.extend(self.after.iter().map(|word| quote(word)));
        match self.reads {
            CommandSource::LastArgument => words.push(file.to_owned()),
            CommandSource::Stdin => words.push(format!("< {file}")),
        }
        words.join(" ")
    }
}

/// Quotes a word for the shell.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[expect(clippy::unnecessary_wraps, reason = "the others may be missing, and all are found in the same way")]
pub(super) fn find_floor(search_environment: &SearchEnvironment<'_>) -> FoundCompetitor {
    let before = vec![search_environment.native.floor.clone().into()];
    Ok(Box::new(CommandRunner { before, after: Vec::new(), reads: CommandSource::LastArgument, share: 1 }))
}

pub(super) fn find_xargs(_: &SearchEnvironment<'_>) -> FoundCompetitor {
    let program = find("xargs", "findutils")?;
    let after = vec!["-I{}", "sh", "-c", "{}"];
    Ok(Box::new(CommandRunner {
        before: vec![program.into(), "-P".into()],
        after,
        reads: CommandSource::Stdin,
        share: 1,
    }))
}

pub(super) fn find_parallel(_: &SearchEnvironment<'_>) -> FoundCompetitor {
    let program = find("parallel", "parallel")?;
    // moreutils has a different program with this name.
    let version = output(std::process::Command::new(&program).arg("--version")).unwrap_or_default();
    if !version.contains("GNU parallel") {
        return Err("the `parallel` here is not GNU parallel".to_owned());
    }
    let before = vec![program.into(), "--will-cite".into(), "-j".into()];
    Ok(Box::new(CommandRunner { before, after: Vec::new(), reads: CommandSource::Stdin, share: 10 }))
}

struct MakeRunner(PathBuf);

impl Competitor for MakeRunner {
    fn invocation(&self, graph: &JobGraph, slots: usize, place: &RunDirectory) -> Result<Invocation> {
        let file = place.write_input("Makefile", &render_makefile(graph))?;
        let words: [OsString; 4] =
            [self.0.clone().into(), format!("-j{slots}").into(), "-f".into(), file.into()];
        Ok(Invocation::new(words))
    }
}

pub(super) fn find_make(_: &SearchEnvironment<'_>) -> FoundCompetitor {
    Ok(Box::new(MakeRunner(find("make", "make")?)))
}

fn find(program: &str, package: &str) -> Result<PathBuf, String> {
    find_program(program).ok_or_else(|| format!("not found; --install-peers or `apt-get install {package}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_places_width_and_file_by_program() {
        let floor = CommandRunner {
            before: vec!["/t/floor".into()],
            after: Vec::new(),
            reads: CommandSource::LastArgument,
            share: 1,
        };
        assert_eq!(floor.line(2, "../input/c"), "'/t/floor' 2 ../input/c");
        let xargs = CommandRunner {
            before: vec!["xargs".into(), "-P".into()],
            after: vec!["-I{}", "sh"],
            reads: CommandSource::Stdin,
            share: 1,
        };
        assert_eq!(xargs.line(1, "../input/c"), "'xargs' '-P' 1 '-I{}' 'sh' < ../input/c");
    }

    #[test]
    fn quoting_escapes_single_quotes() {
        assert_eq!(quote("it's"), r"'it'\''s'");
    }
}
