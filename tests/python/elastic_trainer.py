"""An elastic trainer that loses a rank in its fourth step, and ends some steps after another has come: elastic_trainer.py FOLDER"""

import json
import os
import pathlib
import signal
import sys

import torch
from torch import nn

import hvd.torch as hvd

STEPS_TOGETHER = 5


def check(holds, what):
    if not holds:
        raise AssertionError(what)


def main():
    hvd.init()
    model = nn.Linear(3, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9),
                                         model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(range(40))
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, step=0, begun=0, lost=False,
                                   together=0, sizes=[])

    def on_reset():
        state.lost = state.lost or hvd.size() == 1
        state.sizes.append(hvd.size())

    state.register_reset_callbacks([on_reset])

    @hvd.elastic.run
    def train(state):
        check(state.begun == state.step, "what a rank began since the last commit was not taken back")
        check(sampler.num_replicas == hvd.size(), "the sampler does not know the ranks")
        check(all(p.grad is None for p in model.parameters()), "gradients of an earlier step are left")
        while state.together < STEPS_TOGETHER:
            state.begun += 1
            if state.step == 3 and not state.lost and hvd.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            batch = list(sampler)[:2]
            optimizer.zero_grad()
            model(torch.tensor(batch, dtype=torch.float32).unsqueeze(1).expand(-1, 3)).mean().backward()
            optimizer.step()
            sampler.record_batch(0, 2)
            if not sampler.remaining_indices[sampler.processed_num:]:
                sampler.set_epoch(sampler.epoch + 1)
            state.step += 1
            if state.lost and hvd.size() == 2:
                state.together += 1
            state.commit()
        momentum = [optimizer.state[p]["momentum_buffer"].flatten().tolist() for p in model.parameters()]
        seen = [state.step, state.together, state.sizes, [p.flatten().tolist() for p in model.parameters()],
                momentum, sampler.state_dict()]
        check(all(other == seen for other in hvd.allgather_object(seen)), "the ranks differ")
        return seen

    seen = train(state)
    check(len(seen) == 6, "the result is not what the function returned")
    worker = pathlib.Path(sys.argv[1]) / str(os.getpid())
    worker.write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
