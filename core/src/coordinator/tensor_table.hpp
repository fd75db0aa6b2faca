// This rank's pending operations by name. Any thread.
#pragma once

#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/pending_tensor.hpp"

namespace hvd {

class TensorTable {
 public:
  /// Throws Errc::duplicate_name, or what `close` was given. Returns true when the loop must be
  /// told: nothing else is waiting to be announced.
  bool add(std::shared_ptr<PendingTensor> tensor);
  /// What was added since the last call, in order, for the negotiation.
  [[nodiscard]] std::vector<Request> take_unannounced();

  /// Null when no such operation is pending.
  [[nodiscard]] std::shared_ptr<PendingTensor> find(const std::string& name) const;
  /// The name is free again. To be called before the work completes, so that whoever waited for it
  /// can submit at once.
  void remove(const std::string& name);

  /// From now on `add` throws `error`. The first call counts.
  void close(std::exception_ptr error);
  /// Removes and returns everything pending.
  [[nodiscard]] std::vector<std::shared_ptr<PendingTensor>> take_all();

  struct Oldest {
    std::string name;
    OpKind kind;
    bool scheduled;
    Clock::time_point since;
  };
  [[nodiscard]] std::optional<Oldest> oldest() const;
  void mark_scheduled(PendingTensor& tensor);

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<PendingTensor>, std::less<>> pending_;
  std::vector<Request> unannounced_;
  std::exception_ptr closed_;
};

}  // namespace hvd
