"""Results that are found once."""

from redpebble.foundation.recent_results import MOST_KEPT, RecentResults


def test_a_result_is_found_once_and_the_oldest_go_first() -> None:
    results, found = RecentResults[int, int](), list[int]()

    def of(key: int) -> int:
        return results.of(key, lambda: found.append(key) or 2 * key)

    assert [of(3), of(3)] == [6, 6]
    assert found == [3]
    for key in range(4, 4 + MOST_KEPT):
        of(key)
    assert of(4 + MOST_KEPT - 1) == 2 * (4 + MOST_KEPT - 1)
    assert len(found) == MOST_KEPT + 1
    assert of(3) == 6
    assert len(found) == MOST_KEPT + 2
