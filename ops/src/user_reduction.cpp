#include <algorithm>
#include <cstddef>
#include <exception>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/ops/user_reduction.hpp>

namespace hvd {
namespace {

CollectiveOptions part_of(const CollectiveOptions& options, const char* part) {
  CollectiveOptions same = options;
  if (!same.name.empty()) same.name = fmt::format("{}/{}", options.name, part);
  return same;
}

[[noreturn]] void throw_lengths_differ(const CollectiveOptions& options) {
  throw Error(Errc::mismatch,
              fmt::format("allreduce_bytes '{}': a rank has an array of another length, or failed "
                          "to combine",
                          options.name));
}

/// The memory of a vector of bytes is aligned for elements that need no more alignment than the
/// fundamental types.
static_assert(__STDCPP_DEFAULT_NEW_ALIGNMENT__ >= alignof(std::max_align_t));

}  // namespace

void allreduce_bytes(void* data, std::int64_t count, std::size_t size, const CombineBytes& combine,
                     const CollectiveOptions& options) {
  const Context& context = context_of(options);
  const auto width = static_cast<std::int64_t>(size);
  if (count < 0 || width <= 0 || (data == nullptr && count > 0) ||
      count > std::numeric_limits<std::int64_t>::max() / width) {
    throw Error(
        Errc::invalid_argument,
        fmt::format("allreduce_bytes '{}' of {} elements of {} bytes", options.name, count, size));
  }
  // The elements are divided into one part per rank. The alltoall sends every rank's contribution
  // to part r to rank r, which combines the contributions in the order of the ranks: part r is then
  // final on rank r. The allgather sends all parts to all ranks.
  const auto ranks = static_cast<std::int64_t>(context.ranks_of(options.process_set).size());
  std::vector<std::int64_t> splits;  // the first ranks get one element more
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    splits.push_back((count / ranks + (rank < count % ranks ? 1 : 0)) * width);
  }
  Bytes parts;
  std::vector<std::int64_t> received;
  alltoall_async(data, splits, DType::u8, parts, received, part_of(options, "parts")).wait();
  // If this rank fails here, it still takes part in the allgather, so that the other ranks do not
  // wait for it. Its part is then longer than any rank expects, so that all notice it, also a rank
  // that expects an empty part.
  std::exception_ptr failure;
  std::int64_t mine = received.front();
  try {
    for (const std::int64_t bytes : received) {
      if (bytes != mine) throw_lengths_differ(options);
    }
    for (std::int64_t rank = 1; rank < ranks; ++rank) {
      combine(parts.data(), parts.data() + rank * mine, mine / width);
    }
  } catch (...) {
    failure = std::current_exception();
    mine = 1 + *std::max_element(received.begin(), received.end());
    parts.resize(static_cast<std::size_t>(mine));
  }
  Bytes results;
  allgather_async(parts.data(), mine, DType::u8, results, part_of(options, "results")).wait();
  if (failure) std::rethrow_exception(failure);
  if (std::ssize(results) != count * width) throw_lengths_differ(options);
  if (!results.empty()) std::copy(results.begin(), results.end(), static_cast<std::byte*>(data));
}

}  // namespace hvd
