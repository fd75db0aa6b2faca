// What must come of every operation, from what the programs submitted alone: the k-th operation of
// a name on one rank belongs to the k-th of that name on every other.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <hvd/core/error.hpp>
#include <hvd/core/request.hpp>

#include "coordinator/job.hpp"
#include "coordinator/operation_key.hpp"
#include "event_queue.hpp"

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
  std::optional<Errc> error;  ///< of the end; nothing: it succeeded
};

/// An operation, as the program means it.
struct Logical {
  std::int32_t process_set = 0;
  std::string name;
  int era = 0;
  int number = 0;
  std::vector<int> members;
  std::map<int, Record*> records;  ///< by rank
  std::string group;               ///< which group of how many, and the how-manieth; empty: none
};

class Oracle {
 public:
  explicit Oracle(int ranks);

  // What programs do.
  Record& submitted(int rank, const Request& request);
  /// It was refused at once.
  void refused(Record& record);
  /// The rank has an unresolved operation of this name.
  [[nodiscard]] bool pending(int rank, const OperationKey& key) const;
  void joining(int rank, bool over_contributors);
  void goodbye(int rank);
  /// Some rank has said goodbye.
  [[nodiscard]] bool anybody_left() const noexcept { return goodbyes_ > 0; }

  // What the product does.
  void set_added(std::int32_t id, const std::vector<int>& ranks);
  void set_removed(std::int32_t id);
  [[nodiscard]] const std::vector<int>& members(std::int32_t set) const { return sets_.at(set); }
  [[nodiscard]] bool knows(std::int32_t set) const { return sets_.count(set) > 0; }
  /// Members, by place, run these jobs as one collective.
  void paired(const std::vector<int>& members, const std::vector<const Job*>& jobs);
  void resolved(Record& record, std::optional<Errc> error);

  /// The run is over. `failure`: what the job ended with, if it failed.
  void conclude(bool job_failed) const;
  [[nodiscard]] std::string unresolved() const;

 private:
  struct Expectation {
    std::optional<Errc> error;  // nothing: it succeeds
    bool complete = true;       // everybody submitted it, or had joined
  };

  void check_tensor(const std::vector<int>& members, const std::vector<const Job*>& jobs,
                    std::size_t index);
  void check_rows(const Logical& logical, const std::vector<int>& members,
                  const std::vector<const Job*>& jobs, std::size_t index) const;
  [[nodiscard]] Expectation expected(const Logical& logical) const;
  [[nodiscard]] std::optional<Errc> own_error(const Logical& logical) const;
  void conclude(const Logical& logical, bool job_failed) const;

  struct OfRank {
    int era = 0;
    bool joined = false;
    std::map<OperationKey, int> submissions;
    std::map<OperationKey, int> groups;
    std::map<OperationKey, Record*> pending;
  };

  int ranks_;
  std::vector<OfRank> of_;
  std::map<std::int32_t, std::vector<int>> sets_;
  std::map<std::int32_t, bool> removed_;
  std::deque<Record> records_;
  std::map<std::tuple<std::int32_t, std::string, int, int>, Logical> logicals_;
  std::map<int, std::vector<bool>> joined_in_;  // by era, by rank
  bool over_contributors_ = false;
  int goodbyes_ = 0;
};

[[nodiscard]] std::string to_string(const Logical& logical);

}  // namespace hvd::sim
