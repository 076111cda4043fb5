"""The members of the run: trainer ranks, judge, rollout agents, environment simulators.

    agents --raw--> judge --scored--> trainer ranks --weights--> agents

Every agent plays several episodes of one maze and sends them together: a group for GRPO. The oracle of the mazes is shared by all
agents and guarded by one lock, `search-tool`.
"""

import time
from dataclasses import dataclass

import ray
import torch
from grpo import collate, update
from judging import judge
from policy import Policy, full_weights, load_weights
from rollout import play
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from treasure import Treasure

import unknot

GROUP_OF_EPISODES = 4
ROOM_WITHIN_S = 0.3
BAR = 24
AGENT_WHO_IS_ASKED = "r1"


@dataclass(frozen=True)
class Plan:
    """What a run of the example does.

    knot_at: the step at which the crossed wait is planted, None for never.
    """

    steps: int = 30
    knot_at: int | None = None
    learning_rate: float = 3e-3
    slow_s: float = 0.0


@ray.remote
@unknot.environment
class Simulator:
    """Keeps one maze for each agent that plays here; `slow_s` makes every episode begin late."""

    def __init__(self, slow_s=0.0):
        self.slow_s = slow_s
        self.worlds = {}

    def reset(self, player, seed):
        time.sleep(self.slow_s)
        self.worlds[player] = Treasure(seed)
        return self.worlds[player].reset()

    def step(self, player, action):
        return self.worlds[player].step(action)

    def tool(self, player, query):
        return self.worlds[player].tool(query)


class RemoteWorld:
    """An agent's view of its maze in a simulator's process; the oracle is behind the lock of all agents."""

    def __init__(self, simulator, player):
        self.simulator = simulator
        self.player = player
        self.oracle = unknot.Lock("search-tool")

    def reset(self, seed=None):
        return ray.get(self.simulator.reset.remote(self.player, seed))

    def step(self, action):
        return ray.get(self.simulator.step.remote(self.player, action))

    def tool(self, query):
        with self.oracle:
            return ray.get(self.simulator.tool.remote(self.player, query))


@ray.remote
@unknot.agent
class Rollout:
    """Plays with the newest weights; also plays single episodes on demand, oracle included."""

    def __init__(self, name, simulator, number):
        self.name = name
        self.simulator = simulator
        self.number = number

    def setup(self):
        torch.set_num_threads(1)
        self.policy = Policy()
        self.version = -1
        self.chance = torch.Generator().manual_seed(self.number)
        self.world = RemoteWorld(self.simulator, self.name)

    def run(self):
        raw, weights = unknot.Mailbox("raw"), unknot.Weights("policy")
        for round_number in range(1_000_000):
            self.take(weights.latest(at_least=0))
            seed = 1000 * round_number + self.number
            self.hand_in(raw, [self.play(seed) for _ in range(GROUP_OF_EPISODES)])

    def hand_in(self, raw, episodes):
        """A trainer that waits for a fresh episode takes nothing meanwhile: so requests are answered while there is no room."""
        while True:
            if self.name == AGENT_WHO_IS_ASKED:
                self.answer_requests()
            try:
                raw.send(episodes, timeout_s=ROOM_WITHIN_S)
            except TimeoutError:
                continue
            return

    def take(self, published):
        if published.version.n != self.version:
            load_weights(self.policy, published.value)
            self.version = published.version.n

    def play(self, seed):
        episode = play(self.world, self.act, seed=seed, agent=self.name, version=self.version)
        unknot.progress("episodes")
        return episode

    def act(self, tokens):
        return self.policy.act(tokens, self.chance)

    def answer_requests(self):
        """A trainer rank asked for one fresh episode: played while nobody else uses the oracle."""
        requests, fresh = unknot.Mailbox("requests"), unknot.Mailbox("fresh")
        try:
            request = requests.receive(timeout_s=0.0)
        except TimeoutError:
            return
        with unknot.Lock("search-tool"):
            world = Treasure(request.value)
            episode = play(world, self.act, seed=request.value, agent=self.name, version=self.version)
        fresh.send([episode])
        requests.ack(request)


@ray.remote
@unknot.judge
class Judge:
    """Replays and scores what agents send."""

    def run(self):
        raw, scored = unknot.Mailbox("raw"), unknot.Mailbox("scored")
        while True:
            item = raw.receive()
            scored.send([judge(trajectory) for trajectory in item.value])
            raw.ack(item)
            unknot.progress("scored", len(item.value))


@ray.remote
@unknot.trainer(group="policy")
class Trainer:
    """One FSDP2 rank."""

    def __init__(self, plan):
        self.plan = plan

    def setup(self, group):
        torch.set_num_threads(1)
        self.group, self.model = group, Policy()
        mesh = group.mesh()
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh, reshard_after_forward=False)
        fully_shard(self.model, mesh=mesh, reshard_after_forward=False)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.plan.learning_rate)

    def state_dict(self):
        return dict(zip(("model", "optim"), get_state_dict(self.model, self.optimizer), strict=True))

    def load_state_dict(self, state):
        set_state_dict(
            self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"]
        )

    def run(self):
        self.publish()
        for step in unknot.steps(until=self.plan.steps):
            with step:
                stats = self.step(step)
                self.publish()
                unknot.progress("step")
            if self.group.rank == 0:
                print(progress_line(step.seq + 1, self.plan.steps, stats), flush=True)

    def step(self, step):
        batch = collate(step.receive("scored").value)
        if step.seq == self.plan.knot_at:
            return self.crossed_step(step, batch)
        return update(self.model, self.optimizer, batch)

    def crossed_step(self, step, batch):
        """The planted fault: rank 0 keeps the oracle's lock across its gradient reduction; rank 1, before it can join the
        reduction, wants a fresh episode of an agent that needs the oracle. The repeated step does without the lock."""
        if self.group.rank == 0 and step.attempt == 0:
            with unknot.Lock("search-tool"):
                return update(self.model, self.optimizer, batch)
        if self.group.rank == 1:
            hook = self.model.choice.register_full_backward_pre_hook(lambda *_: self.want_fresh(step))
            try:
                return update(self.model, self.optimizer, batch)
            finally:
                hook.remove()
        return update(self.model, self.optimizer, batch)

    def want_fresh(self, step):
        """Runs in the middle of the backward pass, before the first gradients are reduced."""
        if step.attempt == 0:
            unknot.Mailbox("requests").send(step.seq)
        judge(step.receive("fresh").value[0])

    def publish(self):
        weights = full_weights(self.model)
        if self.group.rank == 0:
            unknot.Weights("policy").publish(weights, generation=self.group.generation)


def progress_line(done, steps, stats):
    filled = BAR * done // steps
    bar = "#" * filled + "-" * (BAR - filled)
    return f"step {done:3d}/{steps} [{bar}] loss {stats.loss:+.4f}  reward {stats.reward:+.3f}"
