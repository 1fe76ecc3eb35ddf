"""The report in a real browser: it draws, its filters work, by keyboard and on a phone, in print, in light and dark, without a network."""

import base64
import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.color import Color
from selenium.webdriver.support.ui import Select, WebDriverWait

from autotune.database import Database
from autotune.database.kernel_tuner import import_cache
from autotune.database.kernel_tuner_cache import read_cache
from autotune.problem import Problem
from autotune.report.data import collect
from autotune.report.page import page
from autotune.trial import Outcome, Round
from tests.browser import CHROMEDRIVER, CHROMIUM
from tests.database_samples import DEVICE, FAST, SOURCE, begin, record
from tests.report_samples import MARKUP, SIZES, measured
from tests.test_kernel_tuner_files import ENTRIES, written
from tests.test_report import RESULTS, contrast

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    with Database(measured(folder / "measured.sqlite"), mode="read") as database:
        series, content = collect(database), database.content_hash()
    target = folder / "report.html"
    target.write_text(page(series, "measured.sqlite", content), encoding="utf-8")
    return target


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,900"):
        options.add_argument(argument)
    if os.getuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium refuses to run as root with it
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(CHROMEDRIVER)))
    yield driver
    driver.quit()


def opened(browser: webdriver.Chrome, report: Path, *, width: int = 1200, scheme: str = "light") -> None:
    """Open the page anew and wait until it has drawn."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": features})
    browser.get(report.as_uri())
    wait(browser, "return document.body.classList.contains('ready')")


def wait(browser: webdriver.Chrome, script: str) -> None:
    WebDriverWait(browser, 30, poll_frequency=0.05).until(lambda driver: driver.execute_script(script))


def choose(browser: webdriver.Chrome, name: str, value: str) -> None:
    Select(browser.find_element(By.NAME, name)).select_by_visible_text(value)
    device, dtype, size = (Select(browser.find_element(By.NAME, n)).first_selected_option.text for n in ("device", "dtype", "size"))
    wait(browser, f"return document.body.dataset.shown === '{device}|{dtype}|{size}'")


def offered(browser: webdriver.Chrome, name: str) -> list[str]:
    return [option.text for option in Select(browser.find_element(By.NAME, name)).options]


def marks(browser: webdriver.Chrome, chart: str, kind: str = "symbol") -> int:
    """How many discs (`symbol`) or bars (`rect`) a chart has, its legend aside."""
    return len(browser.find_elements(By.CSS_SELECTOR, f"{chart} svg .mark-{kind}:not(.role-legend-symbol) path"))


def focused(browser: webdriver.Chrome) -> WebElement:
    return browser.switch_to.active_element


def colour(browser: webdriver.Chrome, selector: str, name: str) -> str:
    """A computed colour as #rrggbb."""
    return str(Color.from_string(browser.find_element(By.CSS_SELECTOR, selector).value_of_css_property(name)).hex)


def test_it_draws_everything_without_a_complaint_or_a_request(browser: webdriver.Chrome, report: Path) -> None:
    opened(browser, report)
    choose(browser, "device", "Test GPU")
    choose(browser, "dtype", "float32")
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert marks(browser, "#plane") == len(SIZES) + 1  # the ring that says which is chosen
    assert marks(browser, "#plane", "rect") > len(SIZES)
    assert marks(browser, "#shares") == 3 * len(SIZES)
    assert marks(browser, "#convergence") >= 2
    assert marks(browser, "#failures", "rect") == 4
    charts = browser.find_elements(By.CSS_SELECTOR, "#effects .chart")
    assert [figure.text for figure in browser.find_elements(By.CSS_SELECTOR, "#effects h3")] == ["block", "vector"]
    assert all(chart.find_elements(By.CSS_SELECTOR, "svg .mark-symbol path") for chart in charts)
    assert "Best: v3 at" in browser.find_element(By.CSS_SELECTOR, "#plane + figcaption").text
    assert "nvcc 13.0" in browser.find_element(By.ID, "provenance-table").text


