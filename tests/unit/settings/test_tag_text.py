"""Text in the values of tags."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.engine.settings.tag_names import from_tag, to_tag

TAKEN = re.compile(r"[\w .:/=+\-@]*")
SIGNS = st.one_of(st.sampled_from("=2A3D* .4"), st.characters(exclude_categories=["Cs"]))


@given(st.text(alphabet=SIGNS))
def test_any_text_written_into_a_tag_is_valid_and_reads_back(text: str) -> None:
    assert TAKEN.fullmatch(to_tag(text))
    assert from_tag(to_tag(text)) == text


@pytest.mark.parametrize(
    ("text", "value"), [(".*relu_input", ".=2Arelu_input"), ("a=2A", "a=3D2A"), ("1=2", "1=2"), ("0.5", "0.5")]
)
def test_only_characters_forbidden_in_a_tag_are_escaped(text: str, value: str) -> None:
    assert to_tag(text) == value


@pytest.mark.parametrize("value", ["=FF", "=2", "=2a", "=G0"])
def test_given_what_is_no_escape_when_read_then_it_stays(value: str) -> None:
    assert from_tag(value) == value
