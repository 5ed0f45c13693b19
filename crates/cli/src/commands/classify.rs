//! `windlass classify`: of what class a failure is, which rule says so, and which failures are one with it.

use crate::args::Format;
use crate::args::classify::ClassifyArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::rules;
use crate::ui::listing::{Datum, Field, Listing};
use crate::ui::style::Tone;
use crate::ui::table::Column;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::Path;
use windlass_core::classify::{Cause, Classified, Classifier, Evidence, Origin, Rule};
use windlass_core::lines;
use windlass_core::redact::Redactor;
use windlass_core::signature::Signature;
use windlass_types::FailureClass;
use windlass_types::work::return_code;

/// So much of the end of a log is read; what counts of it is less.
const MOST_READ: u64 = 64 * 1024;

/// What is said about one log.
struct Verdict {
    path: String,
    found: Classified,
    /// Of the rule that spoke.
    origin: Option<Origin>,
    signature: Signature,
}

const FIELDS: &[Field<Verdict>] = &[
    Field::new("path", |v: &Verdict| (&v.path).into()).column(Column::elastic("LOG")),
    Field::new("class", |v: &Verdict| class(v.found.class)).column(Column::text("CLASS")),
    Field::new("rule", |v: &Verdict| v.found.rule.as_ref().into()).column(Column::text("RULE")),
    Field::new("origin", |v: &Verdict| v.origin.map(origin).into()),
    Field::new("why", |v: &Verdict| (&v.found.why).into()),
    Field::new("line", |v: &Verdict| v.found.line.as_ref().into()),
    Field::new("signature", |v: &Verdict| (&v.signature.key).into()).column(Column::text("SIGNATURE")),
    Field::new("message", |v: &Verdict| (&v.signature.message).into()).column(Column::elastic("MESSAGE")),
];

const RULES: &[Field<(Rule, Origin)>] = &[
    Field::new("name", |(rule, _): &(Rule, Origin)| (&rule.name).into()).column(Column::text("NAME")),
    Field::new("origin", |(_, from): &(Rule, Origin)| origin(*from).into()).column(Column::text("ORIGIN")),
    Field::new("class", |(rule, _): &(Rule, Origin)| class(rule.class)).column(Column::text("CLASS")),
    Field::new("means", |(rule, _): &(Rule, Origin)| (&rule.means).into()).column(Column::elastic("MEANS")),
    Field::new("on", |(rule, _): &(Rule, Origin)| json(&rule.on)),
    Field::new("signals", |(rule, _): &(Rule, Origin)| json(&rule.signals)),
    Field::new("exit_codes", |(rule, _): &(Rule, Origin)| json(&rule.exit_codes)),
    Field::new("stderr", |(rule, _): &(Rule, Origin)| json(&rule.stderr)),
    Field::new("near", |(rule, _): &(Rule, Origin)| json(&rule.near)),
    Field::new("of_node", |(rule, _): &(Rule, Origin)| rule.of_node.into()),
    Field::shown(Column::elastic("WHEN"), |(rule, _): &(Rule, Origin)| when(rule).into()),
];

pub(crate) fn run(ctx: &Context, args: &ClassifyArgs) -> Result<Exit, CliError> {
    let file = args.rules_file.as_ref().map(|path| ctx.cwd.join(path));
    let classifier = rules::classifier(file.as_deref())?;
    if args.rules {
        let rules = classifier.rules().map(|(rule, origin)| (rule.clone(), origin)).collect();
        ctx.ui.print_list(&Listing::new(RULES), rules)?;
        return Ok(Exit::Success);
    }
    if args.return_code == Some(0) && args.signal.is_none() && !args.oom && !args.timeout {
        return Err(CliError::user("a job that ended with 0 did not fail")
            .with_hint("--return-code says with which other code it ended"));
    }
    let mut verdicts = Vec::new();
    for log in &args.logs {
        verdicts.push(judge(&classifier, args, log, &ctx.cwd)?);
    }
    let listing = Listing::new(FIELDS);
    if let ([_], Format::Table) = (&*verdicts, ctx.ui.format()) {
        verdicts.into_iter().try_for_each(|verdict| ctx.ui.print_record(&listing, verdict))?;
    } else {
        ctx.ui.print_list(&listing, verdicts)?;
    }
    Ok(Exit::Success)
}

