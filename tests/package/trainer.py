"""A trainer of a user of the Python package: with the API of horovod.torch, and with DDP. Both have to learn."""

import torch
import torch.distributed as dist
from torch import nn

import hvd.torch as hvd


def train(model, optimizer):
    torch.manual_seed(1 + hvd.rank())
    data = torch.randn(256, 10)
    target = data.sum(1, keepdim=True)
    for _ in range(100):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(data), target)
        loss.backward()
        optimizer.step()
    weights = hvd.allgather(next(model.parameters()).detach().unsqueeze(0))
    if not (all(torch.equal(weights[0], each) for each in weights) and loss < 0.1):
        raise SystemExit(f"rank {hvd.rank()} has the loss {loss}, and the ranks have {weights}")
    return loss.item()


def main():
    hvd.init()
    torch.manual_seed(hvd.rank())
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    loss = train(model, hvd.DistributedOptimizer(optimizer, model.named_parameters()))

    dist.init_process_group("hvd")
    model = nn.parallel.DistributedDataParallel(nn.Linear(10, 1))
    loss_of_ddp = train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    print(f"rank {hvd.rank()} of {hvd.size()}: loss {loss:.4f}, with DDP {loss_of_ddp:.4f}")
    dist.destroy_process_group()
    hvd.shutdown()


main()
