//! Documentation for agents: pages of the guide and example specs, compiled in so that they match this version.

/// A page of the guide.
pub(crate) struct DocPage {
    pub(crate) topic: &'static str,
    pub(crate) text: &'static str,
}

impl DocPage {
    /// Its heading.
    pub(crate) fn title(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches('#').trim()
    }
}

macro_rules! pages {
    ($($topic:literal = $path:literal),* $(,)?) => {
        /// All pages.
        pub(crate) const PAGES: &[DocPage] =
            &[$(DocPage { topic: $topic, text: include_str!(concat!("../../../docs/", $path)) }),*];
    };
}

pages! {
    "tutorial" = "tutorial.md",
    "cheatsheet" = "cheatsheet.md",
    "writing-specs" = "guide/writing-specs.md",
    "parameters" = "guide/parameters.md",
    "dependencies" = "guide/dependencies.md",
    "files" = "guide/files.md",
    "running-again" = "guide/running-again.md",
    "resources" = "guide/resources.md",
    "failures" = "guide/failures.md",
    "classification" = "guide/classification.md",
    "user-data" = "guide/user-data.md",
    "dynamic-jobs" = "guide/dynamic-jobs.md",
    "actions" = "guide/actions.md",
    "server" = "guide/server.md",
    "workers" = "guide/workers.md",
    "mcp" = "guide/mcp.md",
    "catalog" = "guide/catalog.md",
    "configuration" = "guide/configuration.md",
    "formats" = "guide/formats.md",
    "htcondor" = "guide/htcondor.md",
    "limits-and-sites" = "guide/limits-and-sites.md",
    "moving" = "guide/moving.md",
    "payload" = "guide/payload.md",
    "recovery" = "guide/recovery.md",
    "remote" = "guide/remote.md",
    "request-recovery" = "guide/request-recovery.md",
    "requests" = "guide/requests.md",
    "scripting" = "guide/scripting.md",
    "security" = "guide/security.md",
    "slurm" = "guide/slurm.md",
    "slurm-sites" = "guide/slurm-sites.md",
    "triage" = "guide/triage.md",
    "exit-codes" = "exit-codes.md",
    "json" = "json.md",
    "glossary" = "glossary.md",
    "spec-reference" = "reference/spec.md",
}

/// A complete example spec.
pub(crate) struct ExampleSpec {
    /// File name without the extension.
    pub(crate) name: &'static str,
    pub(crate) file: &'static str,
    pub(crate) text: &'static str,
}

macro_rules! examples {
    ($($name:literal = $file:literal),* $(,)?) => {
        /// All examples.
        pub(crate) const EXAMPLES: &[ExampleSpec] = &[$(ExampleSpec {
            name: $name, file: $file, text: include_str!(concat!("../../../examples/", $file)),
        }),*];
    };
}

examples! {
    "hello" = "hello.json",
    "diamond" = "diamond.yaml",
    "sweep" = "sweep.yaml",
    "grid" = "grid.kdl",
    "montecarlo" = "montecarlo.json5",
    "pipeline" = "pipeline.toml",
    "zip" = "zip.yaml",
    "shared_parameters" = "shared_parameters.yaml",
    "fan_in" = "fan_in.yaml",
    "resources" = "resources.yaml",
    "priorities" = "priorities.yaml",
    "labels" = "labels.yaml",
    "limits" = "limits.yaml",
    "environment" = "environment.yaml",
    "stdio" = "stdio.yaml",
    "user_data" = "user_data.yaml",
    "dynamic" = "dynamic.yaml",
    "actions" = "actions.yaml",
    "monitoring" = "monitoring.yaml",
    "checkpointing" = "checkpointing.yaml",
    "change_detection" = "change_detection.yaml",
    "failure_handler" = "failure_handler.yaml",
    "pending_failed" = "pending_failed.yaml",
}

pub(crate) fn find_page(topic: &str) -> Option<&'static DocPage> {
    PAGES.iter().find(|page| page.topic == topic)
}

pub(crate) fn find_example(name: &str) -> Option<&'static ExampleSpec> {
    EXAMPLES.iter().find(|example| example.name == name || example.file == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_spec::{NoAttachments, SpecSource};

    #[test]
    fn embedded_pages_have_headings_and_examples_are_valid() {
        assert!(PAGES.iter().all(|page| !page.title().is_empty() && page.text.starts_with("# ")));
        for example in EXAMPLES {
            let source = SpecSource::new(example.file, example.text.as_bytes());
            assert!(windlass_spec::load_spec(source, &NoAttachments).is_ok(), "{}", example.file);
        }
    }
}
