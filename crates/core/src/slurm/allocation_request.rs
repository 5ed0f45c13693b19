//! Allocation requests, from a scheduler of a workflow and the defaults of the workflow.

use serde_json::Value;
use std::collections::BTreeMap;
use windlass_types::settings::SlurmScheduler;
use windlass_types::slurm::AllocationRequest;

/// Options of an action or user for workers in an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocationWorkerOptions {
    pub one_worker_per_node: bool,
    pub max_parallel_jobs: Option<u32>,
}

/// Builds the request. Settings of the scheduler override those of the workflow (`slurm_defaults`). Fails on
/// invalid settings.
pub fn build_request(
    scheduler: &SlurmScheduler,
    defaults: &BTreeMap<String, Value>,
    group: AllocationWorkerOptions,
) -> Result<AllocationRequest, String> {
    let name = &scheduler.name;
    let walltime = scheduler
        .walltime()
        .filter(|walltime| !walltime.is_zero())
        .ok_or_else(|| format!("the walltime `{}` of scheduler `{name}` is invalid", scheduler.walltime))?;
    if scheduler.nodes == 0 {
        return Err(format!("scheduler `{name}` requests no nodes"));
    }
    let said = [
        ("account", !scheduler.account.is_empty()),
        ("qos", scheduler.qos.is_some()),
        ("tmp", scheduler.tmp.is_some()),
        ("ntasks-per-node", scheduler.ntasks_per_node.is_some()),
    ];
    let mut options = BTreeMap::new();
    for (key, value) in defaults {
        let key = key.trim_start_matches('-').to_ascii_lowercase().replace('_', "-");
        if said.contains(&(key.as_str(), true)) {
            continue;
        }
        let value = match value {
            Value::Null | Value::Bool(false) => continue,
            Value::Bool(true) => String::new(),
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Array(_) | Value::Object(_) => {
                return Err(format!("`{key}` of slurm_defaults is not a text, a number or a flag"));
            }
        };
        options.insert(key, value);
    }
    Ok(AllocationRequest {
        scheduler: name.clone(),
        account: scheduler.account.clone(),
        partition: scheduler.partition.clone(),
        qos: scheduler.qos.clone(),
        nodes: scheduler.nodes,
        ntasks_per_node: scheduler.ntasks_per_node,
        mem: scheduler.mem.clone(),
        gres: scheduler.gres.clone(),
        tmp: scheduler.tmp.clone(),
        walltime,
        options,
        extra: scheduler.extra.clone(),
        serialize: scheduler.serialize_allocations,
        one_worker_per_node: group.one_worker_per_node,
        max_parallel_jobs: group.max_parallel_jobs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    fn defaults(value: Value) -> BTreeMap<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn scheduler_fields_precede_defaults() {
        let scheduler = SlurmScheduler {
            name: "night".into(),
            account: "lab".into(),
            partition: Some("long".into()),
            nodes: 3,
            walltime: "02:00:00".into(),
            serialize_allocations: true,
            ..SlurmScheduler::default()
        };
        let said = defaults(json!({
            "account": "other", "qos": "high", "exclusive": true, "hold": false, "mail_type": "END", "nice": 5,
            "reservation": null,
        }));
        let group = AllocationWorkerOptions { one_worker_per_node: true, max_parallel_jobs: Some(4) };
        let made = build_request(&scheduler, &said, group).unwrap();
        assert_eq!((made.scheduler.as_str(), made.account.as_str(), made.nodes), ("night", "lab", 3));
        assert_eq!((made.partition.as_deref(), made.walltime), (Some("long"), Duration::from_hours(2)));
        assert!(made.serialize && made.one_worker_per_node && made.max_parallel_jobs == Some(4));
        let options: Vec<(&str, &str)> =
            made.options.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(options, [("exclusive", ""), ("mail-type", "END"), ("nice", "5"), ("qos", "high")]);
        let qos = SlurmScheduler { qos: Some("low".into()), ..scheduler };
        let made = build_request(&qos, &said, AllocationWorkerOptions::default()).unwrap();
        assert_eq!((made.qos.as_deref(), made.options.get("qos")), (Some("low"), None));
    }

    #[test]
    fn invalid_allocation_requests_are_rejected() {
        let plain = SlurmScheduler { name: "night".into(), ..SlurmScheduler::default() };
        let nothing = BTreeMap::new();
        for (scheduler, said, why) in [
            (SlurmScheduler { walltime: "soon".into(), ..plain.clone() }, nothing.clone(), "walltime `soon`"),
            (SlurmScheduler { walltime: "0".into(), ..plain.clone() }, nothing.clone(), "walltime `0`"),
            (SlurmScheduler { nodes: 0, ..plain.clone() }, nothing, "no nodes"),
            (plain, defaults(json!({ "nice": [1] })), "`nice` of slurm_defaults"),
        ] {
            let error = build_request(&scheduler, &said, AllocationWorkerOptions::default()).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
