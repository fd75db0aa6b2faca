// Finds the files of one run in a store.
#pragma once

#include <map>
#include <string>

#include <hvd/estimator/store.hpp>

namespace hvd::detail {

class RunFiles {
 public:
  RunFiles(EstimatorStore store, std::string run_id)
      : store_(std::move(store)), run_id_(std::move(run_id)) {}

  [[nodiscard]] const EstimatorStore& store() const noexcept { return store_; }
  [[nodiscard]] const std::string& run_id() const noexcept { return run_id_; }
  [[nodiscard]] std::string checkpoint(int epoch) const;
  [[nodiscard]] std::string model() const;
  [[nodiscard]] std::string history() const;
  [[nodiscard]] std::string plot() const;

  /// Returns the last epoch that has a checkpoint, or 0.
  [[nodiscard]] int last_epoch() const;
  [[nodiscard]] bool exists() const { return store_.exists(store_.run(run_id_)); }
  /// Returns the advice in the error for a checkpoint that cannot be read.
  [[nodiscard]] std::string advice(int epoch) const;

 private:
  EstimatorStore store_;
  std::string run_id_;
};

/// Returns a name that no other run has, made of the time and a random number.
[[nodiscard]] std::string make_run_id();

}  // namespace hvd::detail