def test_the_shipped_database_draws_too(browser: webdriver.Chrome, tmp_path: Path) -> None:
    with Database(RESULTS, mode="read") as database:
        series = collect(database)
    (tmp_path / "shipped.html").write_text(page(series, RESULTS.name, ""), encoding="utf-8")
    opened(browser, tmp_path / "shipped.html")
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
    assert offered(browser, "dtype") == ["bfloat16", "float16", "float32"]
    (first,) = [one for one in series if one["dtype"] == "float32"]
    assert len(first["problems"]) == first["sizes_in_all"]
    assert marks(browser, "#plane") == len(first["problems"]) + 1
    assert marks(browser, "#shares") > len(first["problems"])
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    long, *_, short = browser.find_elements(By.CSS_SELECTOR, "details:not([hidden]):has(tbody tr)")
    assert (long.get_attribute("open"), short.get_attribute("open")) == (None, "true")  # four hundred rows are no page
    browser.execute_script("dispatchEvent(new Event('afterprint'))")


def test_a_page_that_shows_only_some_sizes_says_so(
    browser: webdriver.Chrome, report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(browser, report)
    assert not browser.find_element(By.ID, "sampled").is_displayed()
    monkeypatch.setattr("autotune.report.data.MOST_SIZES", 3)
    with Database(measured(tmp_path / "x.sqlite"), mode="read") as database:
        (tmp_path / "some.html").write_text(page(collect(database, "Test GPU", "float32"), "x.sqlite"), encoding="utf-8")
    opened(browser, tmp_path / "some.html")
    assert "of 3 of the 5 sizes" in browser.find_element(By.ID, "sampled").text
    assert "with 54 of the 90 trials" in browser.find_element(By.ID, "sampled").text
    assert browser.find_element(By.CSS_SELECTOR, "#figures dd").text == "5"
    assert marks(browser, "#plane") >= 3
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


def test_one_size_of_another_tuner_draws_too(browser: webdriver.Chrome, tmp_path: Path) -> None:
    with Database(tmp_path / "x.sqlite", create=True) as database:
        import_cache(database, read_cache(written(tmp_path / "cache.json", ENTRIES)))
        (tmp_path / "one.html").write_text(page(collect(database), "x.sqlite", ""), encoding="utf-8")
    opened(browser, tmp_path / "one.html")
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
    assert re.fullmatch(r"Only \S+ was tuned; from the second size on .*", browser.find_element(By.ID, "plane").text)
    assert browser.find_element(By.ID, "shares").text.startswith("No copy was timed")


def edge(path: Path, sizes: dict[tuple[int, int], float | None], name: str = DEVICE.name) -> Path:
    """A page on one configuration at these sizes: its time in microseconds there, None where it failed."""
    device = dataclasses.replace(DEVICE, name=name)
    with Database(path.with_suffix(".sqlite"), create=True) as database:
        run = begin(database, device)
        for (rows, cols), time_us in sizes.items():
            problem = Problem("softmax", rows, cols)
            if time_us is None:
                database.record(run, problem, FAST, SOURCE.sha, Outcome.TIMEOUT, message="it hung " * 100)
            else:
                record(database, run, FAST, [Round("final", (time_us, 1.01 * time_us), 16)], problem=problem)
        path.write_text(page(collect(database), path.stem, ""), encoding="utf-8")
    return path


EDGES: dict[str, tuple[dict[tuple[int, int], float | None], str]] = {
    "one trial": ({(4096, 4096): 40.0}, "Test GPU"),
    "failures alone": ({(4096, 4096): None, (1, 1): None}, "Test GPU"),
    "extremes": (
        {(1, 1): 1e-3, (10**9, 1): 9e11, (1, 10**9): 3.5, (1 << 20, 1 << 19): None},
        " ".join(["An Accelerator With Very Many Words"] * 5),
    ),
}


LABELS = "return [...arguments[0].querySelectorAll('text')].map((label) => label.textContent).filter(Boolean)"


@pytest.mark.parametrize("name", EDGES)
def test_a_page_on_little_or_on_extremes_fits_and_repeats_no_label(browser: webdriver.Chrome, tmp_path: Path, name: str) -> None:
    sizes, device = EDGES[name]
    opened(browser, edge(tmp_path / "edge.html", sizes, device), width=360)
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
    for summary in browser.find_elements(By.CSS_SELECTOR, "details:not([hidden]) > summary"):
        summary.click()
    assert browser.execute_script("return document.documentElement.scrollWidth") == 360
    ran = sum(time_us is not None for time_us in sizes.values())
    assert marks(browser, "#plane") in (
        (ran, ran + 1) if ran > 1 else (0,)
    )  # one size makes no plane; with the ring around the chosen one, if that ran
    for axis in browser.find_elements(By.CSS_SELECTOR, ".chart svg .role-axis-label"):
        labels = [
            text
            for text in browser.execute_script("return [...arguments[0].querySelectorAll('text')].map(t => t.textContent)", axis)
            if text
        ]
        assert len(labels) == len(set(labels)), labels
    for table in browser.find_elements(By.CSS_SELECTOR, "details:not([hidden]) table"):
        assert table.find_elements(By.CSS_SELECTOR, "tbody tr")
    for size in offered(browser, "size"):
        choose(browser, "size", size)
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


def test_each_filter_offers_what_the_ones_before_it_leave(browser: webdriver.Chrome, report: Path) -> None:
    opened(browser, report)
    assert offered(browser, "device") == ["Other GPU", "Test GPU", "emulator"]
    assert offered(browser, "dtype") == ["float32"]
    choose(browser, "device", "Test GPU")
    assert offered(browser, "dtype") == ["bfloat16", "float32"]
    choose(browser, "dtype", "bfloat16")
    assert offered(browser, "size") == [f"{rows}x{cols}" for rows, cols in SIZES[:3]]
    assert marks(browser, "#shares") == 3 * 3
    choose(browser, "size", "64x1024")
    assert [place.text for place in browser.find_elements(By.CSS_SELECTOR, "span.size")] == ["64x1024"] * 2


def test_without_a_copy_the_chart_says_why_it_is_empty(browser: webdriver.Chrome, report: Path) -> None:
    opened(browser, report)
    choose(browser, "device", "emulator")
    assert browser.find_element(By.ID, "shares").text.startswith("No copy was timed")
    assert marks(browser, "#plane") == 2 + 1
    choose(browser, "device", "Other GPU")
    assert marks(browser, "#shares") == 3 * 4


def test_a_disc_chooses_its_size(browser: webdriver.Chrome, report: Path) -> None:
    opened(browser, report)
    choose(browser, "device", "Test GPU")
    choose(browser, "dtype", "float32")
    discs = browser.find_elements(By.CSS_SELECTOR, "#plane svg .mark-symbol.role-mark path[aria-label]")
    disc = next(d for d in discs if "1024x65536" in str(d.get_attribute("aria-label")))
    ActionChains(browser).move_to_element(disc).click().perform()
    wait(browser, "return document.body.dataset.shown.endsWith('|1024x65536')")
    assert Select(browser.find_element(By.NAME, "size")).first_selected_option.text == "1024x65536"


def test_everything_is_reached_and_worked_by_keyboard(browser: webdriver.Chrome, report: Path) -> None:
    opened(browser, report)
    stops: list[str] = []
    for _ in range(10):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        here = focused(browser)
        ring = browser.execute_script("const s = getComputedStyle(arguments[0]); return s.outlineStyle + s.outlineWidth", here)
        assert ring == "solid3px", stops
        stops.append(here.get_attribute("name") or here.text or here.tag_name)
    assert stops[:4] == ["Skip to the filters", "device", "dtype", "size"]
    assert stops[4:9] == [
        "Table of the best kernels",
        "Table of shares",
        "Table of parameters",
        "Table of improvements",
        "Table of reasons",
    ]
    browser.find_element(By.NAME, "device").send_keys(Keys.ARROW_DOWN)
    wait(browser, "return document.body.dataset.shown.startsWith('Test GPU')")
    summary = browser.find_element(By.CSS_SELECTOR, "summary")
    summary.send_keys(Keys.ENTER)
    assert browser.find_element(By.CSS_SELECTOR, "#plane-table tbody tr").is_displayed()


@pytest.mark.parametrize("width", [320, 360])
def test_on_a_phone_nothing_is_wider_than_the_screen(browser: webdriver.Chrome, report: Path, width: int) -> None:
    opened(browser, report, width=width)
    for summary in browser.find_elements(By.CSS_SELECTOR, "summary"):
        summary.click()
    assert browser.execute_script("return document.documentElement.scrollWidth") == width
    for chart in browser.find_elements(By.CSS_SELECTOR, ".chart svg"):
        assert 200 < chart.size["width"] <= width


def test_print_is_on_paper_with_its_tables_open_even_from_a_dark_screen(browser: webdriver.Chrome, report: Path) -> None:
    opened(browser, report, scheme="dark")
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    assert colour(browser, "body", "background-color") == "#ffffff"
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert not browser.find_element(By.CSS_SELECTOR, "summary").is_displayed()
    assert all(table.is_displayed() for table in browser.find_elements(By.CSS_SELECTOR, "main table"))
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert pdf.startswith(b"%PDF")
    assert pdf.count(b"/Type /Page\n") >= 2
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    assert not browser.find_elements(By.CSS_SELECTOR, "details[open]")


@pytest.mark.parametrize(("scheme", "paper"), [("light", "#ffffff"), ("dark", "#14171b")])
def test_text_of_page_and_charts_is_legible_in_light_and_dark(browser: webdriver.Chrome, report: Path, scheme: str, paper: str) -> None:
    opened(browser, report, scheme=scheme)
    assert colour(browser, "body", "background-color") == paper
    for selector in ("h1", "section > p", "figcaption", "summary", "dt"):
        assert contrast(colour(browser, selector, "color"), paper) >= 4.5, selector
    for selector in (".role-axis-label text", ".role-axis-title text", ".role-legend-label text"):
        assert contrast(colour(browser, f"#plane {selector}", "fill"), paper) >= 4.5, selector


def test_it_is_there_for_who_does_not_see_it(browser: webdriver.Chrome, report: Path) -> None:
    opened(browser, report)
    assert browser.execute_script("return document.documentElement.lang") == "en"
    assert len(browser.find_elements(By.TAG_NAME, "h1")) == 1
    for chart in browser.find_elements(By.CSS_SELECTOR, ".chart.vega-embed"):
        assert chart.get_attribute("role") == "graphics-document"
        assert len(str(chart.get_attribute("aria-label"))) > 20
    for table in browser.find_elements(By.CSS_SELECTOR, "main table"):
        assert table.find_elements(By.TAG_NAME, "caption")
        assert table.find_elements(By.CSS_SELECTOR, "th[scope=col]")
    assert all(select.accessible_name for select in browser.find_elements(By.TAG_NAME, "select") if select.is_displayed())
    assert browser.find_element(By.ID, "shown").text.startswith("Shown: Other GPU")


def test_text_from_the_database_is_never_markup(browser: webdriver.Chrome, report: Path) -> None:
    opened(browser, report)
    choose(browser, "device", "Test GPU")
    browser.execute_script("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert MARKUP in browser.find_element(By.ID, "failures-table").text
    assert not browser.find_elements(By.TAG_NAME, "img")
