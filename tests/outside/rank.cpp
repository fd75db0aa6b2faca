// A rank of the outside tester: a random program of collectives, the same on all ranks, whose
// results are compared with the sequential model. Its arguments are the seed, the number of rounds
// and a FIFO to which it writes what it sees, so that the tester does not depend on hvdrun for it.
// It says "begins" before it meets the others and "ready" after that, and at the end "done" or,
// after an error of the library, "error" and then "over". The exit status is 3 after an error of
// the library, 4 when it lacks memory or a resource itself, and 5 after a wrong result.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "model.hpp"

namespace outside {
namespace {

using hvd::DType;
using hvd::Errc;
using hvd::OpKind;
using hvd::ReduceOp;

constexpr int kLost = 3;
constexpr int kNoResource = 4;
constexpr int kWrong = 5;

int fifo = -1;
int my_rank = -1;

std::string numbered(const char* what, std::int64_t number) {
  std::string text = what;
  return text.append(std::to_string(number));
}

/// Writes one line to the FIFO, in one piece, and to stdout.
void say(std::string line) {
  line = line.substr(0, 1000) + "\n";
  std::replace(line.begin(), line.end() - 1, '\n', ' ');
  std::fputs(line.c_str(), stdout);
  std::fflush(stdout);
  line.insert(0, std::to_string(my_rank) + " ");
  if (::write(fifo, line.data(), line.size()) < 0) std::perror("outside_rank: the FIFO");
}

[[noreturn]] void wrong(const std::string& what) {
  say("wrong " + what);
  std::_Exit(kWrong);
}

std::string describe(const Op& op) {
  return op.name + ": " + std::string(to_string(op.kind)) + " " + std::string(to_string(op.dtype)) +
         " " + std::string(to_string(op.op)) + " of " + std::to_string(op.count) + " in set " +
         std::to_string(op.process_set);
}

/// One operation of this rank that may still run.
struct Pending {
  Op op;
  std::uint64_t salt = 0;
  hvd::Bytes input{};
  hvd::Bytes output{};
  std::vector<std::int64_t> splits{};
  std::vector<std::int64_t> received{};
  hvd::Work work{};
  std::vector<int> contributors{};
  std::int64_t divisor = 1;

  Pending(Op what, std::uint64_t with) : op(std::move(what)), salt(with), contributors(op.ranks) {
    divisor = std::ssize(op.ranks);
    input = contribution(op, salt, my_rank);
    if (op.kind == OpKind::allreduce) output.resize(input.size());
    if (op.kind == OpKind::alltoall) {
      for (const int to : op.ranks) splits.push_back(rows(op, salt, my_rank, to));
    }
  }
  /// The memory has to live until the operation is over, also after another one has failed.
  ~Pending() {
    try {
      if (work.valid()) work.wait();
    } catch (const hvd::Error&) {
    }
  }
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

  [[nodiscard]] std::int64_t count() const {
    const bool odd = op.mismatch && op.ranks.back() == my_rank;
    return static_cast<std::int64_t>(input.size() / hvd::size_of(op.dtype)) - (odd ? 1 : 0);
  }
  [[nodiscard]] hvd::AllreduceOptions reduce_options() const {
    return {.name = op.name,
            .op = op.op,
            .prescale = op.prescale,
            .postscale = op.postscale,
            .process_set = op.process_set};
  }

  void submit() {
    const hvd::CollectiveOptions options{.name = op.name, .process_set = op.process_set};
    switch (op.kind) {
      case OpKind::allgather:
        work = hvd::allgather_async(input.data(), count(), op.dtype, output, options);
        break;
      case OpKind::alltoall:
        work = hvd::alltoall_async(input.data(), splits, op.dtype, output, received, options);
        break;
      case OpKind::broadcast:
        work = hvd::broadcast_async(input.data(), count(), op.dtype, op.root, options);
        break;
      case OpKind::reducescatter:
        work = hvd::reducescatter_async(input.data(), count(), op.dtype, output, reduce_options());
        break;
      default:
        work =
            hvd::allreduce_async(input.data(), output.data(), count(), op.dtype, reduce_options());
    }
  }

  void finish() {
    try {
      work.wait();
    } catch (const hvd::Error& error) {
      if (!op.mismatch || error.code() != Errc::mismatch) throw;
      return;
    }
    if (op.mismatch) wrong(describe(op) + ": no mismatch");
    const hvd::Bytes& got = op.kind == OpKind::broadcast ? input : output;
    if (got != result(op, salt, my_rank, contributors, divisor)) wrong(describe(op));
    for (std::size_t i = 0; i < received.size(); ++i) {
      if (received[i] != rows(op, salt, op.ranks[i], my_rank)) wrong(describe(op) + ": splits");
    }
  }
};

/// The program of all ranks.
class Program {
 public:
  Program(std::uint64_t seed, int rounds, int leaves_in)
      : seed_(seed), random_(seed), rounds_(rounds), leaves_in_(leaves_in) {}

