//! `windlass failures classify`: prints the class of a failure, the rule that determined it, and the failures
//! with the same signature.

use crate::args::OutputFormat;
use crate::args::classify::ClassifyArgs;
use crate::classification_rules;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::ui::listing::{FieldValue, ListField, ListFields};
use crate::ui::style::TextTone;
use crate::ui::table::TableColumn;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::Path;
use windlass_core::classify::{
    ClassificationRule, FailureClassification, FailureClassifier, FailureEvidence, RuleOrigin,
    TerminationCause,
};
use windlass_core::failure_signature::FailureSignature;
use windlass_core::log_lines;
use windlass_core::redact::SecretRedactor;
use windlass_types::FailureClass;
use windlass_types::worker_messages::return_code;

/// Number of bytes read from the end of a log; fewer are used.
const MAX_READ: u64 = 64 * 1024;

/// Result for one log.
struct LogClassification {
    path: String,
    classified: FailureClassification,
    /// Of the rule that matched.
    origin: Option<RuleOrigin>,
    signature: FailureSignature,
}

const FIELDS: &[ListField<LogClassification>] = &[
    ListField::new("path", |v: &LogClassification| (&v.path).into()).column(TableColumn::flexible("LOG")),
    ListField::new("class", |v: &LogClassification| class_value(v.classified.class))
        .column(TableColumn::text("CLASS")),
    ListField::new("rule", |v: &LogClassification| v.classified.rule.as_ref().into())
        .column(TableColumn::text("RULE")),
    ListField::new("origin", |v: &LogClassification| v.origin.map(origin_name).into()),
    ListField::new("why", |v: &LogClassification| (&v.classified.why).into()),
    ListField::new("line", |v: &LogClassification| v.classified.line.as_ref().into()),
    ListField::new("signature", |v: &LogClassification| (&v.signature.key).into())
        .column(TableColumn::text("SIGNATURE")),
    ListField::new("message", |v: &LogClassification| (&v.signature.message).into())
        .column(TableColumn::flexible("MESSAGE")),
];

const RULE_FIELDS: &[ListField<(ClassificationRule, RuleOrigin)>] = &[
    ListField::new("name", |(rule, _): &(ClassificationRule, RuleOrigin)| (&rule.name).into())
        .column(TableColumn::text("NAME")),
    ListField::new("origin", |(_, from): &(ClassificationRule, RuleOrigin)| origin_name(*from).into())
        .column(TableColumn::text("ORIGIN")),
    ListField::new("class", |(rule, _): &(ClassificationRule, RuleOrigin)| class_value(rule.class))
        .column(TableColumn::text("CLASS")),
    ListField::new("means", |(rule, _): &(ClassificationRule, RuleOrigin)| (&rule.means).into())
        .column(TableColumn::flexible("MEANS")),
    ListField::new("on", |(rule, _): &(ClassificationRule, RuleOrigin)| json_value(&rule.on)),
    ListField::new("signals", |(rule, _): &(ClassificationRule, RuleOrigin)| json_value(&rule.signals)),
    ListField::new("exit_codes", |(rule, _): &(ClassificationRule, RuleOrigin)| json_value(&rule.exit_codes)),
    ListField::new("stderr", |(rule, _): &(ClassificationRule, RuleOrigin)| json_value(&rule.stderr)),
    ListField::new("near", |(rule, _): &(ClassificationRule, RuleOrigin)| json_value(&rule.near)),
    ListField::new("of_node", |(rule, _): &(ClassificationRule, RuleOrigin)| rule.of_node.into()),
    ListField::table_only(TableColumn::flexible("WHEN"), |(rule, _): &(ClassificationRule, RuleOrigin)| {
        render_conditions(rule).into()
    }),
];

pub(crate) fn run(ctx: &CliContext, args: &ClassifyArgs) -> Result<CliExit, CliError> {
    let file = args.rules_file.as_ref().map(|path| ctx.cwd.join(path));
    let classifier = classification_rules::build_classifier(file.as_deref())?;
    if args.rules {
        let rules = classifier.rules().map(|(rule, origin)| (rule.clone(), origin)).collect();
        ctx.ui.print_list(&ListFields::new(RULE_FIELDS), rules)?;
        return Ok(CliExit::Success);
    }
    if args.return_code == Some(0) && args.signal.is_none() && !args.oom && !args.timeout {
        return Err(CliError::user("a job that exited with 0 did not fail")
            .with_hint("--return-code sets another exit code"));
    }
    let mut classifications = Vec::new();
    for log in &args.logs {
        classifications.push(classify_log(&classifier, args, log, &ctx.cwd)?);
    }
    let listing = ListFields::new(FIELDS);
    if let ([_], OutputFormat::Table) = (&*classifications, ctx.ui.format()) {
        classifications
            .into_iter()
            .try_for_each(|classification| ctx.ui.print_record(&listing, classification))?;
    } else {
        ctx.ui.print_list(&listing, classifications)?;
    }
    Ok(CliExit::Success)
}

