//! `windlass slurm hpc`: lists the resources of a cluster and the partitions where jobs fit.

use crate::args::slurm::{HpcGenerateArgs, HpcMatchArgs, HpcPartitionsArgs, HpcSubcommand};
use crate::cluster_profiles;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::output_files;
use crate::slurm_packing::cluster_title;
use crate::ui::listing::{FieldValue, ListField, ListFields};
use crate::ui::table::TableColumn;
use serde_json::Value;
use std::fmt::Write as _;
use windlass_core::slurm::cluster_profile::{ClusterProfile, Partition};
use windlass_core::slurm::partition_fit::{self, PartitionRequest};
use windlass_slurm::cluster_discovery;
use windlass_slurm::slurm_client::SlurmClient;
use windlass_types::Bytes;

struct ClusterProfileRow {
    profile: ClusterProfile,
    file: String,
}

const PROFILE_FIELDS: &[ListField<ClusterProfileRow>] = &[
    ListField::new("name", |row: &ClusterProfileRow| (&row.profile.name).into())
        .column(TableColumn::text("NAME")),
    ListField::new("display_name", |row: &ClusterProfileRow| (&row.profile.display_name).into())
        .column(TableColumn::text("CLUSTER")),
    ListField::new("partitions", |row: &ClusterProfileRow| (row.profile.partitions.len() as u64).into())
        .column(TableColumn::number("PARTITIONS")),
    ListField::new("file", |row: &ClusterProfileRow| (&row.file).into()).column(TableColumn::text("FROM")),
];

const PARTITION_FIELDS: &[ListField<Partition>] = &[
    ListField::new("name", |one: &Partition| (&one.name).into()).column(TableColumn::text("PARTITION")),
    ListField::new("is_default", |one: &Partition| one.is_default.into()),
    ListField::new("is_up", |one: &Partition| one.is_up.into()),
    ListField::new("nodes", |one: &Partition| one.total_nodes().into()).column(TableColumn::number("NODES")),
    ListField::new("cpus_per_node", |one: &Partition| one.cpus_per_node.into())
        .column(TableColumn::number("CPUS")),
    ListField::new("memory", |one: &Partition| Bytes(one.memory_mb << 20).into())
        .column(TableColumn::number("MEMORY")),
    ListField::new("gpus_per_node", |one: &Partition| one.gpus_per_node.into())
        .column(TableColumn::number("GPUS")),
    ListField::new("gpu_type", |one: &Partition| one.gpu_type.clone().into()),
    ListField::new("max_walltime", |one: &Partition| one.max_walltime().into())
        .column(TableColumn::number("LONGEST")),
    ListField::new("shared", |one: &Partition| one.shared.into()),
    ListField::new("preempt_mode", |one: &Partition| one.preempt_mode.clone().into()),
    ListField::new("priority_tier", |one: &Partition| one.priority_tier.into()),
    ListField::table_only(TableColumn::text("REMARKS"), |one: &Partition| {
        FieldValue::from(partition_remarks(one))
    }),
];

pub(crate) fn run(ctx: &CliContext, verb: &HpcSubcommand) -> Result<CliExit, CliError> {
    match verb {
        HpcSubcommand::List => list_profiles(ctx)?,
        HpcSubcommand::Detect => detect_cluster(ctx)?,
        HpcSubcommand::Show(args) => {
            let profile = cluster_profiles::find_profile(ctx, args.name.as_deref())?;
            if ctx.ui.wants_json() {
                ctx.ui.print_json(&profile)?;
            } else {
                ctx.ui.print_note(&cluster_title(&profile));
                ctx.ui.print_list(&ListFields::new(PARTITION_FIELDS), profile.partitions)?;
            }
        }
        HpcSubcommand::Partitions(args) => list_partitions(ctx, args)?,
        HpcSubcommand::Match(args) => match_partitions(ctx, args)?,
        HpcSubcommand::Generate(args) => generate_profile(ctx, args)?,
    }
    Ok(CliExit::Success)
}

fn list_profiles(ctx: &CliContext) -> Result<(), CliError> {
    let mut rows: Vec<ClusterProfileRow> = cluster_profiles::list_profiles(&ctx.cwd)?
        .into_iter()
        .map(|(profile, file)| ClusterProfileRow { profile, file: file.display().to_string() })
        .collect();
    match cluster_discovery::discover_cluster(&SlurmClient::unlimited()) {
        Ok(profile) => rows.push(ClusterProfileRow { profile, file: "queried from Slurm".to_owned() }),
        Err(error) => ctx.ui.print_note(&error.to_string()),
    }
    ctx.ui.print_list(&ListFields::new(PROFILE_FIELDS), rows)?;
    Ok(())
}

