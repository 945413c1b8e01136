"""Text as people write it, in Python and on the command line by one rule."""

import datetime
import gzip
import io
import json
import math
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import vertebra as vb
from vertebra.cli.app import app
from vertebra.tables.column import as_read, describe, read
from vertebra.tables.endings import ENDINGS, BadTable
from vertebra.tables.schema import Schema, learn
from vertebra.tables.tablefile import read_table
from vertebra.tables.written import number_written, text_of, told


@pytest.mark.parametrize(
    ("text", "decimal", "number"),
    [
        ("12", ".", 12.0),
        (" -3.5e2 ", ".", -350.0),
        ("1,234", ".", 1234.0),
        ("1,234,567.5", ".", 1234567.5),
        ("12,5", ".", None),
        ("12,5", ",", 12.5),
        ("1.234,50 €", ",", 1234.5),
        ("1 234,5", ",", 1234.5),
        ("1’234.50", ".", 1234.5),
        ("$1,000", ".", 1000.0),
        ("-$5", ".", -5.0),
        ("$-5", ".", -5.0),
        ("USD 12", ".", 12.0),
        ("12 %", ".", 12.0),
        ("(250)", ".", -250.0),
        ("−3", ".", -3.0),
        (".5", ".", 0.5),
        ("12 kg", ".", None),
        ("1,23,456", ".", None),
        ("3 4", ".", None),
        ("", ".", math.nan),
        ("n/a", ".", math.nan),
        ("unknown", ".", math.nan),
        ("$", ".", None),
        ("many", ".", None),
    ],
)
def test_a_number_is_read_as_it_is_written(text, decimal, number):
    assert number_written(text, decimal) == pytest.approx(number, nan_ok=True)


@pytest.mark.parametrize(
    ("values", "kind", "decimal"),
    [
        (["1", "2.5", " ", "n/a"], "number", "."),
        (["1,5", "2,25"], "number", ","),
        (["1,234", "2,345"], "number", "."),  # thousands, unless the mark is known
        (["1.234,5", "7"], "number", ","),
        (["$5", "7"], "number", "."),
        (["12%", "7%"], "number", "."),
        (["12%", "7"], "category", "."),  # per cent of what?
        (["$5", "7 €"], "category", "."),
        (["01234", "94110"], "category", "."),  # a postcode
        (["0", "0.5", "10"], "number", "."),
        (["True", "FALSE", "true"], "boolean", "."),
        (["2024-05-31", "2024-06-01 12:00"], "datetime", "."),
        (["2024-13-31"], "category", "."),
        (["31.05.2024", "1.6.2024 12:00"], "datetime", "."),  # the day comes first
        (["31.05.2024", "06/01/2024"], "category", "."),
        (["12/31/2024", "01/02/2024 1:30 PM"], "datetime", "."),  # one row tells of all
        (["31/12/2024", "01-02-2024"], "datetime", "."),
        (["01/02/2024", "03/04/2024"], "category", "."),  # nothing tells
        (["31/12/2024", "12/31/2024"], "category", "."),
        (["Dec 31, 2024", "May 1 2024"], "datetime", "."),
        (["31-Dec-2024", "1 May 2024"], "datetime", "."),
        (["2024/12/31"], "datetime", "."),
        (["2010/01/01 00:00:00", "2010/1/1 5:00"], "datetime", "."),
        (["31 May 2024 14:30", "Jun 1, 2024 2:30 PM"], "datetime", "."),
        (["31.12.2023 4:05:10"], "datetime", "."),
        (["2024-05-31 4:30", "2024-6-1"], "datetime", "."),
        (["2024-05", "2025-12"], "datetime", "."),
        (["May 2024", "Jun-2024"], "datetime", "."),
        (["2009-10", "2010-11"], "category", "."),  # seasons
        (["2010-11", "2010-12"], "datetime", "."),
        (["2024-05", "2024-13"], "category", "."),
        (["12/31/24", "1/2/25 1:30 PM"], "datetime", "."),
        (["31/12/24", "1/2/25"], "category", "."),  # or the 24th of a year 31
        (["0.7", "1.2", "3", "4", "<0.5"], "number", "."),
        (["0,7", "1,2", "3", "4", "≥ 20,5"], "number", ","),
        (["<5", ">=5", "5"], "category", "."),  # bands
        (["0.7", "1.2", "3", "4", "<low"], "category", "."),
        (["a", "1"], "category", "."),
        (["none", "some"], "category", "."),
    ],
)
def test_text_is_told_by_all_of_its_values(values, kind, decimal):
    found = told(values)
    assert (found.kind, found.decimal) == (kind, decimal)


