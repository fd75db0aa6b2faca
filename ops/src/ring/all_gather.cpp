#include "ring/all_gather.hpp"

namespace hvd {

void ring_all_gather(Transport& transport, const RingPlan& plan, std::byte* data,
                     std::span<const std::int64_t> bounds, std::size_t unit, Deadline deadline) {
  const auto block = [&](int k) {
    const std::size_t begin = static_cast<std::size_t>(bounds[static_cast<std::size_t>(k)]) * unit;
    const std::size_t end =
        static_cast<std::size_t>(bounds[static_cast<std::size_t>(k) + 1]) * unit;
    return std::span<std::byte>(data + begin, end - begin);
  };
  for (const RingStep& step : plan.all_gather) {
    const std::span<std::byte> received = block(step.receive);
    transport.exchange(
        {.peer = plan.next, .bytes = block(step.send)},
        {.peer = plan.previous, .size = received.size(), .into = received.data(), .sink = {}},
        deadline);
  }
}

}  // namespace hvd
