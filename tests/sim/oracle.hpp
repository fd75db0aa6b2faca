// Computes the required outcome of every operation from the programs alone: the k-th operation of a
// name on one rank belongs to the k-th of that name on every other rank, and so does the k-th group
// with its members.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <hvd/core/error.hpp>
#include <hvd/core/request.hpp>

#include "engine/local_batch.hpp"
#include "event_queue.hpp"
#include "policy/operation_key.hpp"

namespace hvd::sim {

struct Logical;

/// One rank's part of an operation.
struct Record {
  int rank = 0;
  Request request;
  Logical* logical = nullptr;
  std::vector<std::int64_t> reported;
  bool paired = false;  ///< took part in a collective with the right partners
  bool resolved = false;
  std::optional<Errc> error;  ///< the outcome; nothing means success
};

/// An operation, as the program means it.
struct Logical {
  std::int32_t process_set = 0;
  std::string name;
  int era = 0;
  int number = 0;
  std::vector<int> members;
  std::map<int, Record*> records;  ///< by rank
  std::string group;               ///< its group and which one of that name; empty: none
};

class Oracle {
 public:
  explicit Oracle(int ranks);

  // Reports of the programs:
  Record& submitted(int rank, const Request& request);
  /// The submission was refused at once.
  void refused(Record& record);
  /// Returns whether the rank has an unresolved operation of this name.
  [[nodiscard]] bool pending(int rank, const detail::OperationKey& key) const;
  void joining(int rank, bool over_contributors);
  void shutdown_requested(int rank);
  /// Returns whether some rank has requested the shutdown.
  [[nodiscard]] bool anybody_left() const noexcept { return shutdown_requests_ > 0; }

  // Reports of the product:
  void set_added(std::int32_t id, const std::vector<int>& ranks);
  void set_removed(std::int32_t id);
  [[nodiscard]] const std::vector<int>& members(std::int32_t set) const { return sets_.at(set); }
  [[nodiscard]] bool knows(std::int32_t set) const { return sets_.count(set) > 0; }
  /// The members, in the order of the set, run these batches as one collective.
  void paired(const std::vector<int>& members,
              const std::vector<const detail::LocalBatch*>& batches);
  void resolved(Record& record, std::optional<Errc> error);

  /// Checks the outcome of every operation when the run is over. After a failed job any error is
  /// right.
  void conclude(bool job_failed) const;
  [[nodiscard]] std::string unresolved() const;

 private:
  struct Expectation {
    std::optional<Errc> error;  // nothing: it succeeds
    bool complete = true;       // every rank has submitted it, or had joined
  };

  void check_tensor(const std::vector<int>& members,
                    const std::vector<const detail::LocalBatch*>& batches, std::size_t index);
  void check_rows(const Logical& logical, const std::vector<int>& members,
                  const std::vector<const detail::LocalBatch*>& batches, std::size_t index) const;
  [[nodiscard]] Expectation expected(const Logical& logical) const;
  [[nodiscard]] std::optional<Errc> own_error(const Logical& logical) const;
  [[nodiscard]] bool left_out(const Logical& logical, int member) const;
  [[nodiscard]] bool groups_differ(const Logical& logical) const;

  struct GroupCount {
    int groups = 0;   // groups that were submitted as a whole
    int members = 0;  // members of the next group
  };
  struct OfRank {
    int era = 0;
    bool joined = false;
    std::map<detail::OperationKey, int> submissions;
    std::map<detail::OperationKey, GroupCount> groups;
    std::map<detail::OperationKey, Record*> pending;
  };

  int ranks_;
  std::vector<OfRank> of_;
  std::map<std::int32_t, std::vector<int>> sets_;
  std::map<std::int32_t, bool> removed_;
  std::deque<Record> records_;
  std::map<std::tuple<std::int32_t, std::string, int, int>, Logical> logicals_;
  std::map<std::string, std::map<int, std::set<std::string>>> groups_;  // members by group and rank
  std::map<int, std::vector<bool>> joined_in_;                          // by era, by rank
  bool over_contributors_ = false;
  int shutdown_requests_ = 0;
};

[[nodiscard]] std::string to_string(const Logical& logical);

}  // namespace hvd::sim
