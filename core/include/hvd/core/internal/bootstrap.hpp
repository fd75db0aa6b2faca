// Lets the ranks of a job agree while it starts: every rank publishes at most one record in the
// store, rank 0 gathers them and publishes one answer, and every rank reads that answer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/core/store.hpp>
#include <hvd/core/types.hpp>

namespace hvd {

/// All ranks make the same calls with the same labels, and use each label once; a value may be any
/// bytes. Calls are collective and block. When rank 0 throws an `Error` while it makes an answer,
/// every rank throws that error. If a rank never arrives, the others throw Errc::timeout: rank 0
/// names all the ranks that are missing, and the others wait a second beyond their own deadline for
/// its answer. One thread at a time may call it.
class Bootstrap {
 public:
  using Answer = std::function<std::string()>;
  using Decide = std::function<std::string(const std::vector<std::string>& records)>;

  /// `store` outlives this object. Jobs of different names do not see each other's keys: a store
  /// may outlive a job, and its keys lead to sockets that are closed.
  Bootstrap(Store& store, int rank, int size, Deadline deadline, std::string job = "0");

  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] Deadline deadline() const noexcept { return deadline_; }

  /// Returns on every rank what `answer` returns on rank 0, which alone calls it.
  std::string share(std::string_view label, const Answer& answer) const;
  /// Returns on every rank what `decide` returns on rank 0, which alone calls it.
  std::string decide(std::string_view label, std::string_view record, const Decide& decide) const;
  /// Returns the records of all ranks, by rank.
  [[nodiscard]] std::vector<std::string> exchange(std::string_view label,
                                                  std::string_view record) const;
  /// Returns when all ranks have called it.
  void barrier(std::string_view label) const;

 private:
  std::string publish(std::string_view label, const Answer& answer) const;
  [[nodiscard]] Bytes await(std::string_view label) const;
  [[nodiscard]] std::vector<std::string> gather(std::string_view label) const;
  [[nodiscard]] std::string key(std::string_view label) const;
  [[nodiscard]] std::string record_prefix(std::string_view label) const;
  [[nodiscard]] std::vector<int> missing_ranks(std::string_view label) const;
  [[noreturn]] void fail(const std::vector<int>& missing) const;

  Store* store_;
  int rank_;
  int size_;
  Deadline start_;
  Deadline deadline_;
  std::string job_;
};

}  // namespace hvd
