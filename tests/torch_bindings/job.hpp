// Contexts that many cases share: ranks as threads, and process sets of the even and the odd ranks.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "contexts.hpp"

namespace hvd::test {

/// The contexts and sets of one rank of a `Job`.
struct Member {
  Context& context;
  const ProcessSet& half;  ///< the even or the odd ranks: the ones this rank is among

  /// Returns the ranks that take part: all, or those of `half`.
  [[nodiscard]] std::vector<int> ranks(bool in_half) const {
    return context.ranks_of(in_half ? half.id : 0);
  }
};

class Job {
 public:
  explicit Job(int size) : members_(static_cast<std::size_t>(size)) {
    const std::shared_ptr<Store> store = make_hash_store();
    expect_threads(size, [&](int rank) {
      Config config = thread_config(rank, size);
      config.stall_abort = std::chrono::seconds(20);
      Own& own = members_[static_cast<std::size_t>(rank)];
      own.context = make_context(config, store);
      for (int parity = 0; parity < std::min(size, 2); ++parity) {
        std::vector<int> ranks;
        for (int each = parity; each < size; each += 2) ranks.push_back(each);
        const ProcessSet set = own.context->add_process_set(ranks);
        if (rank % 2 == parity) own.half = set;
      }
    });
  }
  ~Job() {
    static_cast<void>(run_threads(size(), [this](int rank) { of(rank).context.reset(); }));
  }

  [[nodiscard]] int size() const { return static_cast<int>(members_.size()); }

  /// Returns false when a rank threw, which fails the test; the other ranks are aborted at once.
  bool run(const std::function<void(const Member&)>& body) {
    const auto errors = run_threads(size(), [&](int rank) {
      Own& own = of(rank);
      try {
        body({*own.context, own.half});
      } catch (const std::exception& error) {
        own.context->abort(error.what());
        throw;
      }
    });
    bool good = true;
    for (std::size_t rank = 0; rank < errors.size(); ++rank) {
      if (!errors[rank]) continue;
      good = false;
      try {
        std::rethrow_exception(errors[rank]);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << " threw: " << error.what();
      }
    }
    return good;
  }

 private:
  struct Own {
    std::unique_ptr<Context> context;
    ProcessSet half;
  };
  Own& of(int rank) { return members_[static_cast<std::size_t>(rank)]; }

  std::vector<Own> members_;
};

/// One job per size for all tests of a program. After a failed case a new job is made.
class Jobs : public testing::Environment {
 public:
  void TearDown() override { jobs_.clear(); }
  void run(int size, const std::function<void(const Member&)>& body) {
    auto& job = jobs_[size];
    if (!job) job = std::make_unique<Job>(size);
    if (!job->run(body)) job.reset();
  }

 private:
  std::map<int, std::unique_ptr<Job>> jobs_;
};

}  // namespace hvd::test