  void run() {
    begin();
    const int restart = random_.chance(25) ? rounds_ / 2 : -1;
    while (round_ < rounds_) {
      if (round_ >= restart && restart > 0 && !restarted_) {
        restarted_ = true;
        hvd::shutdown();
        begin();
      }
      if (random_.chance(15)) change_sets();
      if (random_.chance(10)) join();
      // The same operations in several rounds, so that the schedule freezes.
      const std::vector<Op> window = make_window();
      const bool grouped = random_.chance(20);
      const auto repeats = random_.chance(50) ? 1 : 2 + random_.below(12);
      for (std::int64_t i = 0; i < repeats && round_ < rounds_; ++i) run_window(window, grouped);
    }
    shut_down();
  }

 private:
  void begin() {
    say("begins");
    hvd::init();
    sets_.assign(1, {});
    for (int r = 0; r < hvd::size(); ++r) sets_[0].ranks.push_back(r);
    say("ready");
  }

  /// Operations that are pending at the shutdown complete, or fail on all ranks.
  void shut_down() {
    std::vector<std::unique_ptr<Pending>> pending;
    const std::vector<Op> window = random_.chance(25) ? make_window() : std::vector<Op>();
    for (std::size_t i = 0; i < window.size(); ++i) {
      if (std::ranges::count(window[i].ranks, my_rank) == 0) continue;
      pending.push_back(std::make_unique<Pending>(window[i], mix(mix(seed_, 11), i)));
    }
    Random own(mix(seed_, 1000 + static_cast<std::uint64_t>(my_rank)));
    shuffle(pending, own);
    for (auto& one : pending) one->submit();
    hvd::shutdown();
    for (auto& one : pending) {
      const char* end = " completes";
      try {
        one->finish();
      } catch (const hvd::Error& error) {
        if (error.code() != Errc::shut_down) throw;
        end = " fails";
      }
      say("pending " + one->op.name + end);
    }
  }

  void change_sets() {
    if (sets_.size() > 3) {
      hvd::remove_process_set(sets_.back());
      sets_.pop_back();
      return;
    }
    std::vector<int> ranks;
    for (int r = 0; r < hvd::size(); ++r) {
      if (random_.chance(60)) ranks.push_back(r);
    }
    if (!ranks.empty() && std::ssize(ranks) < hvd::size()) {
      sets_.push_back(hvd::add_process_set(ranks));
    }
  }

  Op make_op(const std::string& name) {
    constexpr OpKind kKinds[] = {OpKind::allreduce, OpKind::allgather, OpKind::broadcast,
                                 OpKind::alltoall, OpKind::reducescatter};
    Op op;
    op.name = name;
    op.kind = random_.chance(50) ? OpKind::allreduce : kKinds[random_.below(5)];
    op.dtype = static_cast<DType>(random_.below(hvd::kDTypeCount));
    const hvd::ProcessSet& set =
        sets_[static_cast<std::size_t>(random_.chance(70) ? 0 : random_.below(std::ssize(sets_)))];
    op.process_set = set.id;
    op.ranks = set.ranks;
    op.root = set.ranks[static_cast<std::size_t>(random_.below(std::ssize(set.ranks)))];
    // Most tensors are small; a few have up to 2 MiB.
    op.count = 1 + random_.below(std::int64_t{1} << random_.below(random_.chance(5) ? 19 : 12));
    if (op.kind == OpKind::allgather) op.count = std::min<std::int64_t>(op.count, 1 << 15);
    if (op.kind == OpKind::alltoall) op.count = std::min<std::int64_t>(op.count, 1 << 12);
    if (!hvd::reduces(op.kind)) return op;
    op.op = static_cast<ReduceOp>(random_.below(hvd::is_complex(op.dtype) ? 2 : 5));
    const auto size = std::ssize(op.ranks);
    const bool exact = hvd::is_integer(op.dtype) || (size & (size - 1)) == 0;
    if (op.op == ReduceOp::average && (!exact || op.dtype == DType::boolean)) {
      op.op = ReduceOp::sum;
    }
    if (op.op == ReduceOp::sum && op.dtype != DType::boolean && random_.chance(20)) {
      op.prescale = 2;
      if (hvd::is_floating_point(op.dtype)) op.postscale = 0.25;
    }
    op.mismatch = op.kind == OpKind::allreduce && size > 1 && random_.chance(3);
    return op;
  }

