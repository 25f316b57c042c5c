"""What a corruption breaks beside the invariant that it is there for: nothing but what stands here.

One column says several things at once: an attempt that is missing leaves a gap in the numbers *and* counters that do not
add up. The names are those of the tests: the invariant, a dash, the corruption.
"""

from __future__ import annotations

BREAKS_TOO: dict[str, set[str]] = {
    "J1-job_names_no_attempt": {"J9"},
    "J1-open_attempt_has_another_number": {"J2"},
    "J1-open_attempt_of_a_waiting_job": {"A1", "J17", "J3"},
    "J1-open_attempt_of_another_generation": {"J11"},
    "J1-running_without_attempt": {"J2"},
    "J1-two_open_attempts": {"J3"},
    "J2-attempt_is_missing": {"J3"},
    "J2-fence_ran_ahead": {"J4"},
    "J2-number_ran_ahead_of_the_fence": {"J17"},
    "J2-numbers_do_not_begin_at_one": {"J4"},
    "J4-success_without_a_succeeded_attempt": {"J3"},
    "J6-replay_of_another_plan": {"A3"},
    "J6-replay_that_left_no_generation": {"J8"},
    "J6-replay_that_was_not_acknowledged": {"A3"},
    "J7-cancelled_job_with_an_effect_under_review": {"J15"},
    "J7-living_job_with_a_resolution": {"J12", "J9"},
    "J9-running_without_attempt_id": {"J1"},
    "J11-attempt_of_a_later_generation": {"J1"},
    "J11-generation_fell": {"J17", "J3", "J8"},
    "J11-generation_of_nothing": {"J6"},
    "J15-cancelled_attempt_of_a_waiting_job": {"J3"},
    "A1-failure_without_class": {"J3"},
    "A1-loss_of_unknown_cause": {"J3"},
    "A1-loss_without_cause": {"J3"},
    "A1-unknown_outcome": {"J3"},
    "A2-one_number_twice": {"J1", "J2"},
    "P1-payload_left_beside_removed_content": {"P2"},
    "K3-key_went_to_another_job": {"K2"},
    "K3-unfinished_job_holds_another_key": {"K2"},
    "K3-unfinished_job_holds_its_key_elsewhere": {"K2"},
    "K5-key_taken_from_an_unfinished_job": {"K3"},
    "E6-new_key_beside_an_open_send": {"E1", "E2", "E7"},
    "E7-resent_after_the_key_had_expired": {"L1"},
    "E7-resent_under_another_key": {"E6"},
    "E8-sender_vanished_without_record": {"E16", "E3", "R1"},
    "E11-effect_of_somebody_who_did_not_send": {"E16"},
    "E11-short_effect_of_somebody_who_did_not_send": {"E16"},
    "O2-step_of_another_attempt": {"S1"},
    "N2-message_whose_job_has_another_key": {"K2", "K3"},
    "R1-job_is_gone": {"K1"},
    "R3-fingerprint_emptied_by_hand": {"P2"},
    "R4-digest_left": {"E5"},
    "C3-something_applied_is_left": {"E1"},
    "C5-second_one_given_up_although_the_first_was_applied": {"E1", "E20"},
}
