"""The faults: where, what stands there, what is put there, and the tests that must fail then."""

from typing import Final, NamedTuple

ROLLUP: Final = "services/tidegate_rollup/"
APPLY, CONTROLS, FOLD = (f"{ROLLUP}{name}.lua" for name in ("apply", "controls", "fold"))
MAPPING: Final = "shared/tidegate/runtime/mapping.py"
DISPATCHER: Final = "services/tidegate_dispatcher/decide.py"
INGEST: Final = "services/tidegate_ingest/decide.py"


class Fault(NamedTuple):
    file: str
    old: str
    """Stands in the file exactly once."""
    new: str
    tests: str
    """A file of tests, and after "::" the name of one of them."""


def _script(file: str, old: str, new: str, test: str) -> Fault:
    return Fault(file, old, new, f"tests/store/test_rollup_script.py::{test}")


def _rollup(file: str, old: str, new: str, test: str) -> Fault:
    return Fault(f"{ROLLUP}{file}.py", old, new, f"tests/unit/test_rollup_decisions.py::{test}")


def _again(old: str, new: str, test: str) -> Fault:
    return Fault(f"{ROLLUP}again.py", old, new, f"tests/unit/test_again.py::{test}")


def _dispatcher(old: str, new: str, test: str) -> Fault:
    return Fault(DISPATCHER, old, new, f"tests/unit/test_dispatcher_decide.py::{test}")


def _ingest(old: str, new: str, test: str) -> Fault:
    return Fault(INGEST, old, new, f"tests/unit/test_ingest_decide.py::{test}")


def _mapper(old: str, new: str, test: str) -> Fault:
    return Fault(MAPPING, old, new, f"tests/unit/test_mapping.py::{test}")


_CHANGE: Final = "test_a_change_takes_the_rounds_of_its_job_with_their_deadlines_and_of_no_other"
_PARTED: Final = "test_a_change_within_a_batch_parts_what_comes_before_it_from_what_comes_after"
_ALIKE: Final = "test_a_change_that_is_routed_alike_moves_the_revision_and_no_round"
_WITHDRAWN: Final = "test_a_member_whose_event_is_withdrawn_keeps_those_beside_it_and_the_event_stays_away"
_AGAIN: Final = "test_a_round_that_is_run_again_has_its_newest_events_and_goes_with_its_mark"
_THOUSANDS: Final = "test_thousands_of_rounds_fire_in_one_call"
_ANY: Final = "test_redis_is_the_fold_of_a_log_about_one_round"

