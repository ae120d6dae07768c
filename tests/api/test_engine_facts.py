"""``/engine``: what a simulation of this server must know."""

from __future__ import annotations

from api.harness import serving


async def test_the_engine_tells_what_it_is_made_of_and_how_it_schedules() -> None:
    async with serving(max_num_seqs=7, per_token_batch_size=3, static_max_wait=0.25) as server:
        facts = (await server.http.get("/engine")).json()
        later = (await server.http.get("/engine")).json()
    assert facts["seats"] == {"static": 4, "per_token": 3, "continuous": 7}
    assert facts["runner"] == "fake"
    assert facts["num_blocks"] * facts["block_size"] >= facts["max_model_len"] > 0
    assert facts["settings"]["max_num_seqs"] == 7
    assert facts["settings"]["static_max_wait"] == 0.25
    assert later["now_s"] >= facts["now_s"] > 0


async def test_its_clock_is_the_step_log_s() -> None:
    async with serving() as server:
        before_s = (await server.http.get("/engine")).json()["now_s"]
        await server.http.post("/generate", json={"prompts": ["x"], "max_tokens": 1})
        [step] = (await server.http.get("/steps?since=-1")).json()["steps"]
        after_s = (await server.http.get("/engine")).json()["now_s"]
    assert before_s <= step["start_s"] <= step["end_s"] <= after_s


async def test_no_key_is_among_the_settings() -> None:
    async with serving(api_key=("a-secret",)) as server:
        reply = await server.http.get("/engine", headers={"Authorization": "Bearer a-secret"})
    assert reply.status_code == 200
    assert "a-secret" not in reply.text
