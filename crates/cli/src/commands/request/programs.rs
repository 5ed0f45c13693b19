//! The programs that the jobs of a request run, as text.

use crate::ui::text;
use serde_json::Value;
use windlass_types::payload::ManifestStep;
use windlass_types::requests::Request;

/// Maximum length of a command.
const MAX_COMMAND_LENGTH: usize = 70;

/// One text per step: `RECO: cat …`, or `RECO: simulated`.
pub(super) fn describe_programs(request: &Request) -> Vec<String> {
    // A server hides the commands of other users.
    if let Some(hidden) = request.payload_config.get("hidden").and_then(Value::as_str) {
        return vec![hidden.to_owned()];
    }
    match windlass_requests::payload_steps(request) {
        Ok(steps) => steps.iter().map(describe_step).collect(),
        Err(fault) => vec![format!("cannot run: {fault}")],
    }
}

fn describe_step(step: &ManifestStep) -> String {
    let Some(command) = &step.command else {
        return format!("{}: simulated, the program itself is not run", step.name);
    };
    let line = command.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{}: {}", step.name, text::truncate(&line, MAX_COMMAND_LENGTH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn plan_distinguishes_commands_from_simulated_steps() {
        let request = |config: serde_json::Value| -> Request {
            let document = json!({
                "request_name": "r", "generation": {"events": 10}, "output_datasets": ["/A/B-v1/GEN"],
                "payload_config": config,
            });
            let window = windlass_core::adaptive::MemoryWindow::default();
            let read = windlass_server::requests::submit::parse_request(
                &document,
                "me",
                window,
                windlass_types::Timestamp(0),
            );
            read.unwrap()
        };
        let mixed = json!({"steps": [{"name": "GEN", "command": "make\n  events"}, {"name": "RECO", "simulation": {}}]});
        assert_eq!(
            describe_programs(&request(mixed)),
            ["GEN: make events", "RECO: simulated, the program itself is not run"]
        );
        assert_eq!(
            describe_programs(&request(json!({"simulation": {}}))),
            ["GEN: simulated, the program itself is not run"]
        );
    }
}
