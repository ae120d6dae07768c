"""The async client on a worker thread: one end for every accepted sequence, and a door that holds."""

import asyncio
import threading

import pytest

from everystep.engine.client import EngineClient, open_requests
from everystep.errors import ClientTooSlow, EngineUnavailable, InvalidParameter, QueueFull, QueueTimeout, RequestTimeout
from everystep.runner.fake import FakeRunner, generate
from everystep.types import FinishReason

VOCAB = 384


class GatedRunner(FakeRunner):
    """Steps only as far as the test lets it: no sleeping, no racing."""

    def __init__(self):
        super().__init__(vocab_size=VOCAB)
        self.gate = threading.Semaphore(0)
        self.is_open = False

    def open(self):
        self.is_open = True
        self.gate.release()

    def run(self, plan):
        if not self.is_open:
            self.gate.acquire()
        return super().run(plan)


@pytest.fixture
async def start(make_settings):
    clients = []

    async def start(runner=None, **settings):
        runner = runner or FakeRunner(vocab_size=VOCAB)
        client = EngineClient.in_process(make_settings(drain_timeout=0.0, **settings), lambda: runner)
        clients.append((client, runner))
        await client.start()
        await client.wait_ready()
        while not client.status.is_ready:  # the tokenizer loads beside the worker
            await asyncio.sleep(0)
        return client

    yield start
    for client, runner in clients:
        if isinstance(runner, GatedRunner):
            runner.open()
        await client.close()


async def collect(generation):
    tokens, ends = {}, {}
    async for delta in generation:
        tokens.setdefault(delta.sequence_id, []).extend(token.token_id for token in delta.tokens)
        if delta.finish_reason:
            assert delta.sequence_id not in ends, "a second end"
            ends[delta.sequence_id] = delta
    return tokens, ends


async def until(client, condition):
    """Wait step by step, by the engine's own news."""
    step = -1
    while not condition():
        await asyncio.wait_for(client.wait_for_step(step), 30)
        step += 1


@pytest.mark.parametrize("policy", ["static", "per_token", "continuous"])
async def test_each_choice_of_each_prompt_comes_whole_and_by_its_id(start, make_request, policy):
    client = await start()
    prompts = tuple((i, i + 1, i + 2) for i in range(1, 8))
    async with client.submit(make_request(*prompts, policy=policy, n=2)) as generation:
        tokens, ends = await collect(generation)
    assert list(generation.sequence_ids) == [f"r-{i}" for i in range(14)]
    for p, prompt in enumerate(prompts):
        for c in range(2):
            assert tokens[f"r-{p * 2 + c}"] == generate(prompt, 8, VOCAB)
    assert {delta.finish_reason for delta in ends.values()} == {FinishReason.LENGTH}


async def test_leaving_the_context_ends_every_choice_and_frees_everything(start, make_request):
    runner = GatedRunner()
    client = await start(runner)
    async with client.submit(make_request((1, 2), (3, 4), n=3, max_tokens=400)) as generation:
        runner.gate.release()
        await anext(aiter(generation))
    runner.open()
    _, ends = await collect(generation)
    assert {end.finish_reason for end in ends.values()} == {FinishReason.ABORTED}
    assert len(ends) == 6
    async with client.submit(make_request(request_id="next", max_tokens=2)) as following:
        await collect(following)
    last = client.observer.step_log.since(client._last_step - 1, 10)
    assert [row["request_id"] for row in last["steps"][-1]["rows"]] == ["next"]


async def test_a_full_line_refuses_whole_requests_with_a_time_to_come_again(start, make_request):
    runner = GatedRunner()
    client = await start(runner, max_queue=3, max_num_seqs=1)
    first = client.submit(make_request((1,), (2,), (3,), request_id="first"))
    with pytest.raises(QueueFull) as caught:
        client.submit(make_request(request_id="late"))
    assert caught.value.retry_after_s >= 1
    runner.open()
    async with first:
        _, ends = await collect(first)
    assert len(ends) == 3


async def test_waiting_too_long_for_a_seat_ends_with_the_queue_s_error(start, make_request):
    runner = GatedRunner()
    client = await start(runner, max_num_seqs=1, queue_timeout=0.2)
    seated = client.submit(make_request(request_id="seated"))
    runner.gate.release()
    await until(client, lambda: seated.choices[0].is_started)
    async with client.submit(make_request(request_id="waits")) as waits:
        _, ends = await collect(waits)
    assert ends["waits-0"].finish_reason is FinishReason.TIMEOUT
    assert isinstance(ends["waits-0"].failure, QueueTimeout)
    runner.open()
    async with seated:
        _, ends = await collect(seated)
    assert ends["seated-0"].finish_reason is FinishReason.LENGTH


