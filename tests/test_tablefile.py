"""Tables as files, and paths checked before any work."""

import gzip
import io
import sys
import warnings

import pandas as pd
import pytest

from vertebra.cli.tablefile import Refused, encoded, new_files, read_table
from vertebra.tables.endings import WRITTEN
from vertebra.tables.nearest import nearest


@pytest.mark.parametrize("ending", WRITTEN)
def test_what_is_written_is_read_again(ending, tmp_path):
    frame = pd.DataFrame({"x": [0.1, None, 1 / 3], "level": ["a", 'b, "c"', "é"], "n": [1, 2, 3]})
    (tmp_path / f"table{ending}").write_bytes(encoded(frame, ending))
    pd.testing.assert_frame_equal(read_table(str(tmp_path / f"table{ending}")), frame, check_exact=True)


def test_the_index_of_a_parquet_file_is_a_column_where_it_has_a_name(tmp_path):
    frame = pd.DataFrame({"x": [1, 2]}, index=pd.Index(["a", "b"], name="who"))
    frame.to_parquet(tmp_path / "a.parquet")
    assert read_table(str(tmp_path / "a.parquet")).columns.tolist() == ["who", "x"]


def test_a_folder_is_taken_away_only_if_it_was_made_here_and_stays_empty(tmp_path):
    with pytest.raises(KeyError), new_files(tmp_path / "new", ["a"], force=False):
        raise KeyError
    assert not (tmp_path / "new").exists()
    with new_files(tmp_path / "new", ["a"], force=False) as (path,):
        path.write_text("kept")
    with pytest.raises(Refused, match="is there already"), new_files(tmp_path / "new", ["a"], force=False):
        pass
    with new_files(tmp_path / "new", ["a"], force=True):
        pass
    assert (tmp_path / "new/a").read_text() == "kept"


def test_the_nearest_name_is_offered_or_all_there_are():
    assert nearest("Rant", ["size", "rent"]) == "; did you mean 'rent'?"
    assert nearest("qqq", ["size", "rent"]) == ": there are size, rent."
    assert nearest("qqq", ["size"]) == ": there is size."
    assert nearest("qqq", []) == "."
    many = nearest("q", [f"column {i}" for i in range(31)])
    assert many.endswith("column 24, …, column 26, column 27, column 28, column 29, column 30.")  # targets stand last
    words = nearest("default", ["LIMIT_BAL", "AGE", "default payment next month"])
    assert words == "; did you mean 'default payment next month'?"
    assert nearest("day", ["day (old)", "day (time)", "day (month)"]) == "; its parts are 'day (time)', 'day (month)'."


# --- rows and headers that are not what they should be ----------------------------------------------------------------


def test_short_rows_are_counted_and_the_first_is_named_by_its_line(tmp_path):
    # line 1 is blank, lines 4 and 5 are one row, and line 6 is complete: its last field is empty
    text = '\nx,level,y\n1,a,2\n2,"b\nc",3\n4,d,\n5,e\n\n6\n7,f,8\n'
    for ending, data in ((".csv", text.encode()), (".csv.gz", gzip.compress(text.encode()))):
        (tmp_path / f"short{ending}").write_bytes(data)
        words = "2 of 6 rows have fewer fields than the 3 columns, the first in line 7: what they lack is read as gaps."
        with pytest.warns(UserWarning, match=f"short{ending}: {words}") as said:
            frame = read_table(str(tmp_path / f"short{ending}"))
        assert len(said) == 1
        assert frame["y"].isna().tolist() == [False, False, True, True, True, False]


def test_gaps_in_the_last_column_are_no_short_rows(tmp_path):
    (tmp_path / "a.csv").write_text('x,y\n1,\n2,3\n"4",NA\n')
    assert read_table(str(tmp_path / "a.csv"))["y"].isna().sum() == 2
    (tmp_path / "one.csv").write_text("x\n1\n\n2\n")
    assert len(read_table(str(tmp_path / "one.csv"))) == 2


def test_a_table_of_mostly_short_rows_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("x,level,y\n1,2,3\n1,2\n3,4\n")
    with pytest.raises(Refused, match=r"2 of 3 rows have fewer fields than the 3 columns, the first in line 3: is the"):
        read_table(str(tmp_path / "a.csv"))


