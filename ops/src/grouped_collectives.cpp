#include <fmt/format.h>

#include <hvd/ops/grouped_collectives.hpp>

#include "context/submissions.hpp"

namespace hvd {

using namespace detail;

namespace {

/// Submits what `make(item, options with its name)` returns for each item.
template <class Item, class Options, class Make>
std::vector<Work> submit(std::span<const Item> items, const Options& options, Make make) {
  Context& context = context_of(options);
  std::vector<Submission> submissions;
  submissions.reserve(items.size());
  for (const Item& item : items) {
    Options one = options;
    one.name = item.name;
    submissions.push_back(make(item, one));
  }
  return context.submit_group(std::move(submissions), options.name);
}

template <class Item>
void require_output(const Item& item, const char* operation) {
  if (item.output != nullptr) return;
  throw Error(Errc::invalid_argument,
              fmt::format("{} '{}': an item without an output", operation, item.name));
}

}  // namespace

std::vector<Work> grouped_allreduce_async(std::span<const AllreduceItem> items,
                                          const AllreduceOptions& options) {
  return submit(items, options, [](const AllreduceItem& item, const auto& one) {
    return allreduce_of(item.input, item.output, item.count, item.dtype, one);
  });
}

std::vector<Work> grouped_broadcast_async(std::span<const BroadcastItem> items, int root,
                                          const CollectiveOptions& options) {
  return submit(items, options, [root](const BroadcastItem& item, const auto& one) {
    return broadcast_of(item.data, item.count, item.dtype, root, one);
  });
}

std::vector<Work> grouped_allgather_async(std::span<const ResizedItem> items,
                                          const CollectiveOptions& options) {
  return submit(items, options, [](const ResizedItem& item, const auto& one) {
    require_output(item, "grouped_allgather");
    return allgather_of(item.input, item.count, item.dtype, resized(*item.output, item.dtype), one);
  });
}

std::vector<Work> grouped_reducescatter_async(std::span<const ResizedItem> items,
                                              const AllreduceOptions& options) {
  return submit(items, options, [](const ResizedItem& item, const auto& one) {
    require_output(item, "grouped_reducescatter");
    return reducescatter_of(item.input, item.count, item.dtype, resized(*item.output, item.dtype),
                            one);
  });
}

std::vector<Work> grouped_alltoall_async(std::span<const AlltoallItem> items,
                                         const CollectiveOptions& options) {
  return submit(items, options, [](const AlltoallItem& item, const auto& one) {
    require_output(item, "grouped_alltoall");
    if (item.received == nullptr) {
      throw Error(
          Errc::invalid_argument,
          fmt::format("grouped_alltoall '{}': nowhere to put the received splits", item.name));
    }
    return alltoall_of(item.input, item.splits, item.dtype, resized(*item.output, item.dtype),
                       *item.received, one);
  });
}

}  // namespace hvd