def test_words_for_gaps_are_said_and_a_column_that_one_value_spoils_too():
    numbers = [str(k) for k in range(40)]
    with pytest.warns(UserWarning, match=r"The column 'a' holds numbers, and 'unknown': read as gaps."):
        schema = learn(pd.DataFrame({"a": [*numbers, "unknown"]}))
    assert schema.columns[0].kind == "number"
    assert np.isnan(schema.matrix(pd.DataFrame({"a": ["unknown", "3"]}))[:, 0]).tolist() == [True, False]
    words = "is text, read as levels: most of it is numbers, but not '12 units'. Correct it, or make it a gap: `missing"
    with pytest.warns(UserWarning, match=words):
        assert learn(pd.DataFrame({"a": [*numbers, "12 units"]})).columns[0].kind == "category"


def test_dates_with_slashes_are_read_as_the_column_shows_and_so_in_one_row():
    days = pd.Series(pd.date_range("2024-01-01", periods=60))
    for form, order in (("%m/%d/%Y", "month"), ("%d/%m/%Y", "day"), ("%d-%m-%Y", "day")):
        schema = learn(pd.DataFrame({"day": days.dt.strftime(form)}))
        schema = Schema.from_json(json.loads(json.dumps(schema.to_json())))
        assert {column.order for column in schema.columns} == {order}
        iso = schema.matrix(pd.DataFrame({"day": days.dt.strftime("%Y-%m-%d")}))
        np.testing.assert_array_equal(schema.matrix(pd.DataFrame({"day": days.dt.strftime(form)})), iso)
        # the third of April, or the fourth of March: as in the fit
        np.testing.assert_array_equal(schema.matrix(pd.DataFrame({"day": [days[40].strftime(form)]})), iso[40:41])
    short = pd.DataFrame({"day": days.dt.strftime("%m/%d/%y %H:%M")})
    schema = learn(short)
    np.testing.assert_array_equal(schema.matrix(short), schema.matrix(days.to_frame("day")))
    np.testing.assert_array_equal(schema.matrix(short.iloc[40:41]), schema.matrix(short)[40:41])
    schema = learn(pd.DataFrame({"day": days.dt.strftime("%d-%m-%Y")}))
    with pytest.raises(ValueError, match="must hold dates or times that read one way only, got '02-13-2024'"):
        schema.matrix(pd.DataFrame({"day": ["02-13-2024"]}))
    with pytest.warns(UserWarning, match="'day' holds dates that read two ways, with the day first or the month"):
        assert learn(pd.DataFrame({"day": ["01/02/2024", "03/04/2024"]})).columns[0].kind == "category"


@pytest.mark.parametrize("form", ["%Y/%m/%d %H:%M:%S", "%d %B %Y %H:%M", "%b %d, %Y %I:%M %p", "%d.%m.%Y %H:%M"])
def test_dates_with_a_time_behind_them_are_instants(form):
    when = pd.Series(pd.date_range("2023-12-30 22:00", periods=90, freq="7h"), name="when")
    schema = learn(when.dt.strftime(form).to_frame())
    assert [column.part for column in schema.columns] == ["time", "month", "weekday", "hour"]
    np.testing.assert_array_equal(schema.matrix(when.dt.strftime(form).to_frame()), schema.matrix(when.to_frame()))


@pytest.mark.parametrize("form", ["%Y-%m", "%Y/%m", "%b %Y", "%B-%Y"])
def test_months_are_their_first_days(form):
    when = pd.Series(pd.date_range("2022-03-01", periods=30, freq="MS"), name="when")
    schema = learn(when.dt.strftime(form).to_frame())
    assert [column.part for column in schema.columns] == ["time", "month"]
    np.testing.assert_array_equal(schema.matrix(when.dt.strftime(form).to_frame()), schema.matrix(when.to_frame()))


