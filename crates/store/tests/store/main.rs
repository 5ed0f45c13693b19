//! Tests of the store through its public interface.
//!
//! `conformance` has the requirements for every store and knows no backend; another backend adds a line at the
//! bottom and runs the same cases. `sqlite` and `postgres` have tests for one of them.
#![expect(clippy::unwrap_used, reason = "the lint does not recognize that all of this is test code")]

mod conformance;
mod kit;
mod postgres;
#[path = "../postgres_server/mod.rs"]
mod postgres_server;
mod schema;
mod sqlite;
mod upkeep;
mod wire;

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
                what_goes_in_comes_out,
                ids_are_one_block_in_creation_order,
                edges_come_back_as_they_were,
                equal_requirements_share_a_class_but_not_with_the_default,
                names_may_be_anything_but_not_twice,
                a_workflow_that_cannot_be_created_leaves_nothing,
                a_workflow_may_be_empty,
                the_newest_of_equal_digests_in_a_directory_is_found;
            contents:
                all_of_a_workflow_comes_back,
                files_and_user_data_are_listed,
                a_claim_reads_all_that_a_job_needs,
                what_refers_to_nothing_is_refused,
                many_jobs_with_files_keep_them_apart,
                work_that_was_done_elsewhere_counts;
            failures:
                what_the_next_attempt_inherits_is_kept,
                whoever_wants_it_again_begins_to_count_anew,
                one_job_alone_may_ask_for_more,
                handlers_come_with_the_jobs,
                failures_that_are_alike_are_one_group;
            orders:
                a_person_has_it_tried_again_with_more,
                another_partition_is_for_the_jobs_that_were_named,
                what_is_ignored_holds_nobody_up,
                an_agent_proposes_and_a_person_agrees,
                only_what_still_stands_is_undone,
                what_has_run_since_is_not_undone,
                what_is_put_back_is_what_was,
                what_was_proposed_about_another_attempt_is_not_agreed_to,
                what_followed_a_decision_is_what_the_job_did,
                what_is_changed_by_hand_is_a_revision,
                whoever_runs_it_grants_wishes;
            spawning:
                a_running_job_adds_jobs,
                asking_twice_adds_once,
                iterations_are_counted_and_capped,
                only_a_running_attempt_may_add;
            managing:
                a_workflow_is_renamed_and_archived,
                user_data_is_added_set_and_deleted,
                requirements_change_for_jobs_and_kinds,
                jobs_of_one_priority_get_another,
                a_deleted_workflow_leaves_the_others_alone,
                what_happens_is_noted;
            editing:
                jobs_are_added_from_outside,
                files_make_dependencies_in_both_directions,
                an_added_job_must_make_sense,
                a_job_is_changed_and_it_is_noted,
                a_changed_command_does_not_belie_the_record,
                what_only_some_jobs_have_is_split_off,
                a_held_job_is_left_alone,
                deleted_jobs_leave_the_others_as_they_were,
                what_others_wait_for_is_not_deleted,
                files_are_added_changed_and_deleted,
                requirements_are_added_changed_and_deleted,
                results_and_events_are_deleted,
                one_job_knows_what_hangs_on_it;
            records:
                a_nul_in_a_text_is_shown,
                files_are_kept_as_they_were_seen,
                the_newest_success_is_the_record,
                reused_work_is_a_copy;
            exporting:
                a_workflow_survives_the_way_through_a_file,
                without_results_it_starts_from_the_beginning,
                added_jobs_stay_added,
                a_file_of_torc_is_understood,
                a_file_that_contradicts_itself_is_refused;
            changes:
                a_job_goes_through_its_life,
                an_orphan_is_counted_and_runs_again,
                a_claim_can_be_given_back,
                what_does_not_fit_is_named,
                a_batch_is_all_or_nothing,
                an_alarm_comes_with_what_led_to_it,
                a_failing_batch_takes_nobody_along,
                a_batch_of_another_run_is_stale,
                one_result_per_attempt,
                a_claim_is_handed_over,
                a_job_is_tried_again_or_begun_anew,
                states_that_contradict_each_other_are_refused,
                answers_come_in_order_and_after_the_commit;
            runs:
                runs_begin_and_end,
                the_next_run_starts_afresh,
                no_next_run_while_a_worker_holds_a_job,
                a_cancel_request_waits_to_be_answered,
                workers_are_remembered_until_they_retire,
                what_is_not_there_is_named;
            reading:
                jobs_are_filtered_and_paged,
                results_are_filtered_and_paged,
                commands_and_names_come_in_the_order_asked_for,
                workflows_do_not_see_each_other;
            fleet:
                a_node_is_set_aside_and_released,
                a_worker_comes_back_as_it_was_written,
                a_worker_is_changed_where_it_is_said,
                workers_are_filtered_sorted_and_counted,
                a_deleted_worker_is_only_unlisted,
                a_workflow_is_active_from_the_beginning_of_a_run_to_its_end;
            access:
                groups_have_members_with_roles,
                a_shared_workflow_is_seen_by_the_members,
                a_token_counts_until_it_is_revoked;
            parts:
                work_is_summed_up_over_all_attempts,
                an_added_job_is_all_that_was_said,
                a_job_is_changed_in_all_its_fields,
                jobs_are_found_by_what_they_have_to_do_with,
                lists_are_sorted_and_counted,
                jobs_added_one_by_one_depend_as_if_added_at_once,
                records_are_kept_unread;
            stated:
                a_stated_result_is_kept_and_changed,
                only_the_last_attempt_of_a_run_is_listed,
                what_is_not_known_has_its_place_in_the_order,
                an_event_is_changed_and_another_says_so,
                what_ready_jobs_ask_for_is_told_once_each,
                required_is_what_nobody_makes_and_what_was_made;
            actions:
                an_action_goes_through_its_life,
                an_execution_begins_and_ends_once,
                one_that_was_carried_out_can_be_so_again,
                a_new_run_has_some_or_all_of_them_again;
            allocations:
                an_allocation_goes_through_its_life,
                what_does_not_fit_changes_nothing,
                an_action_asks_once,
                allocations_are_filtered,
                nobody_wants_them_any_more,
                a_workflow_with_open_ones_is_not_deleted,
                clients_say_how_theirs_stand,
                a_schedule_is_applied_at_once,
                a_schedule_that_was_planned_from_something_else_is_refused,
                of_two_schedules_at_once_one_is_applied,
                recovery_actions_go_with_the_next_run,
                calls_are_counted_by_the_hour;
            units:
                units_come_with_their_jobs,
                a_unit_changes_with_what_decides_it,
                a_canceled_run_cancels_open_units,
                what_makes_no_sense_of_units_is_refused,
                units_survive_the_way_through_a_file,
                a_worker_is_at_a_site;
            model:
                random_batches_do_what_a_small_model_does;
            orders_model:
                random_orders_do_what_a_small_model_does;
        }
    };
}

