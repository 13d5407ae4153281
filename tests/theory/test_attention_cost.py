from redpebble.theory.attention_cost import AttentionSize, attention_work, least_bytes, moved_bytes


def size(queries: int, keys: int, **others: bool) -> AttentionSize:
    return AttentionSize(1, 12, queries, keys, 64, 64, **others)


def test_a_block_of_queries_reads_all_keys_and_values_once() -> None:
    assert moved_bytes(size(64, 512)) == least_bytes(size(64, 512))
    read_again = 12 * 512 * (64 + 64) * 4
    assert moved_bytes(size(512, 512)) - least_bytes(size(512, 512)) == 7 * read_again
    assert moved_bytes(size(64, 512, masked=True)) - moved_bytes(size(64, 512)) == 12 * 64 * 512 * 4


def test_time_grows_with_queries_and_keys_and_a_block_has_lanes_for_sixteen() -> None:
    assert attention_work(size(128, 256)) == 2 * attention_work(size(128, 128))
    assert attention_work(size(1, 128)) == attention_work(size(16, 128))
    assert attention_work(size(32, 128)) == 2 * attention_work(size(16, 128))
