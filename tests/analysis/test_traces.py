import pytest

from everystep.analysis.load import Arrival
from everystep.analysis.traces import read_trace
from everystep.errors import ConfigError

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.4799600,110,0
2023-11-16 18:18:03.9799600,34,7
"""
JSONL = """{"timestamp": 100, "input_length": 9, "output_length": 5}

{"timestamp": 101.5, "input_length": 7, "output_length": 3, "hash_ids": [1, 2]}
"""


@pytest.fixture
def trace(tmp_path):
    def write(text, name="trace.csv"):
        path = tmp_path / name
        path.write_bytes(text.encode())
        return path

    return write


def test_azures_columns_are_read_and_time_counts_from_the_first_arrival(trace):
    load = read_trace(trace(AZURE))
    assert [arrival.at_s for arrival in load] == pytest.approx([0.0, 0.5, 60.0], abs=1e-6)
    assert [(a.prompt_tokens, a.output_tokens) for a in load] == [(4808, 10), (110, 1), (34, 7)]


def test_json_lines_are_read_with_seconds_and_other_fields_are_no_matter(trace):
    assert read_trace(trace(JSONL, "trace.jsonl")) == [Arrival(0.0, 9, 5), Arrival(1.5, 7, 3)]


def test_a_file_is_known_by_its_content_whatever_its_name(trace):
    assert read_trace(trace(JSONL, "trace.txt")) == read_trace(trace(JSONL, "trace.jsonl"))
    assert len(read_trace(trace("\ufeff" + AZURE.replace("\n", "\r\n"), "trace.jsonl"))) == 3


def test_iso_times_with_zones_are_moments_and_without_are_utc(trace):
    lines = [
        '{"timestamp": "2024-05-01T12:00:00+02:00", "input_length": 1, "output_length": 1}',
        '{"timestamp": "2024-05-01T10:00:03Z", "input_length": 2, "output_length": 1}',
        '{"timestamp": "2024-05-01 10:00:04.25", "input_length": 3, "output_length": 1}',
    ]
    assert [arrival.at_s for arrival in read_trace(trace("\n".join(lines)))] == [0.0, 3.0, 4.25]


def test_lines_out_of_order_are_put_in_order(trace):
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n7.5,1,1\n5,2,2\n6,3,3\n"
    assert read_trace(trace(text)) == [Arrival(0.0, 2, 2), Arrival(1.0, 3, 3), Arrival(2.5, 1, 1)]


def test_scales_stretch_time_and_shorten_texts_to_one_token_at_least(trace):
    load = read_trace(trace(JSONL), time_scale=4.0, length_scale=0.1)
    assert load == [Arrival(0.0, 1, 1), Arrival(6.0, 1, 1)]
    assert read_trace(trace(JSONL), length_scale=2.0)[0] == Arrival(0.0, 18, 10)


def test_max_requests_takes_the_earliest(trace):
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n7,1,1\n5,2,2\n6,3,3\n"
    assert [arrival.prompt_tokens for arrival in read_trace(trace(text), max_requests=2)] == [2, 3]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"timestamp": 1, "input_length": 2}', "line 1: output_length=None"),
        ('{"timestamp": 1, "input_length": -2, "output_length": 1}', "line 1: input_length=-2"),
        ('{"timestamp": 1, "input_length": 2.5, "output_length": 1}', "line 1: input_length=2.5"),
        ('{"timestamp": 1, "input_length": true, "output_length": 1}', "line 1: input_length=True"),
        ('{"timestamp": null, "input_length": 2, "output_length": 1}', "line 1: timestamp=None"),
        ('{"timestamp": "noon", "input_length": 2, "output_length": 1}', "line 1: timestamp='noon'"),
        ('{"timestamp": NaN, "input_length": 2, "output_length": 1}', "line 1: timestamp=nan"),
        (JSONL + "[1, 2]", "line 4: '[1, 2]'"),
        (JSONL + "{broken", "line 4: not JSON"),
        (AZURE + "2023-11-16 18:19:00,many,7\n", "line 5: ContextTokens='many'"),
        (AZURE + "2023-11-16 18:19:00,5\n", "line 5: GeneratedTokens=None"),
        (AZURE + "teatime,5,5\n", "line 5: TIMESTAMP='teatime'"),
        ("when,how much\n1,2\n", "absent: ContextTokens, GeneratedTokens, TIMESTAMP"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "holds no arrival"),
        ("", "is empty"),
        ("\n \n", "is empty"),
    ],
)
def test_a_bad_trace_is_refused_with_file_line_and_value(trace, text, names):
    path = trace(text)
    with pytest.raises(ConfigError) as caught:
        read_trace(path)
    assert names in caught.value.message
    assert str(path) in caught.value.message


def test_a_file_that_is_not_there_or_not_text_is_refused_by_name(tmp_path):
    with pytest.raises(ConfigError, match=r"can't read .*nowhere\.csv: No such file"):
        read_trace(tmp_path / "nowhere.csv")
    (tmp_path / "model.bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"model\.bin isn't a text file"):
        read_trace(tmp_path / "model.bin")


@pytest.mark.parametrize("name", ["time_scale", "length_scale"])
@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_that_makes_nothing_of_time_or_length_is_refused(trace, name, scale):
    with pytest.raises(ConfigError, match=f"{name}=.* must be above 0"):
        read_trace(trace(JSONL), **{name: scale})


def test_max_requests_of_nobody_is_refused(trace):
    with pytest.raises(ConfigError, match="max_requests=0"):
        read_trace(trace(JSONL), max_requests=0)