fn judge(classifier: &Classifier, args: &ClassifyArgs, log: &Path, cwd: &Path) -> Result<Verdict, CliError> {
    let text =
        last_words(log, cwd).map_err(|e| CliError::user(format!("cannot read {}: {e}", log.display())))?;
    let evidence = evidence(args, &text);
    let found = classifier.classify(&evidence);
    let signature = Signature::of(&evidence, &found);
    let speaks = |(rule, _): &(&Rule, Origin)| found.rule.as_ref() == Some(&rule.name);
    let origin = classifier.rules().find(speaks).map(|(_, origin)| origin);
    Ok(Verdict { path: log.display().to_string(), found, origin, signature })
}

/// What would be known of a job that left this log and ended as the arguments say.
fn evidence<'t>(args: &ClassifyArgs, tail: &'t str) -> Evidence<'t> {
    let (cause, usual) = match args.signal {
        _ if args.oom => (Cause::OutOfMemory, return_code::OUT_OF_MEMORY),
        _ if args.timeout => (Cause::Timeout, return_code::TIMEOUT),
        Some(signal) => (Cause::Itself, 128 + signal.number()),
        None => (Cause::Itself, 1),
    };
    let signal = args.signal.map(windlass_types::Signal::number);
    Evidence { signal, cause, ..Evidence::of_exit(args.return_code.unwrap_or(usual), tail) }
}

/// What a worker would report of the log: its last lines, without secrets.
fn last_words(log: &Path, cwd: &Path) -> io::Result<String> {
    let (bytes, torn) =
        if log == Path::new("-") { read_end(io::stdin().lock())? } else { read_file(&cwd.join(log))? };
    let text = String::from_utf8_lossy(&bytes);
    Ok(lines::last_words(&Redactor::default().redact(&text), torn).to_owned())
}

/// The end of a file, and whether something comes before it.
fn read_file(path: &Path) -> io::Result<(Vec<u8>, bool)> {
    let mut file = File::open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        // A pipe, or what is no file at all and says so.
        return read_end(file);
    }
    let skipped = meta.len().saturating_sub(MOST_READ);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(MOST_READ).read_to_end(&mut bytes)?;
    Ok((bytes, skipped > 0))
}

/// The end of what cannot be sought in; no more of it is kept than is needed.
fn read_end(mut input: impl Read) -> io::Result<(Vec<u8>, bool)> {
    let (mut bytes, mut torn) = (Vec::new(), false);
    loop {
        if input.by_ref().take(MOST_READ).read_to_end(&mut bytes)? == 0 {
            return Ok((bytes, torn));
        }
        let spare = bytes.len().saturating_sub(MOST_READ as usize);
        torn |= spare > 0;
        bytes.drain(..spare);
    }
}

const fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Own => "own",
        Origin::Default => "default",
    }
}

pub(crate) const fn class(class: FailureClass) -> Datum {
    let tone = match class {
        FailureClass::Transient | FailureClass::Infrastructure => Some(Tone::Warn),
        FailureClass::Unknown => None,
        _ => Some(Tone::Bad),
    };
    Datum::Word(class.as_str(), tone)
}

fn json(value: &impl serde::Serialize) -> Datum {
    // Lists of words and numbers always have a JSON.
    serde_json::to_value(value).map_or(Datum::Nothing, Datum::Json)
}

/// The conditions of a rule in short.
fn when(rule: &Rule) -> String {
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
    fn of_what_streams_by_only_the_end_is_kept() {
        let long: Vec<u8> = (0..200_000u32).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        let (bytes, torn) = read_end(&*long).unwrap();
        assert!(torn && bytes.len() as u64 == MOST_READ && bytes.ends_with(b"199999\n"));
        assert_eq!(read_end(&b"short"[..]).unwrap(), (b"short".to_vec(), false));
    }
}
