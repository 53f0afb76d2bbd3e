import pytest

from tests.unit.compatible.profiles import line
from trainguard.managed.system_stream import ManagedSeries, read_system_file


@pytest.mark.parametrize("late", [("CPUUtilization", "cpu99"), ("Novelty", "cpu0"), ("CPUUtilization", None)])
def test_late_text_value_in_a_large_file_is_read_like_others(
    late: tuple[str, str | None],
) -> None:
    texts = [line("CPUUtilization", f"cpu{at % 7}", at / 100, at % 100) for at in range(6_000)]
    body = "\n".join([*texts, line(*late, 60, 42)]).encode()
    assert len(body) > 2**19

    large = read_system_file(body)

    assert large.bad_lines == 0
    assert large.values.tolist() == [*(at % 100 for at in range(6_000)), 42]
    assert large.series[:8].tolist() == [0, 1, 2, 3, 4, 5, 6, 0]
    assert large.table[7] == ManagedSeries("algo-1", late[1] or "null", late[0])
    assert len(large.table) == 8


def test_bad_line_in_a_large_file_loses_no_other_line() -> None:
    texts = [line("CPUUtilization", "cpu0", at / 100, 1) for at in range(6_000)]
    texts[3] = "{"
    texts[5_000] = texts[5_000][:20]

    large = read_system_file("\n".join(texts).encode())

    assert (large.bad_lines, large.values.size) == (2, 5_998)
