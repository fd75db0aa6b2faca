#include "coordinator/negotiator.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/core/error.hpp>

#include "coordinator/mismatch.hpp"

namespace hvd {

Negotiator::Negotiator(int size, std::size_t fusion_threshold)
    : size_(size), fusion_threshold_(fusion_threshold) {}

void Negotiator::submitted(int rank, std::vector<Request> requests, Clock::time_point now) {
  for (Request& request : requests) {
    if (!departed_.empty()) {
      reject_departed(request.name);
      continue;
    }
    auto [at, is_new] = pending_.try_emplace(request.name);
    Entry& entry = at->second;
    if (is_new) {
      entry.since = now;
      entry.arrival = arrivals_++;
    }
    if (std::find(entry.ranks.begin(), entry.ranks.end(), rank) != entry.ranks.end()) {
      throw Error(Errc::protocol, fmt::format("rank {} submitted '{}' twice", rank, request.name));
    }
    entry.ranks.push_back(rank);
    entry.requests.push_back(std::move(request));
    if (std::ssize(entry.ranks) == size_) {
      const auto complete = pending_.extract(at);
      resolve(complete.key(), complete.mapped());
    }
  }
}

void Negotiator::resolve(const std::string& name, const Entry& entry) {
  if (const auto mismatch = describe_mismatch(entry.requests, entry.ranks)) {
    rejections_.push_back({name, Errc::mismatch, *mismatch});
    return;
  }
  ReadyTensor ready{entry.requests.front(), {}};
  if (ready.request.kind == OpKind::allgather) {
    ready.first_dimensions.resize(static_cast<std::size_t>(size_));
    for (std::size_t i = 0; i < entry.ranks.size(); ++i) {
      ready.first_dimensions[static_cast<std::size_t>(entry.ranks[i])] =
          entry.requests[i].shape.front();
    }
  }
  ready_.push_back(std::move(ready));
}

void Negotiator::departed(int rank) {
  departed_.insert(rank);
  for (const auto& [name, entry] : std::exchange(pending_, {})) reject_departed(name);
}

void Negotiator::reject_departed(const std::string& name) {
  rejections_.push_back({name, Errc::shut_down,
                         fmt::format("'{}' cannot complete: rank {} has shut down", name,
                                     fmt::join(departed_, ", "))});
}

std::vector<Decision> Negotiator::take(std::size_t max_batches) {
  std::vector<Decision> decisions;
  for (Rejection& rejection : rejections_) decisions.emplace_back(std::move(rejection));
  rejections_.clear();
  for (; max_batches > 0 && !ready_.empty(); --max_batches) {
    Batch batch;
    for (ReadyTensor& tensor : take_fused(ready_, fusion_threshold_)) {
      batch.names.push_back(std::move(tensor.request.name));
      if (!tensor.first_dimensions.empty()) {
        batch.first_dimensions.push_back(std::move(tensor.first_dimensions));
      }
    }
    decisions.emplace_back(std::move(batch));
  }
  return decisions;
}

bool Negotiator::finished() const noexcept {
  return std::ssize(departed_) == size_ && ready_.empty() && rejections_.empty();
}

std::vector<Stall> Negotiator::stalls(Clock::time_point now, Clock::duration age) const {
  std::vector<std::pair<std::uint64_t, Stall>> found;
  for (const auto& [name, entry] : pending_) {
    if (now - entry.since < age) continue;
    Stall stall{name, entry.requests.front().kind, entry.ranks, {}, now - entry.since};
    std::sort(stall.submitted.begin(), stall.submitted.end());
    for (int rank = 0; rank < size_; ++rank) {
      if (!std::binary_search(stall.submitted.begin(), stall.submitted.end(), rank)) {
        stall.missing.push_back(rank);
      }
    }
    found.emplace_back(entry.arrival, std::move(stall));
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Stall> stalls;
  for (auto& [arrival, stall] : found) stalls.push_back(std::move(stall));
  return stalls;
}

}  // namespace hvd