fn classify_log(
    classifier: &FailureClassifier,
    args: &ClassifyArgs,
    log: &Path,
    cwd: &Path,
) -> Result<LogClassification, CliError> {
    let text =
        log_excerpt(log, cwd).map_err(|e| CliError::user(format!("cannot read {}: {e}", log.display())))?;
    let evidence = build_evidence(args, &text);
    let found = classifier.classify(&evidence);
    let signature = FailureSignature::from_classification(&evidence, &found);
    let speaks = |(rule, _): &(&ClassificationRule, RuleOrigin)| found.rule.as_ref() == Some(&rule.name);
    let origin = classifier.rules().find(speaks).map(|(_, origin)| origin);
    Ok(LogClassification { path: log.display().to_string(), classified: found, origin, signature })
}

/// The failure record of a job that left this log and ended as the arguments say.
fn build_evidence<'t>(args: &ClassifyArgs, tail: &'t str) -> FailureEvidence<'t> {
    let (cause, usual) = match args.signal {
        _ if args.oom => (TerminationCause::OutOfMemory, return_code::OUT_OF_MEMORY),
        _ if args.timeout => (TerminationCause::Timeout, return_code::TIMEOUT),
        Some(signal) => (TerminationCause::Itself, 128 + signal.number()),
        None => (TerminationCause::Itself, 1),
    };
    let signal = args.signal.map(windlass_types::Signal::number);
    FailureEvidence { signal, cause, ..FailureEvidence::from_exit(args.return_code.unwrap_or(usual), tail) }
}

/// The excerpt that a worker would report: the last lines, without secrets.
fn log_excerpt(log: &Path, cwd: &Path) -> io::Result<String> {
    let (bytes, torn) =
        if log == Path::new("-") { read_stream_end(io::stdin().lock())? } else { read_file(&cwd.join(log))? };
    let text = String::from_utf8_lossy(&bytes);
    Ok(log_lines::log_tail(&SecretRedactor::default().redact(&text), torn).to_owned())
}

/// The end of a file, and whether anything precedes it.
fn read_file(path: &Path) -> io::Result<(Vec<u8>, bool)> {
    let mut file = File::open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        // A pipe, or something that cannot be read as a file and reports that.
        return read_stream_end(file);
    }
    let skipped = meta.len().saturating_sub(MAX_READ);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(MAX_READ).read_to_end(&mut bytes)?;
    Ok((bytes, skipped > 0))
}

/// The end of an unseekable stream; keeps no more of it than needed.
fn read_stream_end(mut input: impl Read) -> io::Result<(Vec<u8>, bool)> {
    let (mut bytes, mut torn) = (Vec::new(), false);
    loop {
        if input.by_ref().take(MAX_READ).read_to_end(&mut bytes)? == 0 {
            return Ok((bytes, torn));
        }
        let spare = bytes.len().saturating_sub(MAX_READ as usize);
        torn |= spare > 0;
        bytes.drain(..spare);
    }
}

const fn origin_name(origin: RuleOrigin) -> &'static str {
    match origin {
        RuleOrigin::Own => "own",
        RuleOrigin::Default => "default",
    }
}

pub(crate) const fn class_value(class: FailureClass) -> FieldValue {
    let tone = match class {
        FailureClass::Transient | FailureClass::Infrastructure => Some(TextTone::Warn),
        FailureClass::Unknown => None,
        _ => Some(TextTone::Bad),
    };
    FieldValue::Word(class.as_str(), tone)
}

fn json_value(value: &impl serde::Serialize) -> FieldValue {
    // Lists of words and numbers can always be written as JSON.
    serde_json::to_value(value).map_or(FieldValue::Empty, FieldValue::Json)
}

/// The conditions of a rule, abbreviated.
fn render_conditions(rule: &ClassificationRule) -> String {
    let mut parts: Vec<String> = rule.on.iter().map(|cause| cause.as_str().replace('_', " ")).collect();
    parts.extend(rule.signals.iter().map(ToString::to_string));
    parts.extend(rule.exit_codes.iter().map(|code| format!("exit code {code}")));
    parts.extend(rule.stderr.first().map(|first| match rule.stderr.len() {
        1 => format!("`{first}`"),
        n => format!("`{first}` and {} more", n - 1),
    }));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_reader_keeps_only_end_of_long_input() {
        let long: Vec<u8> = (0..200_000u32).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        let (bytes, torn) = read_stream_end(&*long).unwrap();
        assert!(torn && bytes.len() as u64 == MAX_READ && bytes.ends_with(b"199999\n"));
        assert_eq!(read_stream_end(&b"short"[..]).unwrap(), (b"short".to_vec(), false));
    }
}
