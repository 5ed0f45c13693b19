//! Tests of the store through its public interface.
//!
//! `conformance` has the requirements for every store and knows no backend; another backend adds a line at the
//! bottom and runs the same cases. `sqlite` and `postgres` have tests for one of them.
#![expect(clippy::unwrap_used, reason = "the lint does not recognize that all of this is test code")]

mod conformance;
#[path = "../free_port/mod.rs"]
mod free_port;
mod kit;
mod maintenance;
mod postgres;
#[path = "../postgres_server/mod.rs"]
mod postgres_server;
mod rpc_transport;
mod schema;
mod sqlite;

/// Makes a test of every case for one backend: `suite!(name, constructor of an empty store)`.
macro_rules! suite {
    ($backend:ident, $make:path; $($module:ident: $($case:ident),* $(,)?;)*) => {
        mod $backend {
            $(mod $module {
                $(#[test]
                fn $case() {
                    let fixture = $make();
                    crate::conformance::$module::$case(fixture.store.as_ref());
                })*
            })*
        }
    };
}

macro_rules! conformance {
    ($backend:ident, $make:path) => {
        suite! { $backend, $make;
            creating:
                created_workflow_is_read_back,
                ids_are_one_block_in_creation_order,
                edges_round_trip,
                equal_requirements_share_a_class_except_the_default,
                names_may_be_anything_but_not_twice,
                failed_creation_leaves_no_rows,
                a_workflow_may_be_empty,
                newest_workflow_with_the_digest_is_found;
            workflow_contents:
                workflow_contents_round_trip,
                files_and_user_data_are_listed,
                job_commands_are_loaded_completely,
                dangling_references_are_rejected,
                files_of_many_jobs_are_not_mixed_up,
                reused_job_counts_as_completed;
            failures:
                next_attempt_data_is_stored,
                manual_retry_resets_the_retry_count,
                one_job_can_get_larger_requirements,
                failure_handlers_are_loaded_with_jobs,
                similar_failures_form_one_group;
            failure_commands:
                user_retries_a_job_with_more_resources,
                partition_changes_for_named_jobs_only,
                ignored_failure_releases_dependents,
                agent_proposal_is_approved_by_a_person,
                undo_reverts_unchanged_values_only,
                undo_skips_jobs_that_ran_since,
                undo_restores_previous_values,
                proposal_for_an_earlier_attempt_cannot_be_approved,
                decision_outcome_is_the_next_result,
                manual_change_is_a_revision,
                pending_commands_are_applied_by_the_runner;
            spawning:
                a_running_job_adds_jobs,
                repeated_spawn_adds_jobs_once,
                iterations_are_counted_and_capped,
                only_a_running_attempt_can_spawn;
            workflow_changes:
                a_workflow_is_renamed_and_archived,
                user_data_is_added_set_and_deleted,
                requirements_change_for_jobs_and_groups,
                priority_is_changed_for_all_jobs_of_a_priority,
                deleting_a_workflow_keeps_other_workflows,
                changes_are_recorded_as_events;
            editing:
                jobs_are_added_to_a_workflow,
                files_make_dependencies_in_both_directions,
                invalid_added_jobs_are_rejected,
                job_update_is_recorded,
                record_keeps_the_executed_command,
                update_of_one_job_splits_shared_rows,
                held_job_cannot_be_changed,
                deleting_jobs_keeps_other_jobs_unchanged,
                job_with_dependents_is_not_deleted,
                files_are_added_changed_and_deleted,
                requirements_are_added_changed_and_deleted,
                results_and_events_are_deleted,
                job_relations_are_listed;
            records:
                nul_in_texts_is_replaced,
                attempt_files_are_recorded,
                newest_success_is_the_completion_record,
                reused_result_is_a_copy;
            exporting:
                workflow_survives_export_and_import,
                import_without_results_starts_from_the_beginning,
                import_keeps_added_jobs,
                torc_export_is_imported,
                contradictory_import_is_rejected;
            changes:
                job_passes_through_all_states,
                orphan_is_counted_and_runs_again,
                claim_can_be_returned,
                conflicting_change_names_the_job_state,
                batch_is_atomic,
                alarm_is_committed_with_its_cause,
                failing_batch_does_not_affect_others,
                a_batch_of_another_run_is_stale,
                one_result_per_attempt,
                claim_is_reassigned_to_another_worker,
                job_is_retried_or_reset,
                contradictory_states_are_rejected,
                callbacks_run_in_order_after_the_commit;
            runs:
                runs_begin_and_end,
                next_run_starts_fresh,
                no_next_run_while_a_worker_holds_a_job,
                cancel_request_stays_until_the_run_ends,
                workers_are_active_until_retired,
                missing_workflow_is_named_in_errors;
            lists:
                jobs_are_filtered_and_paged,
                results_are_filtered_and_paged,
                commands_and_names_keep_the_requested_order,
                workflows_are_isolated;
            workers:
                node_is_quarantined_and_released,
                worker_round_trips,
                worker_update_changes_given_fields_only,
                workers_are_filtered_sorted_and_counted,
                deleted_worker_is_only_unlisted,
                workflow_is_active_while_a_run_is_open;
            access:
                groups_have_members_with_roles,
                shared_workflow_is_visible_to_members,
                token_is_valid_until_revoked;
            workflow_parts:
                work_summary_covers_all_attempts,
                added_job_has_all_given_fields,
                every_job_field_can_be_changed,
                jobs_are_filtered_by_relations,
                lists_are_sorted_and_counted,
                jobs_added_one_by_one_depend_as_if_added_at_once,
                client_records_are_stored_verbatim;
            client_results:
                client_result_is_stored_and_changed,
                only_the_last_attempt_of_a_run_is_listed,
                missing_values_sort_first,
                event_update_is_recorded_as_an_event,
                ready_requirements_are_grouped,
                required_are_external_inputs_and_completed_outputs;
            actions:
                action_passes_through_all_states,
                action_execution_begins_and_ends_once,
                executed_action_can_be_retried,
                new_run_rearms_actions;
            allocations:
                allocation_passes_through_all_states,
                conflicting_allocation_changes_are_rolled_back,
                action_requests_its_allocations_once,
                allocations_are_filtered,
                discarded_allocations_are_withdrawn_or_unwanted,
                workflow_with_open_allocations_is_not_deleted,
                client_allocations_are_recorded,
                schedule_is_applied_atomically,
                outdated_schedule_is_rejected,
                one_of_two_concurrent_schedules_is_applied,
                recovery_actions_are_deleted_by_the_next_run,
                slurm_calls_are_counted_by_hour;
            units:
                work_units_are_created_with_their_jobs,
                work_unit_changes_with_its_batch,
                canceled_run_cancels_open_work_units,
                invalid_landing_jobs_are_rejected,
                work_units_survive_export_and_import,
                worker_site_is_stored;
            model:
                random_batches_match_the_model;
            failure_commands_model:
                random_commands_match_the_model;
        }
    };
}