def test_short_rows_of_a_pipe_are_seen_too(monkeypatch):
    pipe = io.TextIOWrapper(io.BytesIO(b"x,y\n1,2\n3\n4,5\n"))
    monkeypatch.setattr(sys, "stdin", pipe)
    with pytest.warns(UserWarning, match="standard input: 1 of 3 rows has fewer fields than the 2 columns"):
        assert len(read_table("-")) == 3


@pytest.mark.parametrize(("text", "line"), [("x,y\n1,2\n\n3,4,5\n", 4), ("x,y\n1,2,3\n4,5,6\n", 2)])
def test_a_row_of_too_many_fields_is_named_by_its_line(text, line, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(Refused, match=f"line {line} has 3 fields, more than the 2 columns of the first line: quote"):
        read_table(str(tmp_path / "a.csv"))


def test_a_comma_behind_every_row_does_no_harm(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2,\n3,4,\n")
    assert read_table(str(tmp_path / "a.csv")).to_numpy().tolist() == [[1, 2], [3, 4]]


def test_names_that_are_there_twice_are_said_with_what_they_are_read_as(tmp_path):
    (tmp_path / "a.csv").write_text("\ufeffx,y,x,x,,x.1\n1,2,3,4,5,6\n", encoding="utf-8")
    words = r"a\.csv has more than one column 'x': the others are read as 'x\.2', 'x\.3'\."
    with pytest.warns(UserWarning, match=words) as said:
        frame = read_table(str(tmp_path / "a.csv"))
    assert len(said) == 1
    assert frame.columns.tolist() == ["x", "y", "x.2", "x.3", "Unnamed: 4", "x.1"]
    (tmp_path / "b.csv").write_text("x,y,Unnamed: 2\n1,2,3\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_table(str(tmp_path / "b.csv"))


def test_bytes_that_are_no_text_are_refused_with_their_line(tmp_path):
    (tmp_path / "nul.csv").write_bytes(b"x,y\n1,2\n3,4\x00\n")
    with pytest.raises(Refused, match=r"nul\.csv: line 3 holds a NUL byte: it is damaged, or no text in UTF-8"):
        read_table(str(tmp_path / "nul.csv"))
    (tmp_path / "wide.csv").write_bytes("x,y\n1,2\n".encode("utf-16-le"))
    assert read_table(str(tmp_path / "wide.csv")).to_numpy().tolist() == [[1, 2]]
    (tmp_path / "nul.csv.gz").write_bytes(gzip.compress(b"x,y\n1,2\n3,4\x00\n"))
    with pytest.raises(Refused, match="line 3 holds a NUL byte"):
        read_table(str(tmp_path / "nul.csv.gz"))


# --- files that spreadsheets open -------------------------------------------------------------------------------------

FORMULAS = ["=cmd|' /C calc'!A0", "+1+cmd", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1"]


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".csv.gz"])
def test_text_that_a_spreadsheet_would_run_has_an_apostrophe_before_it(ending):
    frame = pd.DataFrame({text: [text, "plain", None] for text in FORMULAS})
    frame["level"] = pd.Categorical(["=1", "b", "=1"])

    def read(data):
        text = io.BytesIO(gzip.decompress(data) if ending == ".csv.gz" else data)
        return pd.read_csv(text, sep="\t" if ending == ".tsv" else ",", lineterminator="\n")

    safe = read(encoded(frame, ending))
    assert safe.columns.tolist() == [*(f"'{text}" for text in FORMULAS), "level"]
    assert safe.iloc[0].tolist() == [*(f"'{text}" for text in FORMULAS), "'=1"]
    assert safe.iloc[1].tolist() == [*(["plain"] * len(FORMULAS)), "b"]
    assert safe.iloc[2, 0] != safe.iloc[2, 0]  # a gap stays one
    raw = read(encoded(frame, ending, is_raw=True))
    assert raw.columns.tolist() == frame.columns.tolist()
    assert raw.iloc[0].tolist() == frame.iloc[0].tolist()


def test_numbers_stay_numbers_and_parquet_is_as_it_was(tmp_path):
    frame = pd.DataFrame({"x": [-1.5, 2.0], "mixed": [-3, "=4"], "text": ["-1.5e-3", "+2"], -1: [True, False]})
    assert encoded(frame, ".csv").decode() == "x,mixed,text,-1\n-1.5,-3,-1.5e-3,True\n2.0,'=4,+2,False\n"
    table = pd.DataFrame({"=x": ["=1", "-2+3"]})
    (tmp_path / "a.parquet").write_bytes(encoded(table, ".parquet"))
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "a.parquet"), table)
    assert frame["mixed"].tolist() == [-3, "=4"]
