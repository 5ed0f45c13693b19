//! Checks of production steps that are given beside a document or later.

use crate::error::FieldError;
use windlass_types::requests::PriorityStep;

/// Returns all errors.
pub(super) fn check_production_steps(steps: &[PriorityStep], urgent: bool) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let mut fault = |field: String, reason: String| faults.push(FieldError { field, reason, remedy: None });
    if urgent && !steps.is_empty() {
        fault("production_steps".to_owned(), "an urgent request has no production steps".to_owned());
    }
    for (n, step) in steps.iter().enumerate() {
        let before = n.checked_sub(1).map(|n| steps[n]);
        if !(step.fraction > 0.0 && step.fraction < 1.0) {
            let reason = format!("is {}; must be greater than 0 and less than 1", step.fraction);
            fault(format!("production_steps[{n}].fraction"), reason);
        } else if let Some(before) = before.filter(|before| step.fraction <= before.fraction) {
            let reason =
                format!("is {}; must be greater than the previous one, {}", step.fraction, before.fraction);
            fault(format!("production_steps[{n}].fraction"), reason);
        }
        if let Some(before) = before.filter(|before| step.priority >= before.priority) {
            let reason =
                format!("is {}; must be less than the previous one, {}", step.priority, before.priority);
            fault(format!("production_steps[{n}].priority"), reason);
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn production_steps_must_rise_and_priorities_fall() {
        let step = |fraction, priority| PriorityStep { fraction, priority };
        // steps, urgent → fields with errors
        let table: &[(&[PriorityStep], bool, &[&str])] = &[
            (&[], true, &[]),
            (&[step(0.1, 80), step(0.5, 50)], false, &[]),
            (&[step(0.1, 80)], true, &["production_steps"]),
            (&[step(0.0, 80)], false, &["production_steps[0].fraction"]),
            (&[step(1.0, 80)], false, &["production_steps[0].fraction"]),
            (&[step(f64::NAN, 80)], false, &["production_steps[0].fraction"]),
            (&[step(0.5, 80), step(0.5, 50)], false, &["production_steps[1].fraction"]),
            (&[step(0.5, 80), step(0.6, 80)], false, &["production_steps[1].priority"]),
            (
                &[step(0.5, 80), step(0.4, 90)],
                false,
                &["production_steps[1].fraction", "production_steps[1].priority"],
            ),
        ];
        for (steps, urgent, expected) in table {
            let found = check_production_steps(steps, *urgent);
            assert_eq!(
                found.iter().map(|fault| fault.field.as_str()).collect::<Vec<_>>(),
                *expected,
                "{steps:?}"
            );
        }
    }
}
