#include "support/backend_checks.hpp"

#include <algorithm>

namespace hvd::test {
namespace {

constexpr std::byte kGarbage{0x83};

/// Returns the elements of rank r, as `BackendChecks::allgather` says.
std::int64_t count_of(std::int64_t base, int r) {
  return base < 0 ? std::int64_t{r % 2 == 0 ? 0 : 3} : base + r;
}

}  // namespace

std::int64_t BackendChecks::allreduce(DType dtype, ReduceOp op,
                                      const std::vector<std::int64_t>& counts, bool in_place,
                                      const Scales& scales) {
  std::vector<Bytes> inputs;
  std::vector<TensorSlice> slices;
  for (const std::int64_t count : counts) {
    inputs.push_back(encode(dtype, sample(dtype, rank, count)));
    std::byte* const input = memory.put(inputs.back());
    std::byte* const output = in_place ? input : memory.put(Bytes(inputs.back().size(), kGarbage));
    slices.push_back({count == 0 ? nullptr : input, count == 0 ? nullptr : output, count});
  }
  backend.allreduce({slices, device, dtype, op, scales.prescale, scales.postscale}, soon());
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::size_t bytes = inputs[i].size();
    wrong += count_wrong(dtype, memory.get(slices[i].output, bytes),
                         reduced_sample(dtype, op, size, counts[i], scales));
    if (!in_place && memory.get(slices[i].input, bytes) != inputs[i]) ++wrong;
  }
  return wrong;
}

std::int64_t BackendChecks::broadcast(DType dtype, int root,
                                      const std::vector<std::int64_t>& counts) {
  std::vector<TensorSlice> slices;
  for (const std::int64_t count : counts) {
    const Bytes input = encode(dtype, sample(dtype, rank, count));
    slices.push_back({memory.put(input), memory.put(Bytes(input.size(), kGarbage)), count});
  }
  backend.broadcast({slices, device, dtype, root}, soon());
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto bytes = static_cast<std::size_t>(counts[i]) * size_of(dtype);
    wrong +=
        count_wrong(dtype, memory.get(slices[i].output, bytes), sample(dtype, root, counts[i]));
  }
  return wrong;
}

std::int64_t BackendChecks::allgather(DType dtype, const std::vector<std::int64_t>& bases) {
  std::vector<std::vector<std::int64_t>> counts(bases.size());
  std::vector<std::vector<double>> expected(bases.size());
  std::vector<GatherSlice> slices;
  for (std::size_t i = 0; i < bases.size(); ++i) {
    for (int r = 0; r < size; ++r) {
      counts[i].push_back(count_of(bases[i], r));
      const std::vector<double> values = sample(dtype, r, counts[i].back());
      expected[i].insert(expected[i].end(), values.begin(), values.end());
    }
    const std::byte* input =
        memory.put(encode(dtype, sample(dtype, rank, count_of(bases[i], rank))));
    slices.push_back(
        {input, memory.put(Bytes(expected[i].size() * size_of(dtype), kGarbage)), counts[i]});
  }
  backend.allgather({slices, device, dtype}, soon());
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < bases.size(); ++i) {
    const Bytes result = memory.get(slices[i].output, expected[i].size() * size_of(dtype));
    wrong += count_wrong(dtype, result, expected[i]);
  }
  return wrong;
}

std::int64_t BackendChecks::reducescatter(DType dtype, ReduceOp op,
                                          const std::vector<std::int64_t>& bases,
                                          const Scales& scales) {
  std::vector<std::vector<std::int64_t>> counts(bases.size());
  std::vector<Bytes> inputs;
  std::vector<std::vector<double>> expected;
  std::vector<ScatterSlice> slices;
  for (std::size_t i = 0; i < bases.size(); ++i) {
    std::int64_t total = 0;
    std::int64_t begin = 0;
    for (int r = 0; r < size; ++r) {
      if (r == rank) begin = total;
      counts[i].push_back(count_of(bases[i], r));
      total += counts[i].back();
    }
    const std::int64_t own = count_of(bases[i], rank);
    const std::vector<double> all = reduced_sample(dtype, op, size, total, scales);
    expected.emplace_back(all.begin() + begin, all.begin() + begin + own);
    inputs.push_back(encode(dtype, sample(dtype, rank, total)));
    const Bytes garbage(static_cast<std::size_t>(own) * size_of(dtype), kGarbage);
    slices.push_back({total == 0 ? nullptr : memory.put(inputs.back()),
                      own == 0 ? nullptr : memory.put(garbage), counts[i]});
  }
  backend.reducescatter({slices, device, dtype, op, scales.prescale, scales.postscale}, soon());
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < bases.size(); ++i) {
    const Bytes result = memory.get(slices[i].output, expected[i].size() * size_of(dtype));
    wrong += count_wrong(dtype, result, expected[i]);
    if (memory.get(slices[i].input, inputs[i].size()) != inputs[i]) ++wrong;
  }
  return wrong;
}

