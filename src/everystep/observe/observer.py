"""The observer: the one face that the engine client shows everything that happens to sequences.

Owns the open sequences, and keeps step log, metrics and request log in agreement, for all three are told from here.
Told everything, the time included (seconds since the server's start); decides nothing.  One thread.
"""

from __future__ import annotations

from everystep.messages import StepOutput, Submit, VllmLoad
from everystep.observe.metrics import Metrics
from everystep.observe.recent import Recent
from everystep.observe.request_log import RequestLog
from everystep.observe.sequence_life import SequenceLife
from everystep.observe.step_log import StepLog
from everystep.types import FinishReason


class Observer:
    """``accepted`` once for each sequence, ``finished`` once for each accepted; news of others is ignored."""

    def __init__(self, *, policies: tuple[str, ...], step_log_size: int = 10_000, max_requests: int = 2_000) -> None:
        self._open: dict[str, SequenceLife] = {}
        self.step_log = StepLog(step_log_size)
        self.requests = RequestLog(self.step_log, max_requests)
        self.metrics = Metrics(policies, self._open.values())
        self.recent = Recent(policies)

    # --- from the door ---------------------------------------------------------------------------
    def accepted(self, submit: Submit) -> None:
        """A sequence is in: the engine owes it an end."""
        life = SequenceLife(
            sequence_id=submit.sequence_id,
            request_id=submit.request_id,
            policy=submit.policy,
            num_prompt_tokens=len(submit.prompt_ids),
            arrival_s=submit.arrival_s,
            accepted_after_step=self.step_log.last_step,
        )
        self.metrics.num_accepted[submit.policy] += 1
        self._open[submit.sequence_id] = life
        self.requests.add(life)

    def rejected(self, policy: str) -> None:
        """A sequence was refused for want of room."""
        self.metrics.num_ended[policy, "rejected"] += 1

    # --- from the worker -------------------------------------------------------------------------
    def step(self, output: StepOutput) -> None:
        """A forward pass.  Call it before the step's events are told."""
        self.step_log.append(output)
        self.metrics.step(output.summary)
        self.recent.step(output.summary)
        for sequence_id in output.preempted:
            if life := self._open.get(sequence_id):
                life.is_seated = False
                life.num_preemptions += 1
        for sequence_id in output.started:
            if life := self._open.get(sequence_id):
                life.is_seated = True
                self._note_first_step(life, output)

    def seated(self, sequence_id: str, at_s: float) -> None:
        """A pass begins in which the sequence has a seat; its step is told when the pass ends."""
        life = self._open.get(sequence_id)
        if life is not None and life.seated_s is None:
            life.seated_s = at_s

    def started(self, sequence_id: str, at_s: float) -> None:
        """vLLM has had the sequence in a forward pass, of which it tells no more than the time."""
        if life := self._open.get(sequence_id):
            life.is_seated = True
            self._note_start(life, at_s)

    def vllm_load(self, load: VllmLoad | None) -> None:
        """What vLLM's scheduler counts; ``None`` where no vLLM is there any more."""
        self.metrics.take_vllm_load(load)

    def blocks(self, blocks_used: int) -> None:
        """Blocks of KV cache in use, as our worker tells when they changed without a step."""
        self.metrics.blocks_used = blocks_used

    def worker_ended(self) -> None:
        """Our worker is gone, and its cache with it."""
        self.metrics.blocks_used = 0

    def worker_restarted(self) -> None:
        """A worker was started in place of one that ended unasked."""
        self.metrics.num_worker_restarts += 1

    def token(self, sequence_id: str, now_s: float) -> None:
        """A token of the sequence reached the API process."""
        life = self._open.get(sequence_id)
        if life is None:
            return
        metrics = self.metrics
        metrics.num_generation_tokens += 1
        life.num_output_tokens += 1
        if life.last_token_s is None:
            life.first_token_s = now_s
            metrics.ttft_s.observe(now_s - life.arrival_s)
            self.recent.first_token(life.policy, now_s, now_s - life.arrival_s)
        else:
            metrics.itl_s.observe(now_s - life.last_token_s)
            self.recent.next_token(life.policy, now_s, now_s - life.last_token_s)
        life.last_token_s = now_s

    def finished(self, sequence_id: str, reason: FinishReason, now_s: float) -> None:
        """The sequence has ended.  Telling it again changes nothing."""
        life = self._open.pop(sequence_id, None)
        if life is None:
            return
        life.is_seated = False
        life.finish_reason = reason
        life.finish_s = now_s
        life.finished_after_step = self.step_log.last_step
        self.metrics.num_ended[life.policy, reason.value] += 1
        self.recent.ended(life.policy, now_s)
        self.metrics.e2e_s.observe(now_s - life.arrival_s)

    def _note_first_step(self, life: SequenceLife, output: StepOutput) -> None:
        """Resumption after preemption is no first step."""
        if life.first_step is None:
            life.first_step = output.summary.step
            self._note_start(life, output.summary.start_s)

    def _note_start(self, life: SequenceLife, at_s: float) -> None:
        life.first_step_s = at_s
        self.metrics.num_prompt_tokens += life.num_prompt_tokens
        self.metrics.queue_s.observe(max(0.0, at_s - life.arrival_s))