  std::vector<Op> make_window() {
    std::vector<Op> window;
    const auto count = 1 + random_.below(random_.chance(20) ? 24 : 6);
    for (std::int64_t i = 0; i < count; ++i) window.push_back(make_op(numbered("t", i)));
    return window;
  }

  /// Submits all operations of this rank in an order of its own, from one thread or two, and waits
  /// in another order.
  void run_window(const std::vector<Op>& window, bool grouped) {
    say(numbered("round ", round_));
    if (round_ == leaves_in_) std::exit(0);  // without a shutdown
    const std::uint64_t salt = mix(seed_, static_cast<std::uint64_t>(round_));
    std::vector<std::unique_ptr<Pending>> mine;
    for (std::size_t i = 0; i < window.size(); ++i) {
      if (std::ranges::count(window[i].ranks, my_rank) == 0) continue;
      mine.push_back(std::make_unique<Pending>(window[i], mix(salt, i)));
    }
    Random own(mix(salt, 1000 + static_cast<std::uint64_t>(my_rank)));
    shuffle(mine, own);
    if (own.chance(20)) {
      const auto half = mine.begin() + std::ssize(mine) / 2;
      auto other = std::async(std::launch::async, [&] {
        for (auto i = half; i != mine.end(); ++i) (*i)->submit();
      });
      for (auto i = mine.begin(); i != half; ++i) (*i)->submit();
      other.get();
    } else {
      for (auto& pending : mine) pending->submit();
    }
    if (grouped) run_group(salt);
    shuffle(mine, own);
    for (auto& pending : mine) pending->finish();
    if (mix(salt, 5) % 4 == 0) {
      double loss = my_rank;
      hvd::allreduce(std::span(&loss, 1), {.name = "loss", .op = ReduceOp::sum});
      if (loss != hvd::size() * (hvd::size() - 1) / 2) wrong("loss");
    }
    if (mix(salt, 7) % 4 == 0) compare_bits(salt);
    if (mix(salt, 6) % 16 == 0) hvd::barrier({.name = "barrier"});
    ++round_;
  }

  /// Sums numbers whose last bits depend on the order of the additions, as those of gradients do,
  /// and compares the bits of all ranks. All rounds of a program have the same type and count.
  void compare_bits(std::uint64_t salt) {
    constexpr DType kTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16};
    Op op;
    op.inexact = true;
    op.ranks = sets_[0].ranks;
    op.dtype = kTypes[mix(seed_, 8) % 4];
    op.count = 1 + static_cast<std::int64_t>(mix(seed_, 9) % 20'000);
    op.name = "inexact";
    Pending pending(op, mix(salt, 10));
    pending.submit();
    pending.work.wait();
    if (!is_near(op, pending.salt, pending.output)) wrong(describe(op) + ": far from the sum");
    std::uint64_t digest = 0;
    for (const std::byte each : pending.output)
      digest = mix(digest, std::to_integer<unsigned>(each));
    const std::vector<std::int64_t> mine = {static_cast<std::int64_t>(digest)};
    const auto all = hvd::allgather(std::span(mine), {.name = "digests"});
    if (std::ranges::count(all, mine[0]) != hvd::size()) wrong(describe(op) + ": ranks differ");
  }

  /// A group with a name that occurs twice is refused on this rank alone, and leaves nothing
  /// behind.
  static void expect_refusal(std::vector<hvd::AllreduceItem> items) {
    items.push_back(items[1]);
    try {
      (void)hvd::grouped_allreduce_async(items, {.name = "group", .op = ReduceOp::sum});
    } catch (const hvd::Error& error) {
      if (error.code() != Errc::duplicate_name) throw;
      return;
    }
    wrong("a group has the same name twice");
  }

  /// Runs four allreduces of all ranks as a group.
  void run_group(std::uint64_t salt) {
    std::vector<std::unique_ptr<Pending>> members;
    std::vector<hvd::AllreduceItem> items;
    for (std::uint64_t i = 0; i < 4; ++i) {
      Op op;
      op.ranks = sets_[0].ranks;
      op.dtype = i % 2 == 0 ? DType::f32 : DType::i32;
      op.count = 1 + static_cast<std::int64_t>(i) * 100;
      op.name = numbered("g", static_cast<std::int64_t>(i));
      auto& member = members.emplace_back(std::make_unique<Pending>(op, mix(salt, 100 + i)));
      items.push_back({member->input.data(), member->output.data(), op.count, op.dtype, op.name});
    }
    if (mix(salt, 2000 + static_cast<std::uint64_t>(my_rank)) % 2 == 0) expect_refusal(items);
    const auto works = hvd::grouped_allreduce_async(items, {.name = "group", .op = ReduceOp::sum});
    for (std::size_t i = 0; i < works.size(); ++i) {
      members[i]->work = works[i];
      members[i]->finish();
    }
  }

