//! `windlass hpc`: what a cluster has, and where jobs fit.

use crate::args::slurm::{GenerateHpcArgs, HpcVerb, MatchArgs, PartitionsArgs};
use crate::clusters;
use crate::context::Context;
use crate::deliver;
use crate::error::{CliError, Exit};
use crate::packing::title;
use crate::ui::listing::{Datum, Field, Listing};
use crate::ui::table::Column;
use serde_json::Value;
use std::fmt::Write as _;
use windlass_core::slurm::fit::{self, Ask};
use windlass_core::slurm::profile::{Partition, Profile};
use windlass_slurm::calls::Slurm;
use windlass_slurm::discover;
use windlass_types::Bytes;

struct Row {
    profile: Profile,
    file: String,
}

const PROFILES: &[Field<Row>] = &[
    Field::new("name", |row: &Row| (&row.profile.name).into()).column(Column::text("NAME")),
    Field::new("display_name", |row: &Row| (&row.profile.display_name).into())
        .column(Column::text("CLUSTER")),
    Field::new("partitions", |row: &Row| (row.profile.partitions.len() as u64).into())
        .column(Column::number("PARTITIONS")),
    Field::new("file", |row: &Row| (&row.file).into()).column(Column::text("FROM")),
];

const PARTITIONS: &[Field<Partition>] = &[
    Field::new("name", |one: &Partition| (&one.name).into()).column(Column::text("PARTITION")),
    Field::new("is_default", |one: &Partition| one.is_default.into()),
    Field::new("is_up", |one: &Partition| one.is_up.into()),
    Field::new("nodes", |one: &Partition| one.all_nodes().into()).column(Column::number("NODES")),
    Field::new("cpus_per_node", |one: &Partition| one.cpus_per_node.into()).column(Column::number("CPUS")),
    Field::new("memory", |one: &Partition| Bytes(one.memory_mb << 20).into())
        .column(Column::number("MEMORY")),
    Field::new("gpus_per_node", |one: &Partition| one.gpus_per_node.into()).column(Column::number("GPUS")),
    Field::new("gpu_type", |one: &Partition| one.gpu_type.clone().into()),
    Field::new("max_walltime", |one: &Partition| one.max_walltime().into()).column(Column::number("LONGEST")),
    Field::new("shared", |one: &Partition| one.shared.into()),
    Field::new("preempt_mode", |one: &Partition| one.preempt_mode.clone().into()),
    Field::new("priority_tier", |one: &Partition| one.priority_tier.into()),
    Field::shown(Column::text("REMARKS"), |one: &Partition| Datum::from(remarks(one))),
];

pub(crate) fn run(ctx: &Context, verb: &HpcVerb) -> Result<Exit, CliError> {
    match verb {
        HpcVerb::List => list(ctx)?,
        HpcVerb::Detect => detect(ctx)?,
        HpcVerb::Show(args) => {
            let profile = clusters::find(ctx, args.name.as_deref())?;
            if ctx.ui.json_wanted() {
                ctx.ui.print_json(&profile)?;
            } else {
                ctx.ui.note(&title(&profile));
                ctx.ui.print_list(&Listing::new(PARTITIONS), profile.partitions)?;
            }
        }
        HpcVerb::Partitions(args) => partitions(ctx, args)?,
        HpcVerb::Match(args) => matching(ctx, args)?,
        HpcVerb::Generate(args) => generate(ctx, args)?,
    }
    Ok(Exit::Success)
}

fn list(ctx: &Context) -> Result<(), CliError> {
    let mut rows: Vec<Row> = clusters::all(&ctx.cwd)?
        .into_iter()
        .map(|(profile, file)| Row { profile, file: file.display().to_string() })
        .collect();
    match discover::discover(&Slurm::by_hand()) {
        Ok(profile) => rows.push(Row { profile, file: "asked of Slurm".to_owned() }),
        Err(error) => ctx.ui.note(&error.to_string()),
    }
    ctx.ui.print_list(&Listing::new(PROFILES), rows)?;
    Ok(())
}

fn detect(ctx: &Context) -> Result<(), CliError> {
    let profile = clusters::find(ctx, None)?;
    if ctx.ui.json_wanted() {
        return ctx.ui.print_json(&profile.name);
    }
    ctx.ui.print_line(&format!("{} ({})", profile.name, title(&profile)))
}

fn partitions(ctx: &Context, args: &PartitionsArgs) -> Result<(), CliError> {
    let mut profile = clusters::find(ctx, args.of.name.as_deref())?;
    profile.partitions.retain(|one| (!args.gpu || one.has_gpus()) && (!args.shared || one.shared));
    ctx.ui.print_list(&Listing::new(PARTITIONS), profile.partitions)?;
    Ok(())
}

