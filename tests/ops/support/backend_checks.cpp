#include "support/backend_checks.hpp"

namespace hvd::test {
namespace {

constexpr std::byte kGarbage{0x83};

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
  const auto count_of = [](std::int64_t base, int r) {
    return base < 0 ? std::int64_t{r % 2 == 0 ? 0 : 3} : base + r;
  };
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

}  // namespace hvd::test
