"""The page in a browser: its own words only, by keyboard, on a phone, without a network.

Skipped where there is no Chromium with its driver, or no selenium (the extra ``browser``).
"""

from __future__ import annotations

import json
import shutil

import pytest

from sembridge.verdict import Verdict
from tests.paper_figs.sample import HOSTILE, sample_cases, sample_page

pytest.importorskip("selenium", reason="selenium is not installed (extra: browser)")

from selenium.webdriver import Chrome, ChromeOptions, ChromeService, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")

pytestmark = [
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver here"),
    # Selenium leaves its connection to the driver for the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--no-first-run",
)
WIDTHS = (320, 390, 820, 1300)


@pytest.fixture(scope="module")
def sampled():
    return sample_cases()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = ChromeOptions()
    options.binary_location = CHROMIUM
    for switch in (*SWITCHES, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def address(tmp_path_factory, sampled):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_bytes(sample_page(sampled))
    return path.as_uri()


@pytest.fixture
def page(browser, address):
    """The page, freshly loaded on a desk; after each test nothing was fetched or complained of."""
    sized(browser, 1300)
    browser.get("about:blank")
    for log in ("browser", "performance"):
        browser.get_log(log)
    browser.get(address)
    yield browser
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
    fetched = {e["request"]["url"] for e in sent if e["documentURL"].startswith("file:")}
    assert all(url.startswith(("file:", "data:")) for url in fetched), fetched
    assert {url.partition("#")[0] for url in fetched if url.startswith("file:")} <= {address}


def sized(browser, width, dark=False):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def one(browser, selector):
    return browser.find_element(By.CSS_SELECTOR, selector)


def active(browser):
    return browser.switch_to.active_element


def picked(browser, case, plan):
    Select(one(browser, "#case")).select_by_value(str(case))
    browser.find_elements(By.CSS_SELECTOR, "input[name=plan]")[plan].click()


def test_shown_verdicts_are_the_checkers(page, sampled):
    for i, case in [*enumerate(sampled)][::2]:
        runs = [*case.runs.values(), *(m.run for m in case.mutants)]
        for j, run in enumerate(runs):
            picked(page, i, j)
            assert one(page, "#shown-verdict").text == (
                "✓ legal" if run.verdict is Verdict.LEGAL else "✗ illegal"
            )
            for rule in {v.rule for v in run.violations}:
                assert rule in one(page, "#verdict").text
            shown = page.find_elements(By.CSS_SELECTOR, "#counterexample h3")
            assert bool(shown) == bool(run.counterexample)


def test_keys_step_through_the_checker(page, sampled):
    run = sampled[0].runs["reference"]
    picked(page, 0, list(sampled[0].runs).index("reference"))
    one(page, "#steps button[tabindex='0']").click()
    for number, step in enumerate(run.steps):
        assert active(page).get_attribute("aria-current") == "step"
        assert f"Step {number} of {len(run.steps) - 1}." in one(page, "#said").text
        changed = page.find_elements(By.CSS_SELECTOR, "#held tr.changed")
        assert len(changed) == len(step.held)
        active(page).send_keys(Keys.ARROW_DOWN if number % 2 else Keys.ARROW_RIGHT)
    active(page).send_keys(Keys.HOME)
    assert "Step 0 of" in one(page, "#said").text
    active(page).send_keys(Keys.END)
    assert one(page, "#next").get_attribute("disabled")
    active(page).send_keys(Keys.ARROW_UP)
    assert f"Step {len(run.steps) - 2} of" in one(page, "#said").text


def test_everything_is_reached_by_tab_and_seen(page):
    picked(page, 0, 0)
    one(page, "#next").click()
    reached = set()
    page.execute_script("document.querySelector('.skip').focus()")
    active(page).send_keys(Keys.TAB)
    for _ in range(400):
        at = active(page)
        if at.tag_name == "body":
            break
        # What has the focus is outlined.
        outlined = page.execute_script("return getComputedStyle(arguments[0]).outlineStyle", at)
        assert outlined != "none", at.get_attribute("outerHTML")
        reached.add(at.get_attribute("id") or at.get_attribute("name") or at.tag_name)
        at.send_keys(Keys.TAB)
    assert {"case", "plan", "next", "button", "summary", "a"} <= reached
    plans = page.find_elements(By.CSS_SELECTOR, "input[name=plan]")
    plans[0].send_keys(Keys.ARROW_DOWN)
    assert plans[1].is_selected()
    named = page.execute_script(
        "return [...document.querySelectorAll('#app button, #app select, #app input, [tabindex]')]"
        ".filter(e => !(e.textContent.trim() || e.ariaLabel || (e.labels && e.labels.length)))"
        ".length"
    )
    assert named == 0


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_no_width_scrolls_sideways_and_all_text_contrasts(page, sampled, width, dark):
    sized(page, width, dark)
    page.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
    for i in range(0, len(sampled), 3):
        picked(page, i, 0)
        assert page.execute_script("return document.documentElement.scrollWidth") <= width
    for selector in ("body", ".legal", ".differs", ".not-validated", "small", "a", ".hint"):
        assert page.execute_script(CONTRAST, one(page, selector)) >= 4.5, selector


CONTRAST = """
const light = (rgb) => rgb.match(/[0-9.]+/g).slice(0, 3).map(Number).map((v) => v / 255)
  .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const text = light(getComputedStyle(arguments[0]).color);
const behind = light(getComputedStyle(document.body).backgroundColor);
return (Math.max(text, behind) + 0.05) / (Math.min(text, behind) + 0.05);
"""


def test_hostile_names_are_text(page, sampled):
    last = len(sampled) - 1
    for j in range(len(sampled[last].runs) + len(sampled[last].mutants)):
        picked(page, last, j)
        one(page, "#last").click()
    assert page.title.startswith("SemBridge")
    shown = one(page, "#held").text
    assert HOSTILE[0] in shown
    assert HOSTILE[1] in shown
    assert page.execute_script("return document.querySelectorAll('img[src=x], script').length") == 2


def test_an_address_leads_to_a_case_a_plan_and_a_step(page, sampled, address):
    page.get(f"{address}#case=1&plan=byte-only&step=1")
    assert Select(one(page, "#case")).first_selected_option.text == sampled[1].name
    assert one(page, "input[name=plan]:checked").get_attribute("value") == "byte-only"
    assert "Step 1 of" in one(page, "#said").text
    page.execute_script("location.hash = 'case=__proto__&plan=constructor&step=-7'")
    page.execute_script("location.hash = 'case=2&plan=constructor&step=1e9'")
    page.execute_async_script("setTimeout(arguments[0], 0)")
    assert Select(one(page, "#case")).first_selected_option.text == sampled[2].name


def test_without_script_claims_and_verdicts_stand(page, address):
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page.get(address)
        text = one(page, "body").text
        assert "needs JavaScript" in text
        assert "reported by the paper" in text
        assert not one(page, "#app").is_displayed()
    finally:
        page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
