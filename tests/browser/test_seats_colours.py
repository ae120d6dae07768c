"""Each request has a colour of its own, which stays, and which colour-blind people tell from its neighbours'."""

from __future__ import annotations

from itertools import combinations

import pytest

from browser.colour_sight import SIGHT, ciede2000, contrast, difference, least
from browser.page_modules import call
from browser.seat_pixels import GROUND, cell_colours, colour, is_like

OKABE_ITO = ["#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7"]
COLOURS = "(ids) => ids.map((id) => ({ ...coloursOf(id), place: placeOf(id) }))"


@pytest.fixture(params=["light", "dark"])
def scheme(request) -> str:
    return request.param


@pytest.fixture
def colours(chromium, scheme):
    """``colours(ids)``, as the page gives them in this scheme."""
    page = chromium.new_page(color_scheme=scheme)
    yield lambda *ids: call(page, "colours", COLOURS, list(ids))
    page.close()


@pytest.fixture
def places(colours):
    """All fourteen, from the first on."""
    found = {one["place"]: one for one in colours(*(f"try-abc-{n}" for n in range(14)))}
    return [found[n] for n in range(14)]


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 2.5, 0.0), (50.0, 0.0, -2.5), 4.3065),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_difference_is_the_published_one(one, other, wanted):
    assert ciede2000(one, other) == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("sight", SIGHT)
def test_okabe_s_and_ito_s_hues_are_told_apart_by_all(sight):
    assert min(difference(one, other, sight) for one, other in combinations(OKABE_ITO, 2)) > 10


@pytest.mark.parametrize("sight", SIGHT)
def test_neighbours_differ_much_and_no_two_are_alike_for_anybody(places, sight):
    decode = [one["decode"] for one in places]
    assert least(decode, sight) > 25
    assert min(difference(one, other, sight) for one, other in combinations(decode, 2)) > 6


@pytest.mark.parametrize("sight", SIGHT)
def test_reading_and_writing_differ_for_anybody(places, sight):
    assert min(difference(one["decode"], one["prefill"], sight) for one in places) > 10


def test_cells_stand_out_from_empty_seats_and_words_on_them_are_readable(places, scheme):
    seat = GROUND[scheme]["seat"]
    for one in places:
        assert contrast(one["decode"], seat) >= 1.5
        assert contrast(one["prefill"], seat) >= 3
        assert contrast(one["decode"], one["ink"]) >= 4.5
        assert contrast(one["prefill"], one["prefillInk"]) >= 4.5


def test_a_sequence_has_the_colour_that_the_rule_gives_it_on_every_page(colours, scheme):
    ids = [f"{name}-{n}" for name in ("cmpl-4fd1", "try-0", "a-b-c", "client:7") for n in (0, 1, 13, 14, 200)]
    for sequence_id, found in zip(ids, colours(*ids), strict=True):
        wanted = cell_colours(sequence_id, scheme)
        for shade in ("decode", "prefill"):
            assert is_like(colour(found[shade]), wanted[shade], within=1)