def test_limits_of_a_laboratory_are_numbers_and_said_and_never_targets():
    values = [f"{k / 10}" for k in range(5, 45)] + ["<0.5", "< 0.5", ">4.4"]
    with pytest.warns(UserWarning, match=r"'crp' holds numbers, and '<0.5', '< 0.5', '>4.4': read as the limit itself"):
        schema = learn(pd.DataFrame({"crp": values}))
    ends = schema.columns[0].original(schema.matrix(pd.DataFrame({"crp": values}))[-3:, 0])
    np.testing.assert_allclose(ends, [0.5, 0.5, 4.4], rtol=1e-12)
    gaps = learn(pd.DataFrame({"crp": values[:-2]}), missing_values={"crp": ["<0.5"]})
    assert np.isnan(gaps.matrix(pd.DataFrame({"crp": ["<0.5"]})))[0, 0]
    frame = pd.DataFrame({"a": np.arange(43.0), "crp": values})
    with pytest.raises(ValueError, match="must be numbers"):
        vb.AdditiveRegressor().fit(frame, "crp")


def telco_like(n=300, seed=0):
    rng = np.random.default_rng(seed)
    months = rng.integers(0, 72, n)
    charges = rng.gamma(8.0, 8.0, n).round(2)
    total = (months * charges).round(2).astype(str)
    total[months == 0] = " "
    contract = rng.choice(["Month-to-month", "One year"], n)
    churn = rng.random(n) < 1.0 / (1.0 + np.exp(0.05 * months - 1.5 * (contract == "Month-to-month")))
    table = pd.DataFrame(
        {
            "customerID": [f"C{k:04d}" for k in range(n)],
            "Contract": contract,
            "MonthlyCharges": charges,
            "TotalCharges": total,
            "joined": (pd.Timestamp("2019-01-01") + pd.to_timedelta(months * 30, "D")).strftime("%Y-%m-%d"),
            "Churn": np.where(churn, "Yes", "No"),
        }
    )
    return table.astype({"TotalCharges": object})


def test_pandas_polars_arrow_and_a_file_are_one_table(tmp_path):
    pl = pytest.importorskip("polars")
    table = telco_like()
    table.to_csv(tmp_path / "telco.csv", index=False)
    schema = learn(table.drop(columns="Churn"))
    kinds = {column.name: column.kind for column in schema.columns}
    assert kinds["TotalCharges"] == "number"
    assert kinds["joined (time)"] == "number"
    assert schema.columns[3].has_missing
    others = (pl.from_pandas(table), pl.from_pandas(table).to_arrow(), pd.read_csv(tmp_path / "telco.csv"))
    for other in (*others, read_table(tmp_path / "telco.csv"), tmp_path / "telco.csv"):
        matrix = schema.matrix(other)
        np.testing.assert_array_equal(matrix, schema.matrix(table))
    assert learn(pd.read_csv(tmp_path / "telco.csv").drop(columns="Churn")) == schema


def test_a_table_is_fitted_by_the_name_of_its_file_or_of_its_target(tmp_path):
    pl = pytest.importorskip("polars")
    table = telco_like()
    table.to_csv(tmp_path / "telco.csv", index=False)
    x, y = table.drop(columns="Churn"), table["Churn"]
    settings = dict(clusters=[("Contract",), ("MonthlyCharges",), ("TotalCharges",)])
    apart = vb.AdditiveClassifier(**settings).fit(x, y)
    for X in (tmp_path / "telco.csv", str(tmp_path / "telco.csv"), table, pl.from_pandas(table)):
        model = vb.AdditiveClassifier(**settings).fit(X, "Churn")
        assert model.classes_.tolist() == ["No", "Yes"]
        assert model.target_names_ == ["Churn"]
        assert model.feature_names_in_.tolist() == x.columns.tolist()
        np.testing.assert_allclose(model.predict_proba(x), apart.predict_proba(x), rtol=1e-10)
    np.testing.assert_array_equal(model.predict_proba(tmp_path / "telco.csv"), model.predict_proba(table))
    assert model.evaluate(tmp_path / "telco.csv", "Churn") == apart.evaluate(x, y)


