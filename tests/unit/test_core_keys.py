"""Partition keys: the rules that every key obeys (rule D12)."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import InvalidPartitionKeyError, TidegateError
from tidegate.core.keys import MAX_KEY_CHARACTERS, validate_key

visible = st.characters(exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp"))


@given(st.text(visible, min_size=1, max_size=MAX_KEY_CHARACTERS))
def test_a_key_of_visible_characters_is_returned_as_it_is(key: str) -> None:
    assert validate_key(key) == key


@given(st.text(visible, max_size=100), st.characters(categories=("Cc",)), st.text(visible, max_size=100))
def test_a_control_character_is_refused_wherever_it_stands(before: str, control: str, after: str) -> None:
    assert unicodedata.category(control) == "Cc"
    with pytest.raises(InvalidPartitionKeyError):
        validate_key(before + control + after)


@pytest.mark.parametrize("key", ["", " ", "\t", " \u3000\u2003"])
def test_an_empty_or_blank_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidPartitionKeyError, match="empty or blank"):
        validate_key(key)


def test_length_is_counted_in_characters_not_bytes() -> None:
    assert validate_key("日" * 250) == "日" * 250
    with pytest.raises(InvalidPartitionKeyError, match="251 characters"):
        validate_key("a" * 251)


@pytest.mark.parametrize("key", ["a\n", "2026-03-10\n", "\x7f", "a\x85b", "\x00"])
def test_a_line_break_delete_or_c1_control_is_refused_and_quoted(key: str) -> None:
    with pytest.raises(InvalidPartitionKeyError) as refused:
        validate_key(key)
    assert repr(key) in str(refused.value)


def test_a_refused_key_is_a_tidegate_error_and_a_value_error() -> None:
    assert issubclass(InvalidPartitionKeyError, TidegateError)
    assert issubclass(InvalidPartitionKeyError, ValueError)


@pytest.mark.parametrize("key", ["us|2026-03-10", "{0}", "a/b", ' "x" ', "ключ", "e\u0301", "\u200b-"])
def test_braces_slashes_quotes_and_other_scripts_are_allowed(key: str) -> None:
    assert validate_key(key) == key