FAULTS: Final = (
    # the script
    _script(APPLY, "(next_offset or '') ~= believed", "false", "test_shards_answer_for_themselves"),
    _script(APPLY, "string.gsub(text, '^", "string.gsub(text, '^x", _ALIKE),
    _script(APPLY, "return routing ~= '' and routing == folded", "return routing == folded", _CHANGE),
    _script(APPLY, "before + 1, members, lines)", "1, members, lines)", _THOUSANDS),
    _script(
        APPLY,
        "if not job.windowed or is_complete() then",
        "if not job.windowed or is_satisfied() then",
        "test_an_event_of_a_clause_that_was_not_needed_is_late_not_repeated",
    ),
    _script(
        APPLY,
        "return arrived == 1 and audit(",
        "return audit(",
        "test_a_window_that_never_has_enough_is_noted_when_it_opens",
    ),
    _script(
        APPLY,
        "(date or mark.dated) and 'ignore' or 'new_round'",
        "'ignore'",
        "test_keys_without_a_date_begin_anew_where_the_job_says_nothing",
    ),
    _script(
        APPLY,
        "[5] <= cjson",
        "[5] < cjson",
        "test_of_two_events_with_one_key_the_one_that_was_mapped_again_gives_way_unless_it_is_newer",
    ),
    _script(APPLY, "return is_beside and 'x'", "return false and 'x'", _AGAIN),
    _script(APPLY, "if job.policy == 'refire' then kept_of", "if false then kept_of", _AGAIN),
    _script(
        APPLY,
        "if job.policy == 'refire' then kept_of",
        "if true then kept_of",
        "test_only_jobs_that_run_rounds_again_keep_them",
    ),
    _script(APPLY, "mark.generation + 1, mark.members", "mark.generation, mark.members", _AGAIN),
    _script(APPLY, "if exists then remember(lines", "if false then remember(lines", _ANY),
    _script(APPLY, "and tonumber(seen_at) >= since", "and tonumber(seen_at) > at", _ANY),
    _script(APPLY, "  call('ZREM', open, name)\n", "", _ANY),
    _script(CONTROLS, "if revision <= before.revision then", "if revision < before.revision then", _PARTED),
    _script(CONTROLS, "'(' .. id .. '0')", "'(' .. id .. '9')", _CHANGE),
    _script(CONTROLS, "    forget_deadlines(moved)\n", "", _CHANGE),
    _script(CONTROLS, "if is_routed_alike(routing, before) then", "if false then", _ALIKE),
    _script(CONTROLS, "by_revision(ref, newest(job.id, at).revision)", "ref", _ALIKE),
    _script(
        CONTROLS,
        "string.match(its_opened, '^%d+%.%d+') ~= opened",
        "false",
        "test_what_is_done_to_a_round_is_nothing_to_the_next_one_of_its_key",
    ),
    _script(CONTROLS, "call('HSET', round, 'r:' .. digest_of(withdrawn[n]), '')", "", _WITHDRAWN),
    _script(CONTROLS, "if sub(field, 1, 1) == 'm' and others then", "if false then", _WITHDRAWN),
    _script(
        CONTROLS,
        "if what == 'drop' then kept_of[name] = nil end",
        "",
        "test_a_round_that_was_dropped_is_not_run_again_by_a_member_that_comes_again",
    ),
    _script(FOLD, "elseif is_routed_alike(job.routing, folded) then", "elseif false then", _ALIKE),
    _script(FOLD, "elseif is_routed_alike(job.routing, folded) then", "elseif true then", _PARTED),
    _script(FOLD, "if due then bring_deadline(due, what) end", "", _CHANGE),
    _script(
        FOLD,
        "if not values[1] then values[1] =",
        "do values[1] =",
        "test_a_record_of_thousands_of_members_is_folded_in_one_call",
    ),
    _script(FOLD, "if arrived >= needed and", "if arrived > needed and", _THOUSANDS),
    _script(FOLD, "SLICE + 2 * read", "SLICE", "test_marks_go_at_least_as_fast_as_they_come"),
    _script(
        FOLD,
        "if upto ~= believed then",
        "if true then",
        "test_a_call_that_moves_nothing_keeps_the_time_of_the_last_record",
    ),
    # the rollup's decisions
    _rollup(
        "inputs",
        "elif coordinates > source.highest:",
        "elif coordinates >= source.highest:",
        "test_only_rising_coordinates_of_a_source_are_handed_on",
    ),
    _rollup(
        "inputs",
        "-1 if needed > size",
        "-1 if needed >= size",
        "test_more_members_than_there_are_are_told_apart_from_enough",
    ),
    _rollup(
        "inputs",
        "entry.event.at if has_waited else entry.at, []",
        "entry.at, []",
        "test_a_contribution_brings_its_round_the_earliest_of_the_deadlines",
    ),
    _rollup(
        "outbox",
        'parts += sorted(f"{event.source}\\n{event.id}" for event in events)',
        'parts += [f"{event.source}\\n{event.id}" for event in events]',
        "test_a_run_id_is_made_of_content_and_free_of_order",
    ),
    _rollup(
        "outbox",
        "if len(raw) > MAX_INTERNAL_BYTES // 2:",
        "if len(raw) > MAX_INTERNAL_BYTES * 2:",
        "test_a_request_too_large_to_send_keeps_its_name_and_size_and_loses_its_events",
    ),
    _rollup(
        "outbox",
        "sorted(found, key=itemgetter(0))",
        "sorted(found, key=lambda one: one[1].field)",
        "test_what_is_pending_comes_in_the_order_of_the_log_by_number",
    ),
    _rollup(
        "acted",
        "cause = control.id if isinstance(control, OperatorAction) else position",
        "cause = position",
        "test_an_action_on_a_round_that_is_gone_says_so_once",
    ),
    _again(
        "        if taken:",
        "        if True:",
        "test_an_event_that_counts_nowhere_is_closed_with_the_reason",
    ),
    _again(
        "is_same = defined is not None and defined.incarnation == found.job.incarnation",
        "is_same = defined is not None",
        "test_nothing_of_a_deleted_job_counts_for_the_one_that_is_created_again",
    ),
    _again(
        "found.job.id, found.key\n",
        "found.job.id\n",
        "test_rounds_that_one_change_closes_in_several_shards_are_told_apart",
    ),
    _again(
        "_ROUNDS_BITS: Final = 20",
        "_ROUNDS_BITS: Final = 30",
        "test_coordinates_rise_with_the_places_in_the_outbox_and_are_exact_in_lua",
    ),
    # the dispatcher's decisions
    _dispatcher(
        "(run.source, run.offset) != (asked.source, request.offset)",
        "run.source != asked.source",
        "test_a_known_run_id_from_another_place_is_audited_and_sends_nothing",
    ),
    _dispatcher(
        "return self.decisions.runs.get(run_id) or self._known.runs.get(run_id)",
        "return self._known.runs.get(run_id)",
        "test_every_run_id_gives_one_command_and_a_known_one_none",
    ),
    _dispatcher(
        "event.attempt != run.attempt or ",
        "",
        "test_an_end_is_final_and_reports_of_other_attempts_or_runs_are_nothing",
    ),
    _dispatcher(
        "run.state in ENDED or ", "", "test_an_end_is_final_and_reports_of_other_attempts_or_runs_are_nothing"
    ),
    _dispatcher(
        "and run.offset < acknowledged",
        "and run.offset <= acknowledged",
        "test_ids_are_forgotten_after_the_horizon_once_the_rollup_cannot_ask_again",
    ),
    _dispatcher(
        "limit - FRAMING_BYTES", "limit", "test_what_a_topic_cannot_take_is_undeliverable_and_stops_nobody"
    ),
    _dispatcher(
        "        if not request.failed:  #",
        "        if True:  #",
        "test_a_request_that_failed_before_it_started_is_a_failed_run_without_a_command",
    ),
    # ingest's decisions
    _ingest(
        "first.setdefault(each.identity, each.mark)",
        "first.get(each.identity, each.mark)",
        "test_a_repeated_id_in_one_poll_is_accepted_once",
    ),
    _ingest(
        "        if mark != each.mark:",
        "        if mark in marks.values() and not audit.append(_duplicate(event, each.position, mark)):",
        "test_a_record_that_is_read_again_is_not_its_own_duplicate",
    ),
    _ingest(
        "            if remembered_asset:",
        "            if False:",
        "test_a_uri_resolves_as_at_first_when_the_record_is_read_again_after_a_new_definition",
    ),
    _ingest(
        'f"{source}\\0{id}"',
        "id",
        "test_the_same_id_of_another_source_is_another_event",
    ),
    # mapping
    _mapper(
        "        if plan.multi_team:",
        "        if True:",
        "test_teams_are_filtered_only_where_the_installation_has_several",
    ),
    _mapper(
        "sorted(jobs, key=lambda each: each.job.id)", "jobs", "test_the_order_of_definitions_never_matters"
    ),
    _mapper(
        "event.source, event.id, route.job.id, route.index)",
        "event.source, event.id, route.job.id)",
        "test_audit_ids_are_the_same_for_a_repeat_and_differ_for_anything_else",
    ),
)
