"""What the tests of django-tasks-db 0.13 state, and where it is shown here, by the names of those tests.

``SAME`` names a test of ours. ``DIFFERENT`` names the row or line of the page about the move that tells the difference.
``INSIDE`` is about the tables and functions of that package, which nobody uses from outside.
"""

from __future__ import annotations

TOLD, BEFORE, BACKEND = "tasks/test_told_elsewhere.py", "tasks/test_as_elsewhere.py", "tasks/test_backend.py"
PROGRAMS = "commands/test_jobs_command.py::test_program_ends_with_its_code"
ENDINGS = "worker/test_exceptions.py::test_every_exception_is_recorded_and_the_thread_goes_on_r37"
STOPS, PRUNE = "../acceptance/test_stop.py", "operate/test_prune.py"

SAME = {
    "using_correct_backend check": f"{TOLD}::test_backend_of_the_settings_is_the_default_one_and_complains_of_nothing",
    "enqueue_task enqueue_task_async": f"{TOLD}::test_result_of_a_task_that_waits",
    "get_result": "tasks/test_signals.py::test_results_of_two_reads_are_equal",
    "get_result_async refresh_result_async": f"{BACKEND}::test_async_twins_store_and_read",
    "refresh_result run_enqueued_task": f"{BACKEND}::test_task_is_a_durable_job_that_returns_its_value",
    "get_missing_result invalid_uuid": f"{BACKEND}::test_unknown_results_are_not_found",
    "async_get_missing_result async_invalid_uuid": f"{TOLD}::test_unknown_results_are_not_found_from_async_code",
    "task_name": f"{TOLD}::test_stored_path_is_never_imported",
    "database_backend_app_missing": f"{BEFORE}::test_app_that_is_missing_is_an_error_with_a_hint",
    "doesnt_wait_until_transaction_commit": f"{BEFORE}::test_others_see_the_task_when_its_transaction_has_committed",
    "enqueue_logs": f"{BEFORE}::test_enqueue_is_one_line_of_the_log",
    "index_scan_for_ready": "../plans/test_backlog.py::test_claim",
    "run_after_tz": f"{TOLD}::test_start_is_told_in_local_time_where_the_project_has_no_zones",
    "validate_on_enqueue": f"{BEFORE}::test_queue_is_checked_again_at_the_enqueue",
    "validate_on_aenqueue": f"{TOLD}::test_queue_is_checked_at_the_asynchronous_enqueue_too",
    "no_tasks": PROGRAMS,
    "process_all_queues_excluding_one_queue": "../acceptance/test_excluded_queues.py::test_worker_of_all_queues_but_one",
    "exclude_queues_requires_processing_all_queues": PROGRAMS,
    "excluding_unknown_queue_processes_selected_queues": (
        "worker/test_excluded_queues.py::test_excluded_queues_are_left_to_others"
    ),
    "failing_task": f"{TOLD}::test_value_of_a_task_that_failed_is_an_error",
    "complex_exception": f"{BEFORE}::test_exceptions_are_told_with_their_causes",
    "complex_return_value": f"{BACKEND}::test_value_that_is_no_json_ends_the_job",
    "run_after": f"{BACKEND}::test_run_after_waits",
    "run_after_priority higher_priority_tasks_come_first earlier_run_after_comes_first_given_same_priority "
    "earlier_enqueued_at_comes_first_given_same_priority_and_run_after": (
        f"{TOLD}::test_earlier_start_runs_first_among_equal_priorities"
    ),
    "verbose_logging": f"{TOLD}::test_run_is_two_lines_of_the_log",
    "worker_doesnt_exit_on_failure system_exit_task keyboard_interrupt_task": ENDINGS,
    "worker_with_locked_rows get_locked_with_locked_rows": (
        "../concurrency/test_claim_races.py::test_claim_steps_over_a_row_that_another_holds"
    ),
    "locks_tasks locks_tasks_filtered": "../concurrency/test_claim_races.py::test_claim_locks_no_more_than_it_takes",
    "takes_context context": f"{TOLD}::test_context_is_djangos_own",
    "too_long_worker_id zero_max_tasks negative_max_tasks": PROGRAMS,
    "unknown_backend": "commands/test_jobs_command.py::test_unknown_database_is_a_usage_error",
    "prunes_tasks min_age": f"{PRUNE}::test_content_goes_first_and_rows_stay",
    "doesnt_prune_new_tasks doesnt_prune_running_tasks": f"{PRUNE}::test_settings_decide_and_unfinished_work_is_never_taken",
    "dry_run": f"{PRUNE}::test_dry_run_says_the_same_and_changes_nothing",
    "run_subprocess": "tasks/test_five_tasks.py::test_five_tasks_run_unchanged_on_other_backends",
    "interrupt_no_tasks": f"{STOPS}::test_f03_idle_worker_ends_within_a_second",
    "interrupt_signals": f"{STOPS}::test_f03_running_handler_may_finish_within_the_grace",
    "multiple_workers cross_connection": (
        "../concurrency/test_claim_races.py::test_r01_processes_never_run_one_job_twice"
    ),
    "display_run_after_returns_db_value display_run_after_returns_empty_for_date_max_or_none": (
        "admin/test_pages.py::test_waiting_job_says_when_it_is_due"
    ),
}
DIFFERENT = {
    "invalid_task_path missing_task_path task_import_string": "a task that the code does not have",
    "priority_range_check": "a fraction as priority",
    "custom_id_function unknown_id_function postgres_db_id_function postgres_id_function_expression": "id_function",
    "doesnt_process_different_queue process_all_queues": "Without it every queue is served",
    "doesnt_process_different_backend incorrect_backend": "--backend",
    "batch_processes_all_tasks": "Waits for retries and for tasks that are due later",
    "negative_interval infinite_interval fractional_interval zero_interval": "`POLL`",
    "max_tasks": "The worker goes on with a fresh process",
    "empty_worker_id": "Empty means host and process",
    "repeat_ctrl_c": "a second Ctrl-C",
    "kill": "a task whose worker died stays `RUNNING`",
    "only_prunes_specified_queue prune_all_queues failed_min_age failed_min_age_zero negative_age": "--min-age-days",
}
INSIDE = (
    "run_after_null_0016_migration locks_tasks_sqlite locks_tasks_filtered_sqlite lock_no_rows exclusive_transaction "
    "compat_has_django_task"
)
