//! The recovery state of a request as text, and the next commands.

use crate::ui::text;
use windlass_api::requests::{RequestRecoveryState, RequestSummary};
use windlass_types::requests::RequestStatus;

/// The first line about a request: `reco is held since …: 3 of 12 work units failed (25 %) …`
pub(super) fn render_headline(line: &RequestSummary, state: &RequestRecoveryState) -> String {
    let since = text::render_time(line.since);
    let reason = line.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let paused = state
        .paused_since
        .map(|at| format!("; paused since {}, because many attempts fail alike", text::render_time(at)));
    let silent = state
        .backend_silent_since
        .map(|at| format!("; its backend has not responded since {}", text::render_time(at)));
    format!(
        "{} is {} since {since}{reason}{}{}",
        line.request_name,
        line.status,
        paused.unwrap_or_default(),
        silent.unwrap_or_default()
    )
}

/// Changes made by operators, and automatic ones.
pub(super) fn render_changes(state: &RequestRecoveryState) -> Option<String> {
    let overrides = &state.overrides;
    let bans: Vec<&str> = state.site_bans.iter().map(|ban| ban.site_name.as_str()).collect();
    let parts = [
        (state.rescues_used > 0).then(|| text::render_count(u64::from(state.rescues_used), "rescue")),
        (!bans.is_empty()).then(|| format!("not at {}", bans.join(", "))),
        overrides.memory_mb.map(|memory| format!("{memory} MB")),
        overrides.time_per_event_sec.map(|seconds| format!("{seconds} s per event")),
        overrides.retry_count.map(|count| format!("{count} retries")),
        overrides.error_hold_threshold.map(|share| format!("held above {} %", share * 100.0)),
        overrides
            .max_rescue_attempts
            .map(|count| format!("at most {}", text::render_count(u64::from(count), "rescue"))),
        (state.outputs_given_up > 0).then(|| {
            format!(
                "{} for its outputs failed permanently",
                text::render_count(state.outputs_given_up, "step")
            )
        }),
        (state.excluded_files > 0)
            .then(|| format!("without {}", text::render_count(state.excluded_files, "input file"))),
    ];
    let shown: Vec<String> = parts.into_iter().flatten().collect();
    (!shown.is_empty()).then(|| shown.join("; "))
}

/// Commands for the operator.
pub(super) fn next_steps(line: &RequestSummary, state: &RequestRecoveryState) -> Option<String> {
    let name = text::shell_quote(&line.request_name);
    match line.status {
        status if status != RequestStatus::Held && state.outputs_given_up > 0 => {
            Some(format!("windlass request release {name}, to retry the handling of its outputs"))
        }
        RequestStatus::Held => {
            Some(format!("windlass request errors {name}, windlass request release {name}"))
        }
        RequestStatus::Active if state.paused_since.is_some() => {
            Some(format!("windlass request errors {name}, windlass request release {name} resumes it"))
        }
        RequestStatus::Active | RequestStatus::Stopping if state.backend_silent_since.is_some() => {
            Some(format!("windlass request restart {name} --lost, if its backend is lost"))
        }
        RequestStatus::Failed if state.output_state.as_deref() == Some("active") => {
            Some(format!("windlass request restart {name}, windlass request invalidate {name}"))
        }
        RequestStatus::Failed if state.output_state.as_deref() == Some("superseded") => {
            Some(format!("windlass request invalidate {name}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::Timestamp;
    use windlass_types::requests::RequestOverrides;

    fn line(status: RequestStatus) -> RequestSummary {
        let at: Timestamp = "2026-11-16T01:02:03Z".parse().unwrap();
        RequestSummary {
            request_name: "reco".to_owned(),
            status,
            priority: 1,
            urgent: false,
            requestor: "ana".to_owned(),
            campaign: None,
            input_dataset: None,
            output_datasets: Vec::new(),
            created_at: at,
            updated_at: at,
            since: at,
            reason: Some("3 of 12 work units failed".to_owned()),
            version: 1,
        }
    }

    #[test]
    fn recovery_headline_names_decision_and_commands() {
        let state = RequestRecoveryState::default();
        let shown = render_headline(&line(RequestStatus::Held), &state);
        assert_eq!(shown, "reco is held since 2026-11-16 01:02:03Z: 3 of 12 work units failed");
        let next = |status, state: &RequestRecoveryState| next_steps(&line(status), state);
        let expected = "windlass request errors reco, windlass request release reco";
        assert_eq!(next(RequestStatus::Held, &state).as_deref(), Some(expected));
        assert_eq!(next(RequestStatus::Active, &state), None);
        let given_up = RequestRecoveryState { outputs_given_up: 2, ..RequestRecoveryState::default() };
        assert!(next(RequestStatus::Aborted, &given_up).unwrap().contains("windlass request release reco"));
        assert_eq!(render_changes(&given_up).as_deref(), Some("2 steps for its outputs failed permanently"));
        let silent = RequestRecoveryState { backend_silent_since: Some(Timestamp(0)), ..state };
        assert!(next(RequestStatus::Active, &silent).unwrap().contains("restart reco --lost"));
    }

    #[test]
    fn recovery_output_lists_changes() {
        assert_eq!(render_changes(&RequestRecoveryState::default()), None);
        let state = RequestRecoveryState {
            rescues_used: 1,
            excluded_files: 2,
            overrides: RequestOverrides { memory_mb: Some(3000), ..RequestOverrides::default() },
            ..RequestRecoveryState::default()
        };
        assert_eq!(render_changes(&state).as_deref(), Some("1 rescue; 3000 MB; without 2 input files"));
    }
}