conformance!(on_sqlite, crate::sqlite::empty_store);
conformance!(over_a_wire, crate::wire::empty_store);
conformance!(on_postgres, crate::postgres::empty_store);

/// The same for parts that only databases store.
macro_rules! conformance_of_databases {
    ($backend:ident, $make:path) => {
        suite! { $backend, $make;
            requests:
                a_request_comes_back_as_it_was_wished_for,
                two_requests_never_write_one_dataset,
                a_commit_changes_all_that_it_says,
                a_run_keeps_its_backend,
                nobody_overwrites_what_he_has_not_seen,
                a_commit_is_all_or_nothing,
                a_failing_commit_takes_nobody_along,
                adding_twice_adds_once,
                what_is_open_comes_with_all_that_decides,
                more_views_than_fit_a_statement_come_all,
                requests_are_filtered_sorted_and_paged,
                only_what_is_over_is_deleted;
            recovery:
                a_commit_changes_what_recovery_keeps,
                failed_attempts_are_read_on_from_where_they_were_read,
                a_ban_comes_with_its_commit_or_not_at_all,
                a_new_version_comes_with_the_end_of_the_old_one,
                files_that_rounds_touched_are_put_and_replaced,
                files_are_counted_and_shown_page_by_page,
                units_with_outputs_are_known_by_round,
                a_ban_that_is_over_is_told_once;
            sites:
                a_site_is_put_and_drained,
                jobs_are_counted_at_the_sites_of_their_workers,
                bans_hold_until_they_end_or_are_removed,
                a_setting_is_what_was_last_said,
                an_alert_waits_until_it_is_told;
            datasets:
                files_come_back_as_they_went_in,
                a_file_that_is_added_again_is_what_is_said_now,
                only_files_that_differ_count_as_changed,
                replicas_come_and_go,
                invalid_files_are_left_out,
                files_come_page_by_page,
                a_block_is_opened_filled_and_closed_once,
                only_its_owner_and_operators_change_a_dataset,
                the_same_rule_is_made_once;
        }
    };
}

conformance_of_databases!(requests_on_sqlite, crate::sqlite::empty_store);
conformance_of_databases!(requests_on_postgres, crate::postgres::empty_store);