conformance!(on_sqlite, crate::sqlite::empty_store);
conformance!(over_a_wire, crate::rpc_transport::empty_store);
conformance!(on_postgres, crate::postgres::empty_store);

/// The same for parts that only databases store.
macro_rules! conformance_of_databases {
    ($backend:ident, $make:path) => {
        suite! { $backend, $make;
            requests:
                request_round_trips,
                requests_never_share_an_output_dataset,
                commit_applies_all_its_changes,
                run_backend_cannot_change,
                outdated_commit_is_rejected,
                commit_is_atomic,
                failing_commit_does_not_affect_others,
                request_is_added_once,
                open_requests_are_loaded_with_their_state,
                views_beyond_the_parameter_limit_are_loaded,
                requests_are_filtered_sorted_and_paged,
                only_ended_requests_are_deleted;
            recovery:
                commit_updates_recovery_rows,
                failed_attempts_are_read_incrementally,
                ban_is_committed_with_its_changes,
                new_version_is_committed_with_the_end_of_the_old,
                file_rows_are_inserted_and_replaced,
                file_rows_are_counted_and_paged,
                registered_units_are_listed_by_round,
                ban_expiry_is_notified_once;
            sites:
                site_is_stored_and_drained,
                jobs_are_counted_at_the_sites_of_their_workers,
                bans_hold_until_they_end_or_are_removed,
                last_value_of_a_setting_wins,
                alert_is_pending_until_notified;
            datasets:
                dataset_files_round_trip,
                readded_file_is_updated,
                only_files_that_differ_count_as_changed,
                replicas_are_added_and_removed,
                invalidated_files_are_omitted,
                dataset_files_are_paged,
                block_is_opened_filled_and_closed_once,
                only_owner_and_operators_change_a_dataset,
                replication_rule_is_created_once;
        }
    };
}

conformance_of_databases!(requests_on_sqlite, crate::sqlite::empty_store);
conformance_of_databases!(requests_on_postgres, crate::postgres::empty_store);
