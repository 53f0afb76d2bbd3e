"""The page as a whole: what it is made of, what it may load and run, and how it is read."""

import base64
import hashlib
import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.support.report_samples import bad_report, state_report
from tests.unit.report_html.markup import read_page
from tests.unit.report_html.reports import entry, finding, fired, low_gpu, report
from trainguard.report.document import Headline, NotCollected, Report
from trainguard.report.html.page import breakable, render_page, sentence, with_times
from trainguard.report.html.render import render_report


def test_report_has_landmarks_and_a_skip_link() -> None:
    page = read_page(render_report(report(entry("BatchSize"))))
    assert [page.of(tag)[0].attributes.get("lang", tag) for tag in ("html", "header", "nav", "main", "footer")] == [
        "en",
        "header",
        "nav",
        "main",
        "footer",
    ]
    assert page.links[0] == "#content"
    assert page.by_id["content"].tag == "main"


@pytest.mark.parametrize("sample", [bad_report, state_report])
def test_page_policy_allows_only_its_own_style_and_script(
    sample: Callable[[], Report],
) -> None:
    page = render_report(sample())
    read = read_page(page)
    policy = next(each.attributes["content"] for each in read.of("meta") if "http-equiv" in each.attributes)
    rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    scripts = [each.text for each in read.of("script") if each.attributes.get("type") != "application/json"]
    assert rules == {
        "default-src": "'none'",
        "script-src": _allowed(scripts[0]),
        "style-src": _allowed(read.of("style")[0].text),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert len(read.of("style")) == 1
    assert len(scripts) == 1


def test_given_a_page_when_searched_then_it_names_no_other_place() -> None:
    page = render_report(state_report())
    assert set(re.findall(r"https?://[^\"'\s)]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert "@import" not in page
    assert "url(" not in read_page(page).of("style")[0].text


def test_each_verdict_level_has_its_word_and_sign() -> None:
    words = {}
    for level in ("healthy", "attention", "unhealthy", "unknown"):
        verdict = Headline(health="H.", change="C.", cost="M.", level=level)
        page = read_page(render_report(report(entry("BatchSize"), verdict=verdict)))
        heading = page.by_id["verdict-title"]
        signs = [each for each in page.within("h2", "use") if each.attributes["href"].startswith("#icon-")]
        words[heading.text.strip()] = signs[0].attributes["href"]
        assert [text in page.by_id["verdict"].text for text in ("H.", "C.", "M.")] == [True] * 3
    assert words == {
        "Healthy": "#icon-ok",
        "Needs attention": "#icon-warn",
        "Unhealthy": "#icon-bad",
        "Not known": "#icon-idle",
    }
    running = replace(report(entry("BatchSize"), verdict=Headline(health="", change="", cost="")), final=False)
    assert read_page(render_report(running)).by_id["verdict-title"].text.strip() == "Not known yet"


def test_key_figures_include_money_waste_gpus_and_time() -> None:
    text = " ".join(read_page(render_report(report(entry("BatchSize")))).text.split())
    for shown in ("Cost USD 11.75", "Wasted 75 % USD 8.80 of the paid time", "Duration 40 min"):
        assert shown in text
    assert "GPUs 16 2 \N{MULTIPLICATION SIGN} ml.p4d.24xlarge" in text


def test_rule_table_keeps_its_order_and_links_to_sections() -> None:
    rules = [fired("LowGPUUtilization", low_gpu(1, 2), changed=["window"]), entry("BatchSize"), entry("Dataloader")]
    page = read_page(render_report(report(*rules, findings=[finding("LowGPUUtilization")])))
    table = page.by_id["rules"].text
    assert table.index("LowGPU") < table.index("BatchSize") < table.index("Dataloader")
    assert page.by_id["rule-LowGPUUtilization"].tag == "section"
    assert page.by_id["rule-BatchSize"].tag == "tr"
    assert "Raise the batch size." in table
    assert "35 %" in table
    assert "Parameters (1 changed)" in table


def test_the_fault_and_its_charts_stand_before_the_rules() -> None:
    page = read_page(render_report(bad_report()))
    order = [each.attributes["id"] for each in page.of("section")]
    fault = ["verdict", "rule-LowGPUUtilization", "rule-CPUBottleneck", "timelines"]
    assert order[:4] == fault
    assert order.index("rules") > order.index("job") > 3


def test_rules_that_do_not_apply_are_collapsed() -> None:
    skipped = [entry("BatchSize", status="NOT_APPLICABLE"), entry("Dataloader", status="DISABLED")]
    page = read_page(render_report(report(entry("CPUBottleneck"), *skipped)))
    folded = next(each for each in page.of("details") if "folded" in each.attributes["class"])
    assert "2 rules do not apply to this job, or are disabled" in folded.text
    names = [name for name in ("BatchSize", "Dataloader", "CPUBottleneck") if name in folded.text.replace("\n", "")]
    assert names == ["BatchSize", "Dataloader"]
    assert page.by_id["rules"].text.count("CPUBottleneck") == 1


def test_advice_is_named_as_such_and_a_reason_is_not() -> None:
    rules = [fired("LowGPUUtilization"), entry("BatchSize"), entry("CPUBottleneck", recommendation="Use the loader.")]
    page = read_page(render_report(report(*rules, findings=[finding("LowGPUUtilization")])))
    table = " ".join(page.by_id["rules"].text.split())
    assert table.count("What to do Raise the batch size.") == 1
    assert table.count("Good to know Use the loader.") == 1
    assert table.count("All is as it should be.") == 2
    assert "Recommendation" not in table


def test_the_summary_says_verdict_findings_and_where() -> None:
    page = read_page(render_report(bad_report()))
    text = page.by_id["summary"].text
    assert text.startswith("bert-large-slow: Unhealthy\nThe job leaves a third of its GPU time unused.\n")
    assert "Change first: Raise the batch size.\n" in text
    assert "- LowGPUUtilization (critical): 2026-07-01 00:10 to 00:25 UTC: 95 %" in text
    assert "\n  algo-1: gpu3, 2026-07-01 00:10:00 UTC, 15 min\n" in text
    assert text.endswith("Cost USD 59.30, Wasted 31 %, GPUs 16, Duration 60 min")
    assert page.by_id["summary"].attributes.keys() >= {"hidden"}


def test_changed_parameters_come_first_and_unused_are_omitted() -> None:
    parameters = {"scan_interval_us": 60_000_000, "threshold": 50.0, "window": 20}
    page = render_report(report(entry("BatchSize", parameters=parameters, changed=["window"])))
    table = " ".join(read_page(page).by_id["rules"].text.split())
    assert "window 20 points changed threshold 50" in table
    assert "scan_interval_us" not in table


def test_parameters_have_units_and_unset_ones_are_omitted() -> None:
    parameters = {"threshold": 50.0, "gpu_fraction": 0.5, "patience": 1_000, "patience_s": None}
    page = render_report(report(entry("CPUBottleneck", parameters=parameters), entry("Mine", parameters={"limit": 3})))
    table = " ".join(read_page(page).by_id["rules"].text.split())
    assert "threshold 50 % of the judged points gpu_fraction 0.5 fraction" in table
    assert "patience 1000 points" in table
    assert "patience_s" not in table
    assert "limit 3" in table


def test_linked_findings_say_how_the_verdict_counts_them() -> None:
    findings = [
        replace(finding("CPUBottleneck"), wasted_share=0.676),
        replace(finding("LowGPUUtilization"), wasted_share=0.706, explained_by="CPUBottleneck"),
        replace(finding("GPUMemoryIncrease"), wasted_share=None),
        replace(finding("StepOutlier"), wasted_share=0.1),
    ]
    verdict = Headline(health="", change="", cost="", rule="CPUBottleneck", wasted_share=0.706, lost=2.0)
    made = report(*(fired(each.rule, {}) for each in findings), findings=findings, verdict=verdict)
    page = read_page(render_report(made))
    said = {
        "CPUBottleneck": "with what it explains of LowGPUUtilization: one loss, seen from two sides",
        "LowGPUUtilization": "as the loss of CPUBottleneck, which is its cause",
    }
    counted = [each.rule for each in findings if "Counted in the verdict" in page.by_id[f"rule-{each.rule}"].text]
    assert counted == list(said)
    assert all(words in page.by_id[f"rule-{rule}"].text for rule, words in said.items())


def test_not_collected_section_shows_code_and_escapes_markup() -> None:
    lacking = NotCollected(what="Steps", unknown="How long.", how="Set `a=<b>` or `c`; <i>not</i> d.")
    page = render_report(replace(report(entry("BatchSize")), not_collected=[lacking]))
    assert "Set <code>a=&lt;b&gt;</code> or <code>c</code>; &lt;i&gt;not&lt;/i&gt; d." in page


def test_empty_sections_are_not_rendered() -> None:
    empty = report(entry("BatchSize"), not_collected=[], coverage=[])
    page = read_page(render_report(empty))
    assert [each.attributes["id"] for each in page.of("section")] == ["verdict", "job", "rules"]
    assert {link for link in page.links if link not in {"#content"}} == {"#verdict", "#job", "#rules"}


def test_explained_finding_links_to_its_cause() -> None:
    rules = [fired("CPUBottleneck"), fired("LowGPUUtilization")]
    explained = finding("LowGPUUtilization", explained_by="CPUBottleneck")
    page = read_page(render_report(report(*rules, findings=[finding("CPUBottleneck"), explained])))
    assert "#rule-CPUBottleneck" in [each.attributes["href"] for each in page.within("dd", "a")]


@pytest.mark.parametrize(
    ("final", "said"), [(False, "within seconds of a fire"), (True, "from the rules' state alone")]
)
def test_report_from_state_says_how_to_get_the_full_one(final: bool, said: str) -> None:
    text = read_page(render_report(report(entry("BatchSize"), final=final))).text
    assert said in text
    assert "trainguard report bert" in text
    assert "trainguard report bert" not in read_page(render_report(bad_report())).text


def test_faulty_streams_come_first_with_what_was_not_used() -> None:
    page = read_page(render_report(state_report()))
    assert page.by_id["coverage"].text.count("system") >= 1
    table = " ".join(read_page(render_report(report(entry("BatchSize")))).by_id["coverage"].text.split())
    assert "98.7 %" in table
    assert "2 min 3 bad lines object x" in table
    assert "77,760" not in table


@pytest.mark.parametrize(("styles", "script"), [("</style>", ""), ("", "a</SCRIPT>"), ("", "<!--"), ("", "a\r\nb")])
def test_code_that_would_end_its_element_is_refused(styles: str, script: str) -> None:
    with pytest.raises(ValueError, match="ends the element"):
        render_page("report.html.j2", styles=styles, script=script)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("in 3 of 4", "In 3 of 4"), ("gpu0 on algo-1", "gpu0 on algo-1"), ("algo-1 has 4", "algo-1 has 4"), ("", "")],
)
def test_only_words_are_capitalized_at_the_start_of_a_sentence(text: str, shown: str) -> None:
    assert sentence(text) == shown


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("low, 2026-07-14 10:35 to 10:52 UTC on algo-1", ["2026-07-14T10:35Z", "2026-07-14T10:52Z"]),
        ("2026-07-14 23:35 to 2026-07-15 00:52 UTC", ["2026-07-14T23:35Z", "2026-07-15T00:52Z"]),
        ("since 2026-07-14 10:35 UTC: <b>", ["2026-07-14T10:35Z"]),
        ("at 10:35, 2026-07-14", []),
    ],
)
def test_times_in_a_sentence_are_marked_and_words_are_kept(text: str, times: list[str]) -> None:
    read = read_page(f"<p>{with_times(text)}</p>")
    assert [each.attributes["datetime"] for each in read.of("time")] == times
    assert read.of("p")[0].text.split() == text.split()
    assert with_times("71.3 % <b>") == "71.3\N{NO-BREAK SPACE}% &lt;b&gt;"


def test_rule_name_may_be_wrapped_between_its_words() -> None:
    assert breakable("LowGPUUtilization") == "LowGPU<wbr>Utilization"
    assert breakable("<b>") == "&lt;b&gt;"


def _allowed(code: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() + "'"


def test_plain_run_pages_are_rendered_as_links() -> None:
    made = report(entry("BatchSize"))
    links = {"MLflow": "https://mlflow.example.com/#/runs/a1", "run": "javascript:hacked()"}
    page = read_page(render_report(replace(made, job=replace(made.job, run_links=links))))
    assert "https://mlflow.example.com/#/runs/a1" in page.links
    assert not any(link.startswith("javascript") for link in page.links)
