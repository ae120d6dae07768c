"""The figures on the page are those of ``/figures``, which agree with ``/metrics``, lane by lane."""

from __future__ import annotations

import re
from itertools import pairwise

from playwright.sync_api import expect

LANES = ("static", "per_token", "continuous")
PANELS = {
    "tokens": "Tokens/s",
    "running": "Running",
    "waiting": "Waiting",
    "ttft": "Time to first token, ms: p50 / p95",
    "itl": "Between tokens, ms: p50 / p95",
    "cache": "KV blocks in use, %",
    "hits": "Prefix hits, tokens/s",
    "preemptions": "Preemptions/s",
}


def values(page, name: str) -> dict[str | None, str]:
    """What a panel says, by lane; the lane's name stands before it, for those who hear it."""
    items = page.locator(f'#figures figure[data-name="{name}"] .values li').all()
    return {item.get_attribute("data-policy"): item.text_content().split(": ")[-1] for item in items}


def as_page_says(value: float) -> str:
    """At most one digit behind the point below ten, none above; thousands with a comma."""
    text = f"{value:,.1f}" if value < 10 else f"{value:,.0f}"
    return text.removesuffix(".0")


def metric(stage, name: str, policy: str) -> float:
    found = re.search(
        rf'^everystep_{name}\{{policy="{policy}"\}} (\S+)$', stage.client.get("/metrics").text, re.MULTILINE
    )
    return float(found[1])


def fed(page, figures: dict[str, object]) -> None:
    """Let the page be told these figures from now on, a second later each time."""
    told = {"now_s": figures["now_s"]}

    def answer(route) -> None:
        told["now_s"] += 1
        route.fulfill(json={**figures, **told})

    page.route("**/figures", answer)


def test_each_figure_is_labelled_and_says_which_lane_it_is_of(stage, open_page):
    page = open_page(stage.url)
    panels = page.locator("#figures figure")
    expect(panels).to_have_count(len(PANELS))
    names = {
        panel.get_attribute("data-name"): panel.locator("figcaption span").first.inner_text() for panel in panels.all()
    }
    assert names == PANELS
    expect(page.locator("#figures .legend")).to_have_text("".join(LANES))
    assert list(values(page, "tokens")) == list(LANES)
    item = page.locator('#figures figure[data-name="running"] li').first
    expect(item).to_have_text("static: 0")


def test_running_waiting_and_blocks_are_those_of_the_server(start_stage, open_page):
    stage = start_stage(kv_cache_gib=100 * 32 * 8 / 2**30)
    page = open_page(stage.url)
    stage.runner.hold()
    bodies = [("static", 7), ("continuous", 3)]
    sent = [
        stage.start(
            stage.server.complete([[5 + n] * 64 for n in range(num)], max_tokens=20, policy=policy, ignore_eos=True)
        )
        for policy, num in bodies
    ]
    stage.steps(2)
    expect(page.locator('#figures figure[data-name="waiting"] li').first).to_have_text("static: 3")
    expect(page.locator('#figures figure[data-name="running"] li').last).to_have_text("continuous: 3")
    for name, words in (("running", "num_requests_running"), ("waiting", "num_requests_waiting")):
        assert values(page, name) == {lane: f"{metric(stage, words, lane):.0f}" for lane in LANES}
    used = re.search(r"^everystep_kv_cache_usage_ratio (\S+)$", stage.client.get("/metrics").text, re.MULTILINE)
    expect(page.locator('#figures figure[data-name="cache"] li')).to_have_text(as_page_says(100 * float(used[1])))
    stage.runner.release()
    assert [one.result(60).status_code for one in sent] == [200, 200]


def test_rates_and_latencies_are_shown_as_told(stage, open_page):
    """The server's reply, with numbers of our own in it: what is drawn is what was told."""
    page = open_page(stage.url)
    expect(page.locator("#header .state")).to_have_text("live")
    figures = stage.client.get("/figures").json()
    figures["lanes"]["static"] |= {"tokens_per_s": 1234.56, "ttft_s": {"p50": 0.0123, "p95": 2.5, "p99": 9.0}}
    figures["lanes"]["per_token"] |= {"tokens_per_s": 9.96, "itl_s": {"p50": 0.00512, "p95": 0.0601, "p99": 1.0}}
    figures["blocks_used"], figures["blocks_total"] = 33, 400
    fed(page, figures)
    tokens = page.locator('#figures figure[data-name="tokens"] li')
    expect(tokens.first).to_have_text("static: 1,235")
    assert values(page, "tokens") == {"static": "1,235", "per_token": "10", "continuous": "0"}
    assert values(page, "ttft") == {"static": "12 / 2,500", "per_token": "–", "continuous": "–"}
    assert values(page, "itl") == {"static": "–", "per_token": "5.1 / 60", "continuous": "–"}
    assert values(page, "cache") == {None: "8.3"}


