"""Tables as files, and paths checked before any work."""

import pandas as pd
import pytest

from vertebra.tablefile import ENDINGS, Refused, encoded, nearest, new_files, read_table


@pytest.mark.parametrize("ending", ENDINGS)
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
    assert nearest("q", [f"column {i}" for i in range(11)]).endswith("column 9, ….")