std::int64_t BackendChecks::alltoall(DType dtype, std::int64_t base) {
  const auto part = [&](int from, int to) {
    const std::int64_t count = base < 0 ? (from + to) % 2 * 3 : base + from + 2 * to;
    return sample(dtype, from * 5 + to, count);
  };
  std::vector<std::int64_t> sends;
  std::vector<std::int64_t> receives;
  std::vector<double> input;
  std::vector<double> expected;
  for (int peer = 0; peer < size; ++peer) {
    const std::vector<double> out = part(rank, peer);
    const std::vector<double> in = part(peer, rank);
    sends.push_back(static_cast<std::int64_t>(out.size()));
    receives.push_back(static_cast<std::int64_t>(in.size()));
    input.insert(input.end(), out.begin(), out.end());
    expected.insert(expected.end(), in.begin(), in.end());
  }
  const Bytes garbage(expected.size() * size_of(dtype), kGarbage);
  std::byte* const output = expected.empty() ? nullptr : memory.put(garbage);
  const std::byte* const from = input.empty() ? nullptr : memory.put(encode(dtype, input));
  backend.alltoall({from, output, sends, receives, device, dtype}, soon());
  return count_wrong(dtype, memory.get(output, garbage.size()), expected);
}

std::int64_t BackendChecks::allreduce_without_last(DType dtype, ReduceOp op,
                                                   const std::vector<std::int64_t>& counts,
                                                   const Scales& scales) {
  const int present = std::max(1, size - 1);
  const auto all_take_part = [&](std::size_t i) { return op != ReduceOp::average && i % 2 == 1; };
  std::vector<TensorSlice> slices;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const bool here = rank < present || all_take_part(i);
    const Bytes input = encode(dtype, sample(dtype, rank, counts[i]));
    slices.push_back({here ? memory.put(input) : nullptr,
                      here ? memory.put(Bytes(input.size(), kGarbage)) : nullptr, counts[i]});
  }
  backend.allreduce({slices, device, dtype, op, scales.prescale, scales.postscale, present},
                    soon());
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (slices[i].output == nullptr) continue;
    const auto bytes = static_cast<std::size_t>(counts[i]) * size_of(dtype);
    const int ranks = all_take_part(i) ? size : present;
    wrong += count_wrong(dtype, memory.get(slices[i].output, bytes),
                         reduced_sample(dtype, op, ranks, counts[i], scales));
  }
  return wrong;
}

std::int64_t BackendChecks::subsets(const std::vector<std::vector<int>>& groups) {
  std::vector<std::unique_ptr<Backend>> members;
  for (const std::vector<int>& ranks : groups) {
    const bool in = std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    members.push_back(in ? backend.subset(ranks, soon()) : nullptr);
  }
  std::int64_t wrong = 0;
  for (int round = 0; round < 3; ++round) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (!members[g]) continue;
      const auto at = std::find(groups[g].begin(), groups[g].end(), rank) - groups[g].begin();
      BackendChecks checks{*members[g], memory, device, static_cast<int>(at),
                           static_cast<int>(groups[g].size())};
      wrong += checks.allreduce(DType::f32, ReduceOp::average, {100, 7}, true);
      wrong += checks.allgather(DType::i32, {3, -1});
      wrong += checks.reducescatter(DType::i64, ReduceOp::sum, {4});
      wrong += checks.alltoall(DType::f64, 2);
      wrong += checks.broadcast(DType::bf16, checks.size - 1, {31});
      checks.backend.barrier(soon());
    }
    wrong += allreduce(DType::f32, ReduceOp::sum, {1000}, false);
  }
  return wrong;
}

}  // namespace hvd::test