fn detect_cluster(ctx: &CliContext) -> Result<(), CliError> {
    let profile = cluster_profiles::find_profile(ctx, None)?;
    if ctx.ui.wants_json() {
        return ctx.ui.print_json(&profile.name);
    }
    ctx.ui.print_line(&format!("{} ({})", profile.name, cluster_title(&profile)))
}

fn list_partitions(ctx: &CliContext, args: &HpcPartitionsArgs) -> Result<(), CliError> {
    let mut profile = cluster_profiles::find_profile(ctx, args.profile.name.as_deref())?;
    profile.partitions.retain(|one| (!args.gpu || one.has_gpus()) && (!args.shared || one.shared));
    ctx.ui.print_list(&ListFields::new(PARTITION_FIELDS), profile.partitions)?;
    Ok(())
}

fn match_partitions(ctx: &CliContext, args: &HpcMatchArgs) -> Result<(), CliError> {
    let profile = cluster_profiles::find_profile(ctx, args.profile.name.as_deref())?;
    let ask = PartitionRequest {
        cpus: args.cpus,
        memory: args.memory,
        gpus: args.gpus,
        nodes: args.nodes.max(1),
        walltime: args.walltime,
        account: "",
    };
    if let Err(unfit) = partition_fit::best_partition(&profile, &ask) {
        let message = format!("no partition of {} fits {ask}; {unfit}", cluster_title(&profile));
        return Err(CliError::user(message).with_hint("`windlass slurm hpc partitions` lists the partitions"));
    }
    let fitting: Vec<Partition> =
        partition_fit::fitting_partitions(&profile, &ask).into_iter().cloned().collect();
    ctx.ui.print_list(&ListFields::new(PARTITION_FIELDS), fitting)?;
    Ok(())
}

fn generate_profile(ctx: &CliContext, args: &HpcGenerateArgs) -> Result<(), CliError> {
    let mut profile = cluster_discovery::discover_cluster(&SlurmClient::unlimited())?;
    let called = if profile.display_name.is_empty() { "cluster" } else { &profile.display_name };
    profile.name = args.name.clone().unwrap_or_else(|| called.to_owned());
    profile.display_name = args.display_name.clone().unwrap_or(profile.display_name);
    if args.skip_stdby {
        profile.partitions.retain(|one| !["stdby", "standby"].iter().any(|word| one.name.contains(word)));
    }
    let value = serde_json::to_value(&profile)
        .map_err(|e| CliError::internal(format!("cannot write the profile: {e}")))?;
    let mut text = String::new();
    write_toml_table("", &value, &mut text);
    output_files::write_text(ctx, args.output.as_deref(), &text)
}

/// As TOML: plain values first (written as in JSON), then tables.
fn write_toml_table(path: &str, value: &Value, text: &mut String) {
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
                    write_toml_table(&path, item, text);
                }
            }
            table => {
                writeln!(text, "\n[{path}]").unwrap_or_default();
                write_toml_table(&path, table, text);
            }
        }
    }
}

/// Further properties of a partition, abbreviated.
fn partition_remarks(one: &Partition) -> String {
    let mut remarks = Vec::new();
    let mut add = |is: bool, text: String| {
        if is {
            remarks.push(text);
        }
    };
    add(one.is_default, "default".to_owned());
    add(!one.is_up, "accepts no jobs now".to_owned());
    add(!one.other_nodes.is_empty(), format!("nodes of {} kinds", one.other_nodes.len() + 1));
    add(!one.shared, "whole nodes".to_owned());
    add(one.preempt_mode.is_some(), "jobs may be preempted".to_owned());
    add(!one.allow_accounts.is_empty(), format!("accounts {}", one.allow_accounts.join(",")));
    add(!one.allow_groups.is_empty(), format!("groups {}", one.allow_groups.join(",")));
    remarks.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use windlass_core::slurm::cluster_profile::NodeShape;

    #[test]
    fn written_text_parses_back_to_same_value() {
        let partition = Partition {
            name: "a".into(),
            cpus_per_node: 8,
            memory_mb: 1000,
            allow_accounts: vec!["lab".into(), "shop".into()],
            other_nodes: vec![NodeShape { cpus_per_node: 64, memory_mb: 9, ..NodeShape::default() }],
            ..Partition::default()
        };
        let profile = ClusterProfile {
            name: "p".into(),
            description: "with \"quotes\"".into(),
            detect_env: BTreeMap::from([("CLUSTER".into(), "p".into())]),
            partitions: vec![partition.clone(), Partition { name: "b".into(), ..partition }],
            ..ClusterProfile::default()
        };
        let mut text = String::new();
        write_toml_table("", &serde_json::to_value(&profile).unwrap(), &mut text);
        let source = windlass_spec::SpecSource::new("p.toml", text.as_bytes());
        let read: ClusterProfile =
            serde_json::from_value(windlass_spec::document_to_json(source).unwrap()).unwrap();
        assert_eq!(read, profile, "{text}");
    }
}