def test_a_frame_is_fitted_as_the_command_line_fits_its_file(tmp_path):
    table = telco_like()
    table.to_csv(tmp_path / "telco.csv", index=False)
    arguments = ["fit", str(tmp_path / "telco.csv"), "--target", "Churn", "--out", str(tmp_path / "m"), "--no-report"]
    assert (
        CliRunner().invoke(app, [*arguments, "--holdout", "0", "--quiet", "--drop", "customerID,joined"]).exit_code == 0
    )
    shell = vb.load(tmp_path / "m")
    ours = vb.AdditiveClassifier(random_state=0).fit(table.drop(columns=["customerID", "joined"]), "Churn")
    pd.testing.assert_frame_equal(ours.effects(), shell.effects())
    np.testing.assert_array_equal(ours.predict_proba(table), shell.predict_proba(table))


def test_targets_and_weights_are_named_and_rows_without_a_target_left_out(rng):
    frame = pd.DataFrame(rng.random((120, 3)), columns=["a", "b", "w"])
    frame["y"] = (2.0 * frame["a"] + rng.normal(0, 0.1, 120)).round(3).astype(str)
    frame.loc[[3, 7], "y"] = ["n.a.", None]
    kept = frame.drop(index=[3, 7]).astype({"y": float})
    with pytest.warns(UserWarning, match=r"2 rows without a target left out."):
        model = vb.AdditiveRegressor(clusters=[("a",), ("b",)]).fit(frame, "y", "w")
    other = vb.AdditiveRegressor(clusters=[("a",), ("b",)]).fit(kept[["a", "b"]], kept["y"], kept["w"])
    np.testing.assert_allclose(model.predict(frame), other.predict(frame), rtol=1e-10)
    assert list(model.feature_names_in_) == ["a", "b"]
    two = vb.AdditiveRegressor(clusters=[("a",)]).fit(kept, ["y", "b"])
    assert two.predict(kept).shape == (118, 2)
    with pytest.raises(ValueError, match=r"`y` must name a column of the table, got 'rent': there are a, b, w, y."):
        vb.AdditiveRegressor().fit(kept, "rent")
    with pytest.raises(ValueError, match=r"`y` names the column 'rent', and `X` has no names: pass a frame."):
        vb.AdditiveRegressor().fit(kept[["a"]].to_numpy(), "rent")
    with pytest.raises(ValueError, match="`sample_weight` must name a column of the table, got 'v'"):
        vb.AdditiveRegressor().fit(kept, "y", "v")


def test_what_is_read_is_the_same_for_a_column_by_itself():
    series = pd.Series(["1.234,5", "-", "7"], index=[5, 6, 7], name="p")
    assert text_of(series, "p").decimal == ","
    pd.testing.assert_series_equal(as_read(series, "p"), pd.Series([1234.5, np.nan, 7.0], index=[5, 6, 7], name="p"))
    dates = as_read(pd.Series(["2024-05-31", None]), "d")
    assert dates[0] == datetime.datetime(2024, 5, 31)
    assert dates.isna().tolist() == [False, True]
    assert as_read(pd.Series(["True", None, "FALSE"]), "b").tolist()[::2] == [True, False]


def test_a_model_of_decimal_commas_reads_them_again_after_loading(tmp_path, rng):
    size = rng.uniform(20, 2000, 200).round(1)
    frame = pd.DataFrame({"size": [f"{each:,.1f}".translate(str.maketrans(",.", ".,")) for each in size]})
    y = 0.1 * size + rng.normal(0, 1.0, 200)
    model = vb.AdditiveRegressor(clusters=[("size",)]).fit(frame, y)
    model.save(tmp_path / "m.vertebra")
    for each in (model, vb.load(tmp_path / "m.vertebra")):
        # by itself the text may be 1.234 or 1,234
        assert each.predict(pd.DataFrame({"size": ["1.234"]}))[0] == pytest.approx(123.4, abs=2.0)
        np.testing.assert_allclose(each.predict(pd.DataFrame({"size": [1234.0]})), each.predict([["1.234"]]))