  /// Every rank has a number of steps of its own and then joins.
  void join() {
    const std::uint64_t salt = mix(seed_, 7'000'000 + static_cast<std::uint64_t>(round_));
    const bool average = mix(salt, 1) % 2 == 0;
    const auto steps = [&](int rank) {
      return static_cast<int>(mix(salt, 10 + static_cast<std::uint64_t>(rank)) % 4);
    };
    for (int step = 0; step < steps(my_rank); ++step) {
      Op op;
      op.ranks = sets_[0].ranks;
      op.dtype = step % 2 == 0 ? DType::i32 : DType::f64;
      op.op = step % 2 == 0 ? static_cast<ReduceOp>(mix(salt, 2) % 5) : ReduceOp::sum;
      op.count = 1 + static_cast<std::int64_t>(mix(salt, 3) % 3000);
      op.name = numbered("join", step);
      Pending pending(op, mix(salt, 50 + static_cast<std::uint64_t>(step)));
      std::erase_if(pending.contributors, [&](int r) { return steps(r) <= step; });
      if (average) pending.divisor = std::ssize(pending.contributors);
      pending.submit();
      pending.finish();
    }
    const std::vector<std::int32_t> last = {hvd::join({.average_over_contributors = average})};
    const auto all = hvd::allgather(std::span(last), {.name = "last"});
    if (std::ranges::count(all, last[0]) != hvd::size()) wrong("ranks differ in who joined last");
  }

  template <class T>
  static void shuffle(std::vector<T>& items, Random& random) {
    for (auto i = std::ssize(items) - 1; i > 0; --i) {
      std::swap(items[static_cast<std::size_t>(i)],
                items[static_cast<std::size_t>(random.below(i + 1))]);
    }
  }

  std::uint64_t seed_;
  Random random_;
  int rounds_;
  int leaves_in_;  ///< the round in which it leaves the job without a shutdown; -1: none
  int round_ = 0;
  bool restarted_ = false;
  std::vector<hvd::ProcessSet> sets_;  ///< the first is that of all ranks
};

/// The first error of a context stays.
void expect_the_same(const hvd::Error& first) {
  const bool failed = first.code() == Errc::peer_lost || first.code() == Errc::timeout ||
                      first.code() == Errc::resource;
  if (!failed || !hvd::is_initialized()) return;
  try {
    float x = 1;
    hvd::allreduce(std::span(&x, 1), {.name = "after"});
    wrong("a collective succeeds after " + std::string(first.what()));
  } catch (const hvd::Error& error) {
    if (error.what() != std::string(first.what())) {
      wrong("first '" + std::string(first.what()) + "', then '" + error.what() + "'");
    }
  }
  try {
    hvd::shutdown();
  } catch (const hvd::Error&) {
  }
}

int run(std::uint64_t seed, int rounds, bool catches, int leaves_in) {
  try {
    Program(seed, rounds, leaves_in).run();
    say("done");
    return 0;
  } catch (const hvd::Error& error) {
    say("error " + std::string(to_string(error.code())) + " | " +
        std::to_string(error.fault().rank) + " | " + error.what());
    if (!catches) throw;
    expect_the_same(error);
    say("over");
    return kLost;
  } catch (const std::exception& error) {  // std::bad_alloc, or no thread
    say("exception " + std::string(error.what()));
    if (!catches) throw;
    return kNoResource;
  }
}

}  // namespace
}  // namespace outside

int main(int argc, char** argv) {
  // hvdrun ends survivors with SIGTERM, but they must first write their error.
  std::signal(SIGTERM, SIG_IGN);
  const char* const rank = std::getenv("HVD_RANK");
  if (argc != 6 || rank == nullptr) return 2;
  outside::my_rank = std::atoi(rank);
  outside::fifo = ::open(argv[3], O_WRONLY | O_CLOEXEC);
  if (outside::fifo < 0) return 2;
  outside::say("started");
  const bool catches = std::string_view(argv[4]) == "catches";
  int leaver = -1;
  int leaves_in = -1;
  std::sscanf(argv[5], "%d:%d", &leaver, &leaves_in);
  if (leaver != outside::my_rank) leaves_in = -1;
  return outside::run(std::strtoull(argv[1], nullptr, 10), std::atoi(argv[2]), catches, leaves_in);
}
