"""The members of the run: trainer ranks, judge, rollout agents, environment simulators.

    agents --raw--> judge --scored--> trainer ranks --weights--> agents

Every agent plays several episodes of one maze and sends them together: a group for GRPO. The oracle of the mazes is shared by all
agents and guarded by one lock, `search-tool`. Whatever a member does is a step: all of it counts, once, or nothing does.
"""

import functools
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
RANKS, AGENTS = 2, 4
BAR = 24
EXPERT = "expert"


@dataclass(frozen=True)
class Plan:
    """What a run of the example does.

    deterministic: agents use the weights that belong to their step, and trainers what comes next by origin and number; else the
        newest weights, and what comes first. knot_at: the step at which the crossed wait is planted, None for never.
    """

    steps: int = 30
    deterministic: bool = False
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
    """Plays groups of episodes with the newest weights, or with those that belong to its step."""

    def __init__(self, name, simulator, number, plan):
        self.name = name
        self.simulator = simulator
        self.number = number
        self.plan = plan

    def setup(self):
        torch.set_num_threads(1)
        self.policy = Policy()
        self.version = 0
        self.world = RemoteWorld(self.simulator, self.name)

    def run(self):
        for step in unknot.steps():
            with step:
                weights = self.refresh(step)
                chance = torch.Generator().manual_seed(step.seed)
                maze = 1000 * step.seq + self.number
                step.send("raw", [self.play(maze, chance) for _ in range(GROUP_OF_EPISODES)], meta={"weights": weights})
            unknot.progress("episodes", GROUP_OF_EPISODES)

    def refresh(self, step):
        """The first episodes are played with the policy as it is made: everybody makes the same one."""
        wanted = self.wanted(step.seq)
        if wanted == 0:
            return None
        published = step.latest("policy", exact=wanted) if self.plan.deterministic else step.latest("policy")
        if published.version.n != self.version:
            load_weights(self.policy, published.value)
            self.version = published.version.n
        return published.version

    def wanted(self, seq):
        """The version before the two steps that will take what is played now, less two steps for the way there."""
        return max(0, seq * AGENTS // RANKS - 2) if self.plan.deterministic else min(seq, 1)

    def play(self, maze, chance):
        return play(
            self.world, lambda tokens: self.policy.act(tokens, chance), seed=maze, agent=self.name, version=self.version
        )


@ray.remote
@unknot.agent
class Expert:
    """Plays single episodes on demand, oracle included."""

    def run(self):
        torch.set_num_threads(1)
        policy = Policy()
        for step in unknot.steps():
            with step:
                maze = step.receive("requests").value
                act = functools.partial(policy.act, generator=torch.Generator().manual_seed(step.seed))
                with unknot.Lock("search-tool"):
                    episode = play(Treasure(maze), act, seed=maze, agent=EXPERT)
                step.send("fresh", episode)


@ray.remote
@unknot.judge
class Judge:
    """Replays and scores what agents send."""

    def run(self):
        for step in unknot.steps():
            with step:
                item = step.receive("raw")
                step.send("scored", [judge(trajectory) for trajectory in item.value], meta=item.meta)
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
        for step in unknot.steps(until=self.plan.steps, manifest_every=5):
            with step:
                items = step.take("scored", RANKS)
                stats = self.step(step, collate(items[self.group.rank].value))
                step.publish("policy", full_weights(self.model))
            unknot.progress("step")
            if self.group.rank == 0:
                print(progress_line(step.seq + 1, self.plan.steps, stats), flush=True)

    def step(self, step, batch):
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
        judge(step.receive("fresh").value)


def progress_line(done, steps, stats):
    filled = BAR * done // steps
    bar = "#" * filled + "-" * (BAR - filled)
    return f"step {done:3d}/{steps} [{bar}] loss {stats.loss:+.4f}  reward {stats.reward:+.3f}"