# --- files ------------------------------------------------------------------------------------------------------------

TABLE = pd.DataFrame(
    {"Größe": [12.5, 80.0, 1234.5], "Ort": ["Köln", "Trier", "Ulm"], "PLZ": ["01234", "54290", "89073"]}
)


def german(sep=";"):
    rows = ["12,5;Köln;01234", "80;Trier;54290", "1.234,5;Ulm;89073"]
    return "\n".join(["Größe;Ort;PLZ", *rows]).replace(";", sep) + "\n"


@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        ("utf-8", "separated by semicolons"),
        ("utf-8-sig", "separated by semicolons"),
        ("utf-16", "separated by semicolons"),
        ("utf-16-le", "separated by semicolons"),
        ("cp1252", "is not UTF-8: read as Windows-1252"),
    ],
)
def test_a_german_spreadsheets_csv_is_read_as_it_is(encoding, words, tmp_path):
    (tmp_path / "a.csv").write_bytes(german().encode(encoding))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        frame = read_table(tmp_path / "a.csv")
    for each in (words, "numbers are taken to have decimal commas"):
        assert any(each in str(own.message) for own in said)
    pd.testing.assert_frame_equal(frame, TABLE, check_dtype=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # who says it is not told
        told = read_table(tmp_path / "a.csv", sep=";", encoding=encoding, decimal=",")
    pd.testing.assert_frame_equal(told, frame)


@pytest.mark.parametrize(
    ("name", "sep"), [("a.csv", "\t"), ("a.txt", "\t"), ("a.tsv", "\t"), ("a.csv", "|"), ("a.dat", " ")]
)
def test_the_mark_between_fields_is_found(name, sep, tmp_path):
    (tmp_path / name).write_text("size rent\n50 700.5\n80 1100.0\n".replace(" ", sep))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert read_table(tmp_path / name).to_dict("list") == {"size": [50, 80], "rent": [700.5, 1100.0]}
    assert len(said) == (name == "a.csv")


def test_columns_of_whitespace_are_aligned(tmp_path):
    (tmp_path / "a.txt").write_text("  size   rent\n   50  700.5\n  180   99.0\n")
    assert read_table(tmp_path / "a.txt").to_dict("list") == {"size": [50, 180], "rent": [700.5, 99.0]}


def test_a_file_without_names_or_with_lines_above_them_is_told(tmp_path):
    (tmp_path / "a.csv").write_text("1,2.5\n3,4.5\n")
    with pytest.warns(UserWarning, match="the first line has no names, only numbers: columns are called x0, x1"):
        assert read_table(tmp_path / "a.csv").to_dict("list") == {"x0": [1, 3], "x1": [2.5, 4.5]}
    (tmp_path / "b.csv").write_text("Report of May\n\nsize,rent,city\n50,700,Bonn\n80,1100,Kiel\n")
    with pytest.warns(UserWarning, match="names are taken from line 3; what stands above it is passed over"):
        assert read_table(tmp_path / "b.csv")["rent"].tolist() == [700, 1100]
    (tmp_path / "c.csv").write_text("2019,2020\n5,6\n7,8\n")
    assert read_table(tmp_path / "c.csv").columns.tolist() == ["2019", "2020"]


def test_other_files_are_read_too(tmp_path):
    frame = pd.DataFrame({"size": [50, 80], "city": ["Bonn", None]})
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    frame.to_json(tmp_path / "a.json", orient="records")
    frame.to_feather(tmp_path / "a.feather")
    frame.to_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(frame.to_csv(index=False, sep="\t").encode()))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("folder/table.csv", frame.to_csv(index=False))
        archive.writestr("folder/readme.md", "words")
    for path in tmp_path.iterdir():
        found = read_table(path)
        assert found["size"].tolist() == [50, 80]
        assert found["city"].isna().tolist() == [False, True]
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a.csv", "x\n1\n")
        archive.writestr("b.csv", "x\n1\n")
    with pytest.raises(BadTable, match=r"two.zip must hold one table, and holds a.csv, b.csv: unpack it, and name"):
        read_table(tmp_path / "two.zip")
    (tmp_path / "bad.json").write_text(json.dumps({"a": 1})[:-1])
    with pytest.raises(BadTable, match=r"bad.json cannot be read as JSON"):
        read_table(tmp_path / "bad.json")


