#!/usr/bin/env python3
"""Trains the models of train_bench from Python, by its rules.

    ddp                 DistributedDataParallel over gloo, or NCCL
    ddp-copied          the same with gradients outside its buckets
    ddp-hvd             ddp over hvd
    ddp-independent     ddp with a communication hook that does nothing
    python-hvd          hvd.torch's DistributedOptimizer
    python-independent  no communication

It is one process of several. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say which, as torchrun
sets them. benchmarks/training starts all of them. Rank 0 writes train_bench's row to --json, or
prints it.
"""
import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

BATCHES, WARM_UP, ESTIMATE = 4, 12, 4
MODES = ("ddp", "ddp-copied", "ddp-hvd", "ddp-independent", "python-hvd", "python-independent")


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5)
        self.fc1, self.fc2 = nn.Linear(320, 50), nn.Linear(50, 10)

    def forward(self, x):
        x = functional.relu(functional.max_pool2d(self.conv1(x), 2))
        dropped = functional.dropout2d(self.conv2(x), 0.25, self.training)
        x = functional.relu(functional.max_pool2d(dropped, 2))
        x = functional.dropout(functional.relu(self.fc1(x.view(-1, 320))), 0.25, self.training)
        return functional.log_softmax(self.fc2(x), 1)


def conv(inward, outward, kernel, stride):
    return nn.Conv2d(inward, outward, kernel, stride, kernel // 2, bias=False)


class Block(nn.Module):
    def __init__(self, inward, outward, stride, body):
        super().__init__()
        self.body = body
        self.shortcut = nn.Sequential()
        if stride != 1 or inward != outward:
            self.shortcut = nn.Sequential(conv(inward, outward, 1, stride), nn.BatchNorm2d(outward))

    def forward(self, x):
        return functional.relu(self.body(x) + self.shortcut(x))


def basic(inward, width, stride):
    body = nn.Sequential(conv(inward, width, 3, stride), nn.BatchNorm2d(width), nn.ReLU(True),
                         conv(width, width, 3, 1), nn.BatchNorm2d(width))
    return Block(inward, width, stride, body), width


def bottleneck(inward, width, stride):
    body = nn.Sequential(conv(inward, width, 1, 1), nn.BatchNorm2d(width), nn.ReLU(True),
                         conv(width, width, 3, stride), nn.BatchNorm2d(width), nn.ReLU(True),
                         conv(width, 4 * width, 1, 1), nn.BatchNorm2d(4 * width))
    return Block(inward, 4 * width, stride, body), 4 * width


def resnet(block, counts):
    layers = [conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, count in enumerate(counts):
        for i in range(count):
            layer, channels = block(channels, 64 << stage, 2 if stage > 0 and i == 0 else 1)
            layers.append(layer)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


class Gpt2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        # Queries, keys and values of each head: [batch, heads, tokens, width / heads].
        of_heads = self.qkv(self.attention_norm(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*of_heads.unbind(), is_causal=True)
        y = x + self.out(attended.transpose(1, 2).flatten(2))
        return y + self.down(functional.gelu(self.up(self.mlp_norm(y)), approximate="tanh"))


class Gpt2(nn.Module):
    """The small model of GPT-2 without dropout, as in train_bench."""

    def __init__(self, tokens=50257, longest=1024, width=768, heads=12, layers=12):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(tokens, width), nn.Embedding(longest, width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.blocks = nn.Sequential(*(Gpt2Block(width, heads) for _ in range(layers)))
        self.last_norm = nn.LayerNorm(width)

    def forward(self, x):
        embedded = self.tokens(x) + self.positions.weight[:x.size(1)]
        return functional.linear(self.last_norm(self.blocks(embedded)), self.tokens.weight)


def loss_of_words(output, target):
    return functional.cross_entropy(output.flatten(0, 1), target.flatten())


def mlp():
    sizes = (1024, 4096, 4096, 1024)
    layers = []
    for inward, outward in zip(sizes, sizes[1:]):
        layers += [nn.Linear(inward, outward), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(1024, 10))


# An entry holds model, loss, batch size, shape of an input, and number of classes. Each word of a text has a class.
MODELS = {
    "cnn": (Cnn, functional.nll_loss, 64, (1, 28, 28), 10),
    "gpt2": (Gpt2, loss_of_words, 4, (1024,), 50257),
    "mlp25m": (mlp, functional.cross_entropy, 64, (1024,), 10),
    "resnet18": (lambda: resnet(basic, (2, 2, 2, 2)), functional.cross_entropy, 16, (3, 64, 64),
                 1000),
    "resnet50": (lambda: resnet(bottleneck, (3, 4, 6, 3)), functional.cross_entropy, 8,
                 (3, 64, 64), 1000),
}


def over_ranks(values, op):
    values = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(values, op=op)
    return values.tolist()


def leave_as_it_is(_, bucket):
    result = torch.futures.Future()
    result.set_result(bucket.buffer())
    return result


def resident_mb():
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def parsed():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", default="ddp", help="comma separated")
    parser.add_argument("--rounds", type=int, default=1, help="how often to run all modes, in turns")
    parser.add_argument("--model", choices=MODELS, default="cnn")
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--image", type=int, default=0, help="pixels of an image's side, for the resnets; 0: 64")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json")
    options = parser.parse_args()
    options.modes = options.mode.split(",")
    if not set(options.modes) <= set(MODES):
        parser.error(f"--mode: {options.mode}")
    if options.image and not options.model.startswith("resnet"):
        parser.error(f"--image: {options.model} is no resnet")
    options.uses_hvd = options.device == "cpu" and not set(options.modes) <= {"ddp", "ddp-copied"}
    if options.device == "cuda" and {"ddp-hvd", "python-hvd"} & set(options.modes):
        parser.error("ddp-hvd and python-hvd train on the CPU only")
    if options.uses_hvd and {"ddp", "ddp-copied"} & set(options.modes):
        parser.error("one process trains over gloo or over hvd")
    return options


def train(mode, options, device):
    """Returns train_bench's row."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    torch.manual_seed(1)
    make, loss_of, batch, shape, classes = MODELS[options.model]
    batch = options.batch or batch
    if options.image:
        shape = (3, options.image, options.image)
    model = make().to(device)
    if mode.startswith("ddp"):
        # Gradients that lie in DDP's buckets save DDP a copy. train_bench broadcasts no buffers.
        model = nn.parallel.DistributedDataParallel(
            model, broadcast_buffers=False, gradient_as_bucket_view=mode != "ddp-copied")
        if mode == "ddp-independent":
            model.register_comm_hook(None, leave_as_it_is)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    if mode == "python-hvd":
        import hvd.torch as hvd
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    if loss_of is loss_of_words:
        inputs = targets = [torch.randint(classes, (batch, *shape)).to(device) for _ in range(BATCHES)]
    else:
        inputs = [torch.randn(batch, *shape).to(device) for _ in range(BATCHES)]
        targets = [torch.randint(classes, (batch,)).to(device) for _ in range(BATCHES)]
    turn = 0

    def step():
        nonlocal turn
        optimizer.zero_grad()
        loss_of(model(inputs[turn % BATCHES]), targets[turn % BATCHES]).backward()
        optimizer.step()
        turn += 1

    for _ in range(WARM_UP):
        step()
    wait()
    began = time.perf_counter()
    for _ in range(ESTIMATE):
        step()
    wait()
    slowest = over_ranks([(time.perf_counter() - began) / ESTIMATE], dist.ReduceOp.MAX)[0]
    steps = options.steps or max(10, int(options.seconds / slowest))
    for _ in range(WARM_UP + ESTIMATE):
        step()
    wait()
    times = []
    begin = time.perf_counter()
    for _ in range(steps):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    wait()
    elapsed = time.perf_counter() - begin
    images = over_ranks([batch * steps / elapsed], dist.ReduceOp.SUM)[0]
    p50, rss = over_ranks([1e3 * statistics.median(times), resident_mb()], dist.ReduceOp.MAX)
    return {"model": options.model, "mode": mode, "ranks": dist.get_world_size(),
            "images_per_s": images, "step_ms_p50": p50, "rss_mb": rss, "steps": steps}


def main():
    options = parsed()
    device = torch.device("cpu")
    if options.device == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if options.uses_hvd:
        import hvd.torch as hvd  # registers the backend
        dist.init_process_group("hvd")
        hvd.init()
    else:
        dist.init_process_group("gloo" if options.device == "cpu" else "cpu:gloo,cuda:nccl")
    torch.set_num_threads(options.threads)
    rows = [train(mode, options, device)
            for _ in range(options.rounds) for mode in options.modes]
    if dist.get_rank() == 0 and options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file)
    elif dist.get_rank() == 0:
        for row in rows:
            print(json.dumps(row))
    if options.uses_hvd:
        hvd.shutdown()
    elif options.device == "cpu":  # gloo, which now and then aborts when its group is destroyed
        sys.stdout.flush()
        os._exit(0)
    dist.destroy_process_group()


main()
