#include "coordinator/tensor_table.hpp"

#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd {

bool TensorTable::add(std::shared_ptr<PendingTensor> tensor) {
  const Request& request = tensor->submission.request;
  const std::lock_guard lock(mutex_);
  if (closed_) std::rethrow_exception(closed_);
  if (!pending_.try_emplace(request.name, tensor).second) {
    throw Error(Errc::duplicate_name,
                fmt::format("{} '{}': this name is still pending on this rank",
                            to_string(request.kind), request.name));
  }
  unannounced_.push_back(request);
  return unannounced_.size() == 1;
}

std::vector<Request> TensorTable::take_unannounced() {
  const std::lock_guard lock(mutex_);
  return std::exchange(unannounced_, {});
}

std::shared_ptr<PendingTensor> TensorTable::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto at = pending_.find(name);
  return at == pending_.end() ? nullptr : at->second;
}

void TensorTable::remove(const std::string& name) {
  const std::lock_guard lock(mutex_);
  pending_.erase(name);
}

void TensorTable::close(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!closed_) closed_ = std::move(error);
}

std::vector<std::shared_ptr<PendingTensor>> TensorTable::take_all() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<PendingTensor>> all;
  for (auto& [name, tensor] : std::exchange(pending_, {})) all.push_back(std::move(tensor));
  unannounced_.clear();
  return all;
}

std::optional<TensorTable::Oldest> TensorTable::oldest() const {
  const std::lock_guard lock(mutex_);
  const PendingTensor* found = nullptr;
  for (const auto& [name, tensor] : pending_) {
    if (!found || tensor->since < found->since) found = tensor.get();
  }
  if (!found) return std::nullopt;
  const Request& request = found->submission.request;
  return Oldest{request.name, request.kind, found->scheduled, found->since};
}

void TensorTable::mark_scheduled(PendingTensor& tensor) {
  const std::lock_guard lock(mutex_);
  tensor.scheduled = true;
}

}  // namespace hvd