def test_hits_and_preemptions_are_rates_of_the_totals(stage, open_page):
    page = open_page(stage.url)
    expect(page.locator("#header .state")).to_have_text("live")
    figures = stage.client.get("/figures").json()
    seconds = {"passed": 0}

    def answer(route) -> None:
        seconds["passed"] += 2
        grown = {"prefix_cache_hit_tokens": 64 * seconds["passed"], "preemptions": 3 * seconds["passed"]}
        totals = {**figures["totals"], **grown}
        route.fulfill(json={**figures, "now_s": figures["now_s"] + 5 + seconds["passed"], "totals": totals})

    page.route("**/figures", answer)
    expect(page.locator('#figures figure[data-name="hits"] li')).to_have_text("64")
    expect(page.locator('#figures figure[data-name="preemptions"] li')).to_have_text("3")


def test_the_values_under_the_pointer_are_told_with_their_age(stage, open_page):
    page = open_page(stage.url)
    expect(page.locator("#header .state")).to_have_text("live")
    figures = stage.client.get("/figures").json()
    numbers = {"n": 0}

    def answer(route) -> None:
        numbers["n"] += 1
        lanes = {**figures["lanes"], "static": {**figures["lanes"]["static"], "num_running": numbers["n"]}}
        route.fulfill(json={**figures, "now_s": figures["now_s"] + 2 + numbers["n"], "lanes": lanes})

    page.route("**/figures", answer)
    panel = page.locator('#figures figure[data-name="running"]')
    expect(panel.locator("li").first).to_have_text("static: 4")
    plot = panel.locator(".u-over")
    box = plot.bounding_box()
    plot.hover(position={"x": box["width"] * 0.75, "y": 20})
    expect(panel.locator(".when")).to_have_text(re.compile(r"\d+ s ago"))
    older = int(values(page, "running")["static"])
    assert older < numbers["n"]
    page.mouse.move(2, 2)
    expect(panel.locator(".when")).to_have_text("")


def test_a_curve_is_broken_where_nothing_is_known(stage, open_page):
    """A curve over a gap would claim what nobody saw: its drawn parts are told by their pixels."""
    page = open_page(stage.url)
    expect(page.locator("#header .state")).to_have_text("live")
    figures = stage.client.get("/figures").json()
    for lane in figures["lanes"].values():
        lane["num_running"] = 0
    figures["lanes"]["static"]["num_running"] = 10
    numbers = {"n": 0}

    def answer(route) -> None:
        numbers["n"] += 1
        gap = 60 if numbers["n"] > 3 else 0
        route.fulfill(json={**figures, "now_s": figures["now_s"] + 30 + numbers["n"] + gap})

    page.route("**/figures", answer)
    panel = page.locator('#figures figure[data-name="running"]')
    page.wait_for_event("response", lambda reply: reply.url.endswith("/figures") and numbers["n"] >= 7)
    drawn = panel.locator("canvas").evaluate(
        """(canvas) => {
          const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          const isRed = (i) => data[i] > 180 && data[i + 1] < 130 && data[i + 2] < 60 && data[i + 3] > 60;
          const has = (x) => Array.from({ length: height }, (_, y) => 4 * (y * width + x)).some(isRed);
          return Array.from({ length: width }, (_, x) => has(x));
        }"""
    )
    xs = [x for x, is_drawn in enumerate(drawn) if is_drawn]
    assert xs, "the curve is drawn"
    widest = max(b - a for a, b in pairwise(xs))
    assert widest > len(drawn) / 3, "sixty of its seventy seconds are blank"


def test_another_server_s_figures_begin_anew(stage, open_page):
    page = open_page(stage.url)
    expect(page.locator("#header .state")).to_have_text("live")
    figures = stage.client.get("/figures").json()
    fed(page, {**figures, "server_id": "another", "now_s": 0.5, "totals": dict.fromkeys(figures["totals"], 0)})
    expect(page.locator('#figures figure[data-name="hits"] li')).to_have_text("–")
    expect(page.locator('#figures figure[data-name="hits"] li')).to_have_text("0")


def test_no_figure_is_cut_off_at_phone_width(stage, open_page):
    page = open_page(stage.url, viewport={"width": 390, "height": 844})
    expect(page.locator("#header .state")).to_have_text("live")
    figures = stage.client.get("/figures").json()
    for lane in figures["lanes"].values():
        lane |= {"tokens_per_s": 12345.6, "ttft_s": {"p50": 12.3, "p95": 456.7, "p99": 1.0}}
    fed(page, figures)
    expect(page.locator('#figures figure[data-name="ttft"] li').first).to_have_text("static: 12,300 / 456,700")
    for item in page.locator("#figures li, #figures .u-wrap").all():
        box = item.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    assert page.evaluate("() => document.documentElement.scrollWidth") == 390