def test_a_sheet_of_excel_is_chosen_and_its_title_passed_over(tmp_path):
    pytest.importorskip("openpyxl")
    sheet = pd.DataFrame([["Flats of May", None, None], [None] * 3, ["size", "city", "day"]])
    rows = [[50, "Bonn", pd.Timestamp("2024-05-31")], [80.5, None, pd.Timestamp("2024-06-01")]]
    with pd.ExcelWriter(tmp_path / "a.xlsx") as book:
        pd.concat([sheet, pd.DataFrame(rows)]).to_excel(book, sheet_name="May", index=False, header=False)
        pd.DataFrame({"x": [1, 2]}).to_excel(book, sheet_name="June", index=False)
    with pytest.warns(UserWarning, match=r"the sheet 'May' is read, of 'May', 'June'."):
        frame = read_table(tmp_path / "a.xlsx")
    assert frame["size"].tolist() == [50.0, 80.5]
    assert frame["city"].isna().tolist() == [False, True]
    assert learn(frame).columns[-1].source == "day"
    assert read_table(tmp_path / "a.xlsx", sheet="June")["x"].tolist() == [1, 2]
    assert read_table(tmp_path / "a.xlsx", sheet=2)["x"].tolist() == [1, 2]
    with pytest.raises(BadTable, match=r"has no sheet 'July': there are 'May', 'June'."):
        read_table(tmp_path / "a.xlsx", sheet="July")


def test_what_is_no_table_is_refused_in_a_line(tmp_path):
    for name, words in (("a.xls", r"Save it as .xlsx, or as CSV."), ("a.md", f"a table must end in {ENDINGS[0]}, ")):
        with pytest.raises(BadTable, match=words):
            read_table(tmp_path / name)
    with pytest.raises(BadTable, match="there is no such file"):
        read_table(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    with pytest.raises(BadTable, match=r"the decimal mark must be '.' or ',', got ';'"):
        read_table(tmp_path / "a.csv", decimal=";")
    with pytest.raises(BadTable, match="'utf-9' is not the name of an encoding"):
        read_table(tmp_path / "a.csv", encoding="utf-9")
    (tmp_path / "b.csv").write_bytes("x,y\né,2\n".encode("cp1252"))
    with pytest.raises(BadTable, match="is not text in UTF-8: give another encoding"):
        read_table(tmp_path / "b.csv", encoding="utf-8")
    (tmp_path / "e.csv").write_text("")
    with pytest.raises(BadTable, match="is empty"):
        read_table(tmp_path / "e.csv")
    buffer = io.BytesIO()
    pd.DataFrame({"x": [1]}).to_csv(buffer, index=False)
    (tmp_path / "z.zip").write_bytes(buffer.getvalue())
    with pytest.raises(BadTable, match=r"z.zip is no zip archive"):
        read_table(tmp_path / "z.zip")


def test_dates_with_points_are_dates_and_no_numbers_with_marks_of_thousands(tmp_path):
    (file := tmp_path / "sales.csv").write_text(
        "".join(
            ["day;price;sold\n", *(f"{d:02d}.{m}.2023;{d},5;{d}.123.456,0\n" for m in (1, 11) for d in range(1, 29))]
        )
    )
    frame = read_table(file, sep=";", decimal=",")
    assert frame["sold"].iloc[0] == 1_123_456.0
    (time, *parts) = describe(frame["day"], "day", None, np.ones(len(frame)), is_array=False)
    assert [time.name, *(each.name for each in parts)] == ["day (time)", "day (month)", "day (weekday)"]
    # the day comes first, also where both readings are dates: 02.11.2023 is in November
    when = pd.to_datetime(frame["day"].astype(str), format="mixed", dayfirst=True)
    assert read(frame["day"], [time])[0].tolist() == [(each - pd.Timestamp(0)).days for each in when]
    assert told(["31.02.2023", "01.02.2023"]).kind == "category"