fn matching(ctx: &Context, args: &MatchArgs) -> Result<(), CliError> {
    let profile = clusters::find(ctx, args.of.name.as_deref())?;
    let ask = Ask {
        cpus: args.cpus,
        memory: args.memory,
        gpus: args.gpus,
        nodes: args.nodes.max(1),
        walltime: args.walltime,
        account: "",
    };
    if let Err(unfit) = fit::best(&profile, &ask) {
        let message = format!("no partition of {} can hold {ask}; {unfit}", title(&profile));
        return Err(CliError::user(message).with_hint("`windlass hpc partitions` shows what there is"));
    }
    let fitting: Vec<Partition> = fit::fitting(&profile, &ask).into_iter().cloned().collect();
    ctx.ui.print_list(&Listing::new(PARTITIONS), fitting)?;
    Ok(())
}

fn generate(ctx: &Context, args: &GenerateHpcArgs) -> Result<(), CliError> {
    let mut profile = discover::discover(&Slurm::by_hand())?;
    let called = if profile.display_name.is_empty() { "cluster" } else { &profile.display_name };
    profile.name = args.name.clone().unwrap_or_else(|| called.to_owned());
    profile.display_name = args.display_name.clone().unwrap_or(profile.display_name);
    if args.skip_stdby {
        profile.partitions.retain(|one| !["stdby", "standby"].iter().any(|word| one.name.contains(word)));
    }
    let value = serde_json::to_value(&profile)
        .map_err(|e| CliError::internal(format!("the profile cannot be written: {e}")))?;
    let mut text = String::new();
    write_table("", &value, &mut text);
    deliver::text(ctx, args.output.as_deref(), &text)
}

/// As TOML: plain values first, which JSON writes in the same way, then tables.
fn write_table(path: &str, value: &Value, text: &mut String) {
    let Value::Object(fields) = value else { return };
    let is_table = |value: &Value| match value {
        Value::Object(_) => true,
        Value::Array(items) => items.iter().any(Value::is_object),
        _ => false,
    };
    for (key, value) in fields.iter().filter(|(_, value)| !is_table(value)) {
        writeln!(text, "{key} = {value}").unwrap_or_default();
    }
    for (key, value) in fields.iter().filter(|(_, value)| is_table(value)) {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match value {
            Value::Array(items) => {
                for item in items {
                    writeln!(text, "\n[[{path}]]").unwrap_or_default();
                    write_table(&path, item, text);
                }
            }
            table => {
                writeln!(text, "\n[{path}]").unwrap_or_default();
                write_table(&path, table, text);
            }
        }
    }
}

/// What else is worth knowing about it, in few words.
fn remarks(one: &Partition) -> String {
    let mut remarks = Vec::new();
    let mut add = |is: bool, text: String| {
        if is {
            remarks.push(text);
        }
    };
    add(one.is_default, "default".to_owned());
    add(!one.is_up, "takes no jobs now".to_owned());
    add(!one.other_nodes.is_empty(), format!("nodes of {} kinds", one.other_nodes.len() + 1));
    add(!one.shared, "whole nodes".to_owned());
    add(one.preempt_mode.is_some(), "jobs may be driven out".to_owned());
    add(!one.allow_accounts.is_empty(), format!("accounts {}", one.allow_accounts.join(",")));
    add(!one.allow_groups.is_empty(), format!("groups {}", one.allow_groups.join(",")));
    remarks.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use windlass_core::slurm::profile::Shape;

    #[test]
    fn what_is_written_is_read_again() {
        let partition = Partition {
            name: "a".into(),
            cpus_per_node: 8,
            memory_mb: 1000,
            allow_accounts: vec!["lab".into(), "shop".into()],
            other_nodes: vec![Shape { cpus_per_node: 64, memory_mb: 9, ..Shape::default() }],
            ..Partition::default()
        };
        let profile = Profile {
            name: "p".into(),
            description: "with \"quotes\"".into(),
            detect_env: BTreeMap::from([("CLUSTER".into(), "p".into())]),
            partitions: vec![partition.clone(), Partition { name: "b".into(), ..partition }],
            ..Profile::default()
        };
        let mut text = String::new();
        write_table("", &serde_json::to_value(&profile).unwrap(), &mut text);
        let source = windlass_spec::Source::new("p.toml", text.as_bytes());
        let read: Profile = serde_json::from_value(windlass_spec::to_json(source).unwrap()).unwrap();
        assert_eq!(read, profile, "{text}");
    }
}