async def test_a_request_s_own_deadline_ends_it_even_while_the_worker_is_stuck(start, make_request):
    client = await start(GatedRunner())
    async with client.submit(make_request(timeout_s=0.2)) as generation:
        _, ends = await collect(generation)
    assert ends["r-0"].finish_reason is FinishReason.TIMEOUT
    assert isinstance(ends["r-0"].failure, RequestTimeout)


async def test_a_stop_string_ends_the_sequence_on_both_sides(start, make_request):
    client = await start()
    async with client.submit(make_request(max_tokens=40)) as generation:
        whole = "".join([delta.text async for delta in generation])
    stop = whole[len(whole) // 2 :][:3]
    async with client.submit(make_request(request_id="cut", max_tokens=40, stop=(stop,))) as generation:
        deltas = [delta async for delta in generation]
    assert "".join(delta.text for delta in deltas) == whole[: whole.index(stop)]
    assert (deltas[-1].finish_reason, deltas[-1].stop_reason) == (FinishReason.STOP, stop)


async def test_before_the_worker_is_ready_requests_are_refused_in_words(make_settings, make_request):
    client = EngineClient.in_process(make_settings())
    with pytest.raises(EngineUnavailable, match="starting"):
        client.submit(make_request())


async def test_closing_fails_what_is_still_open_after_the_deadline(start, make_request):
    runner = GatedRunner()
    client = await start(runner)
    generation = client.submit(make_request())
    closing = asyncio.create_task(client.close())
    _, ends = await collect(generation)
    runner.open()
    await closing
    assert ends["r-0"].finish_reason is FinishReason.FAILED
    assert isinstance(ends["r-0"].failure, EngineUnavailable)
    with pytest.raises(EngineUnavailable):
        client.submit(make_request())


async def test_choices_without_a_seed_get_seeds_of_their_own_and_a_seed_is_kept(start, make_request):
    client = await start()
    free = client.submit(make_request((1,), (1,), n=2, request_id="free"))
    fixed = client.submit(make_request((1,), n=2, seed=7, request_id="fixed"))
    seeds = [choice.submit.seed for choice in free.choices]
    assert len(set(seeds)) == 4
    assert fixed.choices[0].submit.seed == 7
    assert fixed.choices[1].submit.seed != 7
    for generation in (free, fixed):
        await collect(generation)


async def test_a_worker_that_talks_nonsense_is_replaced_and_nobody_is_left_hanging(start, make_request):
    runner = GatedRunner()
    client = await start(runner)
    generation = client.submit(make_request())
    client._backends.first._handle._theirs.send(b"\xff" * 64)
    _, ends = await asyncio.wait_for(collect(generation), 30)
    assert ends["r-0"].finish_reason is FinishReason.FAILED
    runner.open()
    async with asyncio.timeout(30):
        while not client.status.is_ready:
            await asyncio.sleep(0.01)
    async with client.submit(make_request(request_id="after")) as after:
        _, ends = await collect(after)
    assert ends["after-0"].finish_reason is FinishReason.LENGTH


async def test_a_request_that_ended_leaves_no_timer_behind(start, make_request):
    client = await start(queue_timeout=600.0, request_timeout=600.0)
    async with client.submit(make_request()) as generation:
        timers = [generation._deadline, generation._queue_deadline]
        await collect(generation)
    assert all(timer.cancelled() for timer in timers)
    assert generation._deadline is None
    assert generation._queue_deadline is None


# --- deadlines -----------------------------------------------------------------------------------
async def seated(client, runner, request):
    """A request whose first step has begun, and won't end before the gate opens."""
    generation = client.submit(request)
    async with asyncio.timeout(30):
        while not generation.choices[0].is_started:
            await asyncio.sleep(0)
    return generation


async def outlast_queue_deadline(client, request):
    """Until the deadline of one that came last has passed, and with it that of whoever came before."""
    async with client.submit(request) as late:
        _, ends = await collect(late)
    assert {type(end.failure) for end in ends.values()} == {QueueTimeout}


async def test_a_seat_is_known_when_its_step_begins_so_that_a_long_step_is_no_wait(start, make_request):
    runner = GatedRunner()
    client = await start(runner, queue_timeout=0.2)
    generation = await seated(client, runner, make_request(max_tokens=2))
    assert client._last_step == -1, "no step has ended"
    await outlast_queue_deadline(client, make_request(request_id="late"))
    runner.open()
    async with generation:
        _, ends = await collect(generation)
    assert ends["r-0"].finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("policy", ["static", "per_token", "continuous"])
async def test_a_request_whose_first_choice_has_a_seat_is_being_served_and_the_others_may_wait(
    start, make_request, policy
):
    runner = GatedRunner()
    seats = {"static_batch_size": 1, "per_token_batch_size": 1, "max_num_seqs": 1}
    client = await start(runner, queue_timeout=0.2, **seats)
    generation = await seated(client, runner, make_request((1,), (2,), (3,), n=2, policy=policy, max_tokens=2))
    assert [choice.is_started for choice in generation.choices] == [True] + [False] * 5
    await outlast_queue_deadline(client, make_request(request_id="late", policy=policy))
    runner.open()
    async with generation:
        _, ends = await collect(generation)
    assert {end.finish_reason for end in ends.values()} == {FinishReason.LENGTH}
    assert len(ends) == 6


@pytest.mark.parametrize("policy", ["static", "per_token", "continuous"])
async def test_a_request_s_own_deadline_ends_all_its_choices_seated_or_waiting(start, make_request, policy):
    runner = GatedRunner()
    seats = {"static_batch_size": 2, "per_token_batch_size": 2, "max_num_seqs": 2}
    client = await start(runner, request_timeout=500.0, **seats)
    generation = await seated(
        client, runner, make_request((1,), (2,), n=2, policy=policy, max_tokens=300, timeout_s=0.2)
    )
    async with generation:
        _, ends = await collect(generation)
    assert {(end.finish_reason, end.error) for end in ends.values()} == {
        (FinishReason.TIMEOUT, "took longer than 0.2 s (timeout_s)")
    }
    assert len(ends) == 4
    runner.open()
    async with client.submit(make_request(request_id="next", policy=policy, max_tokens=1)) as following:
        await collect(following)
    last = client.observer.step_log.since(client._last_step - 1, 10)["steps"][-1]
    assert [row["request_id"] for row in last["rows"]] == ["next"]
    assert last["waiting"] == []


async def test_the_server_s_deadline_is_named_where_it_is_the_one_that_passed(start, make_request):
    client = await start(GatedRunner(), request_timeout=0.2)
    async with client.submit(make_request()) as generation:
        _, ends = await collect(generation)
    assert ends["r-0"].error == "took longer than 0.2 s (--request-timeout)"


async def test_a_deadline_longer_than_the_server_s_is_refused(start, make_request):
    client = await start(request_timeout=30.0)
    with pytest.raises(InvalidParameter, match=r"30\.5 is above the server's own 30"):
        client.submit(make_request(timeout_s=30.5))
    assert client.observer.metrics.num_accepted["continuous"] == 0


async def test_one_that_was_preempted_waits_without_a_queue_deadline_and_takes_no_place_in_the_line(
    start, make_request
):
    runner = GatedRunner()
    client = await start(runner, queue_timeout=0.3, max_queue=2, kv_cache_gib=2e-6, max_num_seqs=2)
    info = client.info
    each = info.block_size * info.num_blocks // 2 + 1  # both grow to more than half of the cache
    prompts = tuple((i,) * (each - 6) for i in (1, 2))
    generation = await seated(client, runner, make_request(*prompts, max_tokens=10))
    for _ in range(30):
        if client.observer.metrics.num_preemptions:
            break
        step = client._last_step
        runner.gate.release()
        await asyncio.wait_for(client.wait_for_step(step), 30)
    assert client.observer.metrics.num_preemptions >= 1
    assert len(client._requests.line) == 0
    await outlast_queue_deadline(client, make_request(request_id="late"))
    runner.open()
    async with generation:
        tokens, ends = await collect(generation)
    assert {end.finish_reason for end in ends.values()} == {FinishReason.LENGTH}
    assert [tokens[f"r-{i}"] for i in range(2)] == [generate(prompt, 10, VOCAB) for prompt in prompts]


async def test_a_reader_that_takes_nothing_in_is_given_up_when_too_much_waits_for_it(start, make_request, monkeypatch):
    monkeypatch.setattr(open_requests, "MAX_UNREAD", 20)
    client = await start()
    generation = client.submit(make_request((1,), (2,), n=2, max_tokens=300))
    async with asyncio.timeout(30):
        await client._requests.all_ended.wait()
    assert generation.num_unread == 21 + 4
    _, ends = await collect(generation)
    assert {(end.finish_reason, type(end.failure)) for end in ends.values()} == {(FinishReason.ABORTED, ClientTooSlow)}
    assert len(ends) == 4
    async with client.submit(make_request(request_id="next", max_tokens=1)) as following:
        await collect(following)
    last = client.observer.step_log.since(client._last_step - 1, 10)["steps"][-1]
    assert [row["request_id"] for row in last["rows"]] == ["next"]
